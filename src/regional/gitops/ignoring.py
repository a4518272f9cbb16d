"""`ignoreDifferences`: which fields of which objects do not count, named by JSON pointers or by who manages them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from regional.gitops.manifests import ObjectKey
from regional.gitops.matching import glob_match
from regional.kube.objects import Obj, copied

_ABSENT: Any = object()


def ignore_problem(ignore: Sequence[Obj]) -> str:
    """What would otherwise be ignored itself, without a word."""
    if any(rule.get("jqPathExpressions") for rule in ignore):
        return "ignoreDifferences: jqPathExpressions are not supported; use jsonPointers or managedFieldsManagers"
    return ""


def rules_for(ignore: Sequence[Obj], key: ObjectKey) -> list[Obj]:
    """Group and kind are globs, as in Argo CD."""
    return [
        rule
        for rule in ignore
        if glob_match(rule.get("group") or "", key.group)
        and glob_match(rule.get("kind") or "", key.kind)
        and (rule.get("name") or key.name) == key.name
        and (rule.get("namespace") or key.namespace) == key.namespace
    ]


def managers_of(rules: Iterable[Obj]) -> set[str]:
    return {manager for rule in rules for manager in rule.get("managedFieldsManagers") or []}


def without_ignored(obj: Obj, rules: Sequence[Obj], managed: Sequence[Obj]) -> Obj:
    """`managed` are the live object's managedFields: what an ignored manager owns there does not count here."""
    if not rules:
        return obj
    trimmed = copied(obj)
    for rule in rules:
        for pointer in rule.get("jsonPointers") or []:
            set_pointer(trimmed, pointer, _ABSENT)
    managers = managers_of(rules)
    for entry in managed:
        if entry.get("manager") in managers:
            _drop_owned(trimmed, entry.get("fieldsV1") or {})
    return trimmed


def with_live_values(target: Obj, live: Obj | None, ignore: Sequence[Obj]) -> Obj:
    """RespectIgnoreDifferences: what does not count is applied as it is, so that a sync neither sets nor removes it."""
    rules = rules_for(ignore, ObjectKey.of(target))
    pointers = [pointer for rule in rules for pointer in rule.get("jsonPointers") or []]
    if not pointers or live is None:
        return target
    merged = copied(target)
    for pointer in pointers:
        set_pointer(merged, pointer, _at(live, _parts(pointer)))
    return merged


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]] or [""]


def _at(place: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if isinstance(place, dict) and part in place:
            place = place[part]
        elif isinstance(place, list) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            return _ABSENT
    return place


def set_pointer(obj: Obj, pointer: str, value: Any) -> None:
    """Put a value where a pointer leads, or take away what is there; a way that does not exist is not made."""
    *way, last = _parts(pointer)
    place = _at(obj, way)
    if isinstance(place, dict):
        if value is _ABSENT:
            place.pop(last, None)
        else:
            place[last] = value
    elif isinstance(place, list) and last.isdigit() and int(last) < len(place):
        if value is _ABSENT:
            del place[int(last)]
        else:
            place[int(last)] = value


def _drop_owned(place: Any, fields: Obj) -> None:
    """managedFields' tree: `f:name` is a field, `k:{…}` a list's item by its keys, `v:…` one by its value."""
    for mark, below in fields.items():
        kind, _, name = mark.partition(":")
        if kind == "f" and isinstance(place, dict) and name in place:
            if not below or below == {".": {}}:
                del place[name]
            else:
                _drop_owned(place[name], below)
        elif kind == "k" and isinstance(place, list):
            wanted = json.loads(name)
            for item in place:
                if isinstance(item, dict) and wanted.items() <= item.items():
                    _drop_owned(item, {mark: inner for mark, inner in below.items() if mark != "."})
        elif kind == "v" and isinstance(place, list):
            place[:] = [item for item in place if item != json.loads(name)]
