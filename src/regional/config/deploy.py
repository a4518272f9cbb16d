"""`deploy/` on disk: brought up to date, or compared.

Everything is rendered and checked before the first byte is written. New contents are staged beside the tree, so a full
disk or a fault shows up before anything changed; then each file is renamed into place, the index last. A run that dies
in between is finished by the next, and `check` sees it.

A region or cluster that was rendered may only disappear once it was rendered with `delete: true`: files that vanish
destroy nothing, they orphan what was built from them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from regional.config.problems import ConfigProblems, Problem
from regional.config.render import GENERATED


class Change(msgspec.Struct, frozen=True, order=True):
    path: str
    kind: str  # "added", "changed", "removed"


def compare(rendered: Mapping[str, bytes], deploy_dir: Path) -> list[Change]:
    changes = [
        Change(path, "changed" if (deploy_dir / path).exists() else "added")
        for path, content in rendered.items()
        if not _same(deploy_dir / path, content)
    ]
    return sorted(changes + [Change(path, "removed") for path in _extra(rendered, deploy_dir)])


def check(rendered: Mapping[str, bytes], deploy_dir: Path) -> list[Change]:
    """What a render would change; [] when `deploy/` is exactly the rendering, with no file more."""
    return compare(rendered, deploy_dir)


def write(rendered: Mapping[str, bytes], deploy_dir: Path) -> list[Change]:
    """Returns what changed. Raises ConfigProblems, before any change, when something not marked would be dropped."""
    changes = compare(rendered, deploy_dir)
    removed = [change.path for change in changes if change.kind == "removed"]
    problems = [*_dropped(rendered, deploy_dir), *_foreign(deploy_dir, removed)]
    if problems:
        raise ConfigProblems(problems)
    writes = sorted((c.path for c in changes if c.kind != "removed"), key=lambda path: (path == "index.json", path))
    if not changes:
        return []
    deploy_dir.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".deploy-", dir=deploy_dir.parent))
    try:
        for number, path in enumerate(writes):
            staged = staging / str(number)
            staged.write_bytes(rendered[path])
            staged.chmod(0o644)
        for path in removed:
            (deploy_dir / path).unlink()
            _remove_empty(deploy_dir, (deploy_dir / path).parent)
        for number, path in enumerate(writes):
            target = deploy_dir / path
            target.parent.mkdir(parents=True, exist_ok=True)
            (staging / str(number)).replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return changes


def _same(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _extra(rendered: Mapping[str, bytes], deploy_dir: Path) -> list[str]:
    found = []
    for folder, _, names in os.walk(deploy_dir):
        relative = Path(folder).relative_to(deploy_dir)
        found += [path for name in names if (path := (relative / name).as_posix()) not in rendered]
    return sorted(found)


def _foreign(deploy_dir: Path, removed: list[str]) -> list[Problem]:
    """Only what carries our mark is ours to delete."""
    return [
        Problem(str(deploy_dir / path), 0, 0, "was not generated: move it out of deploy/")
        for path in removed
        if GENERATED.encode() not in (deploy_dir / path).read_bytes()[:4096]
    ]


def _dropped(rendered: Mapping[str, bytes], deploy_dir: Path) -> list[Problem]:
    before, after = _entries(_read(deploy_dir / "index.json")), _entries(rendered.get("index.json", b"{}"))
    return [
        Problem(
            "config.yaml",
            0,
            0,
            f"{what} was removed without being marked: put it back with `delete: true`, render, "
            "let its pipeline destroy it, then remove it",
        )
        for what, marked in before.items()
        if what not in after and not marked
    ]


def _entries(raw: bytes) -> dict[str, bool]:
    """Every region and cluster of an index -> whether it is marked for deletion."""
    try:
        regions: list[dict[str, Any]] = json.loads(raw).get("regions", [])
        entries = {}
        for region in regions:
            entries[f"region {region['path']}"] = region["delete"]
            for cluster in region["management_clusters"]:
                entries[f"cluster {region['path']}/{cluster['cluster_id']}"] = region["delete"] or cluster["delete"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = Problem("deploy/index.json", 0, 0, f"cannot be read ({error}): restore it from Git")
        raise ConfigProblems([problem]) from None
    return entries


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b"{}"


def _remove_empty(top: Path, folder: Path) -> None:
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
