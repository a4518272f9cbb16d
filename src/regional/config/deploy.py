"""`deploy/` on disk: brought up to date, or compared.

Everything is rendered and checked before the first byte is written, and the tree changes in one step
(`config.exchange`): a fault, a full disk or a kill leaves it as it was.

A region or cluster that was rendered may only disappear once it was rendered with `delete: true`: files that vanish
destroy nothing, they orphan what was built from them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import msgspec

from regional.config.exchange import replace_files
from regional.config.memory import Signature
from regional.config.problems import ConfigProblems, Problem
from regional.config.render import GENERATED

_INPUTS = re.compile(r"([^/]+/[^/]+)/terraform/(?:regional|management/([^/]+))\.json")


class Change(msgspec.Struct, frozen=True, order=True):
    path: str
    kind: str  # "added", "changed", "removed"


Present = Mapping[str, Signature]


def compare(
    rendered: Mapping[str, bytes], deploy_dir: Path, unchanged: Set[str] = frozenset(), found: Present | None = None
) -> list[Change]:
    """What a render would change; [] when `deploy/` is exactly the rendering, with no file more. `unchanged` are files
    known to be right, whose content nobody needs."""
    found = present(deploy_dir) if found is None else found
    changes = [
        Change(path, "changed" if path in found else "added")
        for path, content in rendered.items()
        if not _same(f"{deploy_dir}/{path}", content)
    ]
    removed = found.keys() - rendered.keys() - unchanged
    return sorted(changes + [Change(path, "removed") for path in removed])


def write(
    rendered: Mapping[str, bytes], deploy_dir: Path, unchanged: Set[str] = frozenset(), found: Present | None = None
) -> list[Change]:
    """Returns what changed. Raises ConfigProblems, before any change, when something not marked would be dropped."""
    changes = compare(rendered, deploy_dir, unchanged, found)
    removed = {change.path for change in changes if change.kind == "removed"}
    if removed and not (deploy_dir / "index.json").is_file():
        problem = Problem("deploy/index.json", 0, 0, "is missing, so nobody knows what may go: restore it from Git")
        raise ConfigProblems([problem])
    problems = [*_dropped(rendered, deploy_dir, removed), *_foreign(deploy_dir, sorted(removed))]
    if problems:
        raise ConfigProblems(problems)
    if changes:
        writes = {change.path: rendered[change.path] for change in changes if change.kind != "removed"}
        replace_files(deploy_dir, writes, removed)
    return changes


def _same(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - thousands of files: strings are quicker
            return stream.read() == content
    except OSError:
        return False


def present(deploy_dir: Path) -> dict[str, Signature]:
    """Every file with what tells whether it was touched. Links are refused: they lead out of the tree."""
    if deploy_dir.is_symlink() or (deploy_dir.exists() and not deploy_dir.is_dir()):
        raise ConfigProblems([Problem("deploy", 0, 0, "is not a plain directory: move it away")])
    found: dict[str, Signature] = {}
    links: list[str] = []
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            entries = os.scandir(f"{deploy_dir}/{below}")
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{below}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found[below + entry.name] = (status.st_size, status.st_mtime_ns, status.st_ino)
                else:
                    links.append(below + entry.name)
    if links:
        raise ConfigProblems(
            [Problem(f"deploy/{path}", 0, 0, "is not a plain file: move it out of deploy/") for path in links]
        )
    return found


def _foreign(deploy_dir: Path, removed: list[str]) -> list[Problem]:
    """Only what carries our mark is ours to delete."""
    return [
        Problem(f"deploy/{path}", 0, 0, "was not generated: move it out of deploy/")
        for path in removed
        if GENERATED.encode() not in (deploy_dir / path).read_bytes()[:4096]
    ]


def _dropped(rendered: Mapping[str, bytes], deploy_dir: Path, removed: Set[str]) -> list[Problem]:
    """What the index knows, and what it lost (in a merge that went wrong) while the files are still there."""
    after = _entries(rendered.get("index.json", b"{}"))
    before = _built(deploy_dir, removed) | _entries(_read(deploy_dir / "index.json"))
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


def _built(deploy_dir: Path, removed: Set[str]) -> dict[str, bool]:
    """As `_entries`, by the Terraform inputs that would go."""
    found = {}
    for path in removed:
        if inputs := _INPUTS.fullmatch(path):
            region, cluster = inputs.groups()
            what = f"cluster {region}/{cluster}" if cluster else f"region {region}"
            found[what] = b'"delete": true' in (deploy_dir / path).read_bytes()
    return found


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
