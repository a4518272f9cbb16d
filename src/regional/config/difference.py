"""What a change of config.yaml does to regions: effective values before and after, regions that change alike together.

Compared are the results of inheritance, not the text, so that one line in `defaults` shows as what it does everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from regional.config.model import Configuration, Region
from regional.config.yamltext import dump

_ABSENT = object()
Flat = dict[str, Any]


class Edit(msgspec.Struct, frozen=True, order=True):
    """One effective value. Before and after are as they would be written, "" for not there."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        if not self.before:
            return f"+ {self.path}: {self.after}"
        if not self.after:
            return f"- {self.path}: {self.before}"
        return f"~ {self.path}: {self.before} → {self.after}"


class Group(msgspec.Struct, frozen=True):
    regions: list[str]
    edits: list[Edit]


class Difference(msgspec.Struct, frozen=True):
    added: list[str]
    removed: list[str]
    groups: list[Group]  # most regions first
    unchanged: int


def difference(before: Configuration, after: Configuration) -> Difference:
    old = {region.key: region for region in before.regions}
    new = {region.key: region for region in after.regions}
    groups: dict[tuple[Edit, ...], list[str]] = {}
    unchanged = 0
    for key in sorted(old.keys() & new.keys()):
        if edits := _edits(old[key], new[key]):
            groups.setdefault(tuple(edits), []).append(key)
        else:
            unchanged += 1
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1]))
    return Difference(
        added=sorted(new.keys() - old.keys()),
        removed=sorted(old.keys() - new.keys()),
        groups=[Group(keys, list(edits)) for edits, keys in ranked],
        unchanged=unchanged,
    )


def _edits(old: Region, new: Region) -> list[Edit]:
    if old == new:
        return []
    before, after = _flat_region(old), _flat_region(new)
    edits = [edit for path, edit in _compared(before, after, new.name).items()]
    own = {cluster.cluster_id: _flat_cluster(cluster) for cluster in old.management_clusters}
    now = {cluster.cluster_id: _flat_cluster(cluster) for cluster in new.management_clusters}
    said = set(edits)
    for name in sorted(own.keys() | now.keys()):
        shown = _nameless(name, new.name)
        if name not in now or name not in own:
            edits.append(Edit(f"management_clusters.{shown}", "declared", "") if name in own else _declared(shown))
            continue
        # A cluster inherits its region's variables: the same edit is said once, for the region.
        edits += [
            msgspec.structs.replace(edit, path=f"management_clusters.{shown}.{edit.path}")
            for edit in _compared(own[name], now[name], new.name).values()
            if edit not in said
        ]
    return edits


def _declared(name: str) -> Edit:
    return Edit(f"management_clusters.{name}", "", "declared")


def _compared(before: Flat, after: Flat, alias: str) -> dict[str, Edit]:
    found = {}
    for path in [*before, *(path for path in after if path not in before)]:
        old, new = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if old != new or type(old) is not type(new):
            found[path] = Edit(path, _written(old, alias), _written(new, alias))
    return found


def _written(value: Any, alias: str) -> str:
    """The region's own name is written as the template it most likely came from, so that alike changes look alike."""
    if value is _ABSENT:
        return ""
    if isinstance(value, str):
        value = _nameless(value, alias)
    return dump(value).strip() if not isinstance(value, list) else msgspec.json.encode(value).decode()


def _nameless(text: str, alias: str) -> str:
    return text.replace(alias, "{{ region_alias }}") if len(alias) > 3 else text


def _flat_region(region: Region) -> Flat:
    declared = msgspec.to_builtins(region)
    del declared["management_clusters"]
    return dict(_leaves(declared))


def _flat_cluster(cluster: Any) -> Flat:
    return dict(_leaves(msgspec.to_builtins(cluster)))


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        elif value != {}:
            yield prefix + key, value


def difference_text(found: Difference, most: int = 6) -> str:
    lines = [f"+ region {key}" for key in found.added] + [f"- region {key}" for key in found.removed]
    for group in found.groups:
        count = len(group.regions)
        listed = ", ".join(group.regions[:most]) + (f" and {count - most} more" if count > most else "")
        lines.append(f"{count} region{'s' if count > 1 else ''}: {listed}")
        lines += [f"  {edit}" for edit in group.edits]
    lines.append(f"{found.unchanged} region{'' if found.unchanged == 1 else 's'} unchanged")
    return "\n".join(lines) + "\n"
