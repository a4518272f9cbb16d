"""What a change does to clusters, object by object, and which clusters it does the same to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from regional.gitops.hazards import Problem, refused, warning
from regional.gitops.manifests import ObjectKey
from regional.gitops.preview import ClusterPreview, Previewed
from regional.kube.objects import Obj
from regional.kube.schema.kinds import BUILTINS

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_FIXED = {(kind.group, kind.kind): kind.immutable for kind in BUILTINS if kind.immutable}
_WITH_PODS = (("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"))


class ObjectChange(msgspec.Struct, frozen=True):
    application: str
    kind: str  # added, removed, changed
    key: ObjectKey
    diff: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.key}{f' ({self.note})' if self.note else ''}"


class ClusterChange(msgspec.Struct, frozen=True):
    """What happens to one cluster; equal for all clusters that it happens to alike."""

    applications: tuple[tuple[str, str], ...]  # (name, added | removed)
    objects: tuple[ObjectChange, ...]
    problems: tuple[Problem, ...]

    @property
    def empty(self) -> bool:
        return not self.applications and not self.objects and not self.problems


class Group(msgspec.Struct):
    change: ClusterChange
    clusters: list[str]


def compare(before: Sequence[ClusterPreview], after: Sequence[ClusterPreview]) -> list[Group]:
    """Groups of clusters with the same change, the largest first; clusters without one are left out."""
    old = {_identity(one): one for one in before}
    new = {_identity(one): one for one in after}
    groups: dict[ClusterChange, list[str]] = {}
    for key in dict.fromkeys([*old, *new]):
        change = _change(old.get(key), new.get(key))
        if not change.empty:
            groups.setdefault(change, []).append((new.get(key) or old[key]).cluster.title)
    return sorted((Group(c, titles) for c, titles in groups.items()), key=lambda group: -len(group.clusters))


def _identity(one: ClusterPreview) -> tuple[str, str]:
    return one.cluster.region, one.cluster.identity.cluster_name


def _change(old: ClusterPreview | None, new: ClusterPreview | None) -> ClusterChange:
    before = {app.name: app for app in old.applications} if old else {}
    after = {app.name: app for app in new.applications} if new else {}
    applications = [(name, REMOVED) for name in before if name not in after]
    applications += [(name, ADDED) for name in after if name not in before]
    objects: list[ObjectChange] = []
    for name in dict.fromkeys([*before, *after]):
        objects += _objects(name, before.get(name), after.get(name))
    return ClusterChange(tuple(applications), tuple(objects), tuple(_dangers(old, new, before, after)))


def _dangers(
    old: ClusterPreview | None, new: ClusterPreview | None, before: dict[str, Previewed], after: dict[str, Previewed]
) -> Iterable[Problem]:
    """New problems, and what the change destroys."""
    if new is None:
        yield warning("the cluster is no longer declared: its Applications stay on it, and follow nothing")
        return
    known = set(old.problems) if old else set()
    yield from (problem for problem in new.problems if problem not in known)
    for name in before:
        if name not in after:
            yield warning(f"Application {name} is removed, and with it {len(before[name].objects)} objects")
        elif before[name].objects and not after[name].objects and not new.refused:
            yield refused(f"Application {name} loses all its objects: auto-sync refuses to wipe it out")


def _objects(name: str, before: Previewed | None, after: Previewed | None) -> Iterable[ObjectChange]:
    old = before.objects if before else {}
    new = after.objects if after else {}
    for key in sorted({*old, *new}):
        if key not in new:
            yield ObjectChange(name, REMOVED, key)
        elif key not in old:
            yield ObjectChange(name, ADDED, key)
        elif old[key] is not new[key] and old[key] != new[key]:
            yield ObjectChange(
                name, CHANGED, key, _diff(_text(old[key]), _text(new[key])), _note(key, old[key], new[key])
            )


def _note(key: ObjectKey, old: Obj, new: Obj) -> str:
    """Fields that the API lets nobody change: the sync would fail."""
    for path in _FIXED.get((key.group, key.kind), ()):
        if _at(old, path) != _at(new, path):
            return f"{path} cannot be changed in place"
    if (key.group, key.kind) in _WITH_PODS and _at(old, "spec.template") != _at(new, "spec.template"):
        return "its pods roll"
    return ""


def _at(obj: Obj, path: str) -> Any:
    found: Any = obj
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _text(obj: Obj) -> str:
    return yaml.dump(obj, Dumper=yaml.CSafeDumper, sort_keys=True, default_flow_style=False, width=10_000)


@lru_cache(maxsize=8192)
def _diff(old: str, new: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    return tuple(line for line in lines if not line.startswith(("---", "+++")))
