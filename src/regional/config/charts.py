"""The values that charts read. Helm ignores a value that no chart knows: a misspelt name would be lost in silence."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from regional.config.model import Configuration, Region
from regional.config.problems import ConfigProblems, Problem, did_you_mean
from regional.config.repository import Repository
from regional.config.shape import CLUSTER_TYPES, NAME, matches
from regional.config.source import Place

SHARED = "shared"  # charts of every cluster type
_LONGEST_RELEASE = 53  # Helm's limit for the name of a release
Keys = dict[str, frozenset[str]]  # cluster type -> top-level values that its charts read


def keys_in(charts_dir: Path) -> Keys:
    """`charts_dir` is `argocd/config`. Raises ConfigProblems when a cluster type has no charts at all."""
    if problems := [
        Problem(str(charts_dir), 0, 0, f"has no directory {kind}: no chart would be deployed")
        for kind in CLUSTER_TYPES
        if not (charts_dir / kind).is_dir()
    ]:
        raise ConfigProblems(problems)
    if problems := _not_to_be_made(charts_dir):
        raise ConfigProblems(problems)
    files = {path.relative_to(charts_dir).as_posix(): path for path in sorted(charts_dir.glob("*/*/values.yaml"))}
    return _keys((path, file.read_bytes()) for path, file in files.items())


def _not_to_be_made(charts_dir: Path) -> list[Problem]:
    """Directories whose Applications Argo CD would leave out, or Helm not render: each is called like its directory."""
    names = {kind: _directories(charts_dir / kind) for kind in (*CLUSTER_TYPES, SHARED)}
    return (
        [
            Problem(str(charts_dir / kind / name), 0, 0, f"is no name for an Application: {NAME.says}")
            for kind, found in names.items()
            for name in found
            if not matches(NAME, name)
        ]
        + [
            Problem(
                str(charts_dir / kind / name), 0, 0, f"is too long a name: Helm takes {_LONGEST_RELEASE} characters"
            )
            for kind, found in names.items()
            for name in found
            if matches(NAME, name) and len(name) > _LONGEST_RELEASE
        ]
        + [
            Problem(
                str(charts_dir / kind / name),
                0,
                0,
                f"is also in {SHARED}: a {kind} would get neither of two Applications with one name",
            )
            for kind in CLUSTER_TYPES
            for name in names[kind]
            if name in names[SHARED]
        ]
    )


def _directories(folder: Path) -> list[str]:
    """Those that count: hidden ones do not."""
    return sorted(path.name for path in folder.glob("[!.]*") if path.is_dir())


def keys_at(repository: Repository, commits: Iterable[str], folder: str) -> dict[str, Keys]:
    """The same for pinned commits, out of Git; a commit that is not there reads nothing."""
    wanted = [
        (commit, path)
        for commit in sorted(set(commits))
        for path in repository.files(commit, folder)
        if path.endswith("/values.yaml") and path.count("/") == folder.count("/") + 3
    ]
    found: dict[str, list[tuple[str, bytes]]] = {}
    for (commit, path), content in repository.contents(wanted).items():
        found.setdefault(commit, []).append((path.removeprefix(f"{folder}/"), content))
    return {commit: _keys(files) for commit, files in found.items()}


def _keys(files: Iterable[tuple[str, bytes]]) -> Keys:
    keys: dict[str, set[str]] = {kind: {"global"} for kind in CLUSTER_TYPES}
    for path, content in files:
        owner = path.split("/")[0]
        try:
            loaded: Any = yaml.load(content, Loader=yaml.CSafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigProblems([Problem(path, 0, 0, f"is not YAML: {' '.join(str(error).split())}")]) from None
        for kind in CLUSTER_TYPES if owner == SHARED else (owner,):
            if kind in keys and isinstance(loaded, dict):
                keys[kind] |= set(map(str, loaded))
    return {kind: frozenset(names) for kind, names in keys.items()}


def check_values(configuration: Configuration, live: Keys, pinned: dict[str, Keys] | None) -> None:
    """A pinned cluster may also have values that only its own commit's charts read; with `pinned` None (Git was not
    asked) its values are left unchecked. A value that is only meant for a newer chart is no fault of an older pin."""
    problems = [
        problem
        for region in configuration.regions
        for kind in CLUSTER_TYPES
        for problem in _unread(configuration, region, kind, live, pinned)
    ]
    if problems:
        raise ConfigProblems(problems)


def _unread(
    configuration: Configuration, region: Region, kind: str, live: Keys, pinned: dict[str, Keys] | None
) -> list[Problem]:
    known = live[kind]
    if pin := region.config_revision.get(kind):
        if pinned is None or pin not in pinned:
            return []
        known |= pinned[pin][kind]
    # `values.global` reaches both types, though one of them may have no use for it; what is said for a type is for it.
    elsewhere = frozenset().union(*live.values())
    given = dict.fromkeys(region.values[kind], region.key)
    if kind == "management-cluster":
        for cluster in region.management_clusters:
            given |= dict.fromkeys(cluster.values, f"{region.key}/{cluster.cluster_id}")
    return [
        Problem(
            configuration.file,
            *_place(configuration, owner, kind, key),
            f"no chart of a {kind} reads the value {key}{did_you_mean(key, known)}",
        )
        for key, owner in given.items()
        if key not in known and (key not in elsewhere or _places(configuration, owner, kind, key))
    ]


def _place(configuration: Configuration, owner: str, kind: str, key: str) -> tuple[int, int]:
    places = _places(configuration, owner, kind, key) or _places(configuration, owner, "global", key)
    return places[-1] if places else (0, 0)


def _places(configuration: Configuration, owner: str, section: str, key: str) -> list[Place]:
    """Where levels, outermost first, set a value in one section of theirs."""
    found = []
    for level in configuration.levels[owner]:
        values = level.node.get("values") if level.node else None
        tree = values.get(section) if values else None
        if tree is not None and key in tree.keys:
            found.append(tree.keys[key])
    return found
