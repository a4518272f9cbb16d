"""Branches as the files of a local repository say them: a few reads in place of a run of git, which costs milliseconds,
and tenths of a second where the machine is busy."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

COMMIT = re.compile(r"[0-9a-f]{40}")


def ref_stamp(git_dir: Path, revision: str) -> tuple[Any, ...]:
    """Facts about the files that decide what a name means; equal stamps mean nothing was written."""
    names = ["HEAD", "packed-refs", "reftable/tables.list"]
    if revision == "HEAD":
        with contextlib.suppress(OSError):
            target = (git_dir / "HEAD").read_text().removeprefix("ref:").strip()
            if target.startswith("refs/") and ".." not in target:
                names.append(target)
    else:
        names += [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/remotes/origin/{revision}"]
    stamps: list[Any] = []
    for name in names:
        try:
            facts = os.stat(git_dir / name)  # noqa: PTH116 - again and again for every name: no Path in between
            stamps.append((facts.st_mtime_ns, facts.st_ino, facts.st_size))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def loose_branch(git_dir: Path, revision: str) -> str | None:
    """The commit of a branch, or of HEAD on one; None if only git can tell (packed, a tag, a hash, nothing at all)."""
    name = f"refs/heads/{revision}"
    try:
        if revision == "HEAD":
            head = (git_dir / "HEAD").read_text().strip()
            name = head.removeprefix("ref:").strip()
        if not name.startswith("refs/heads/") or ".." in name:
            return None
        found = (git_dir / name).read_text().strip()
    except (OSError, ValueError):
        return None
    return found if COMMIT.fullmatch(found) else None
