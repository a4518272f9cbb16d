"""Strategic merge patch: a merge patch that knows which lists merge by key, with directives for the rest.

Only built-in kinds have it, because it reads patch strategies that custom schemas do not declare.
"""

from __future__ import annotations

from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.errors import PatchError
from regional.kube.schema.typed import clone
from regional.kube.schema.types import LIST, MAP, UNTYPED, Schema, Type

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_patch(doc: Obj, patch: Any, schema: Schema) -> Obj:
    """The document with the patch merged in, directives obeyed and removed."""
    if not isinstance(patch, dict):
        raise _bad("expected a patch object")
    return _merge_map(doc, patch, schema.root)


def _bad(message: str) -> PatchError:
    return PatchError(400, "BadRequest", f"invalid strategic merge patch: {message}")


def _is_directive(key: str) -> bool:
    # Not every "$" is one: CRD schemas have fields named $ref and $schema.
    return key in (_PATCH, _RETAIN) or key.startswith((_DELETE_PRIMITIVES, _ORDER))


def _child(node: Type, name: str) -> Type:
    if node.shape != MAP:
        return UNTYPED
    return node.child(name) or UNTYPED


def _merge_map(doc: Any, patch: Obj, node: Type) -> Obj:
    """Merge one object."""
    directive = patch.get(_PATCH)
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: _stripped(value) for key, value in patch.items() if not _is_directive(key) and value is not None}
    if directive not in (None, "merge"):
        raise _bad(f"unknown $patch directive {directive!r}")
    result: Obj = {key: clone(value) for key, value in doc.items()} if isinstance(doc, dict) else {}
    retain = patch.get(_RETAIN)
    if retain is not None:
        if not isinstance(retain, list):
            raise _bad("$retainKeys must be a list")
        result = {key: value for key, value in result.items() if key in retain}
    for key, value in patch.items():
        if not _is_directive(key):
            _merge_entry(result, key, value, _child(node, key))
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            _delete_primitives(result, key.removeprefix(_DELETE_PRIMITIVES), value)
    for key, value in patch.items():
        if key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            _order(result, doc, name, value, _child(node, name), patch.get(name))
    return result


def _merge_entry(result: Obj, key: str, value: Any, node: Type) -> None:
    before = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict) and isinstance(before, dict):
        result[key] = _merge_map(before, value, node)
    elif isinstance(value, list) and isinstance(before, list):
        result[key] = _merge_list(before, value, node)
    elif isinstance(value, dict) and _PATCH in value:
        result.pop(key, None)  # there is nothing to delete from, or to replace
    else:
        result[key] = _stripped(value)


def _merge_list(doc: list[Any], patch: list[Any], node: Type) -> list[Any]:
    if node.shape != LIST or not node.merge or any(_is_replace(item) for item in patch):
        return [_stripped(item) for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    items = [clone(item) for item in doc]
    if not node.merge_key:
        named, merged = patch, _without_repeats([*items, *(clone(item) for item in patch)])
    else:
        named = [item for item in patch if not (isinstance(item, dict) and item.get(_PATCH) == "delete")]
        for change in patch:
            items = _without_deleted(items, change, node.merge_key)
        merged = list(items)
        for change in named:
            _merge_item(merged, change, node)
    return _arranged(merged, named, items, node)


def _is_replace(item: Any) -> bool:
    """An item `{"$patch": "replace"}` says that the patch's list replaces the whole list."""
    return isinstance(item, dict) and item.get(_PATCH) == "replace"


def _without_repeats(items: list[Any]) -> list[Any]:
    return [item for index, item in enumerate(items) if item not in items[:index]]


def _without_deleted(items: list[Any], change: Any, merge_key: str) -> list[Any]:
    if not isinstance(change, dict):
        raise _bad("a list with a merge key holds objects only")
    if change.get(merge_key) is None:
        raise _bad(f"map: {change} does not contain declared merge key: {merge_key}")
    if change.get(_PATCH) != "delete":
        return items
    return [item for item in items if not _has_key(item, merge_key, change[merge_key])]


def _merge_item(items: list[Any], change: Obj, node: Type) -> None:
    """Into the first item with its key: two may have the same (a port that is served over UDP and TCP)."""
    for index, item in enumerate(items):
        if _has_key(item, node.merge_key, change[node.merge_key]):
            items[index] = _merge_map(item, change, node.element or UNTYPED)
            return
    items.append(_stripped(change))


def _has_key(item: Any, key: str, wanted: Any) -> bool:
    return isinstance(item, dict) and bool(item.get(key) == wanted)


def _delete_primitives(result: Obj, name: str, values: Any) -> None:
    current = result.get(name)
    if not isinstance(values, list):
        raise _bad(f"$deleteFromPrimitiveList/{name} must be a list")
    if isinstance(current, list):
        rest = [item for item in current if item not in values]
        if rest:
            result[name] = rest
        else:
            del result[name]


def _order(result: Obj, doc: Any, name: str, order: Any, node: Type, patched: Any) -> None:
    """Put the items that the patch's order names into that order."""
    current = result.get(name)
    if not isinstance(order, list):
        raise _bad(f"$setElementOrder/{name} must be a list")
    if not isinstance(current, list) or node.shape != LIST or not node.merge:
        return
    if isinstance(patched, list):
        named = [_identity(item, node) for item in patched if not (isinstance(item, dict) and _PATCH in item)]
        wanted = iter([_identity(item, node) for item in order])
        if not all(value in wanted for value in named):  # which goes on where it found the one before
            raise _bad(f"the order in the patch list {name} doesn't match $setElementOrder/{name}")
    earlier = doc.get(name) if isinstance(doc, dict) else None
    result[name] = _arranged(current, order, earlier if isinstance(earlier, list) else [], node)


def _arranged(items: list[Any], order: list[Any], before: list[Any], node: Type) -> list[Any]:
    """Items the patch names, in its order; the server's other items go before those they preceded, else last.

    Items with equal keys are all kept, and stay beside each other.
    """
    asked, known = _places(order, node), _places(before, node)

    def key(item: Any) -> Any:
        return _hashable(_identity(item, node))

    named = sorted((item for item in items if key(item) in asked), key=lambda item: asked[key(item)])
    others = [item for item in items if key(item) not in asked]
    others.sort(key=lambda item: known.get(key(item), len(known)))
    arranged: list[Any] = []
    while named and others:
        first, second = known.get(key(others[0])), known.get(key(named[0]))
        ahead = first is not None and second is not None and first < second
        arranged.append(others.pop(0) if ahead else named.pop(0))
    return [*arranged, *named, *others]


def _places(items: list[Any], node: Type) -> dict[Any, int]:
    """Where each key comes first."""
    places: dict[Any, int] = {}
    for index, item in enumerate(items):
        places.setdefault(_hashable(_identity(item, node)), index)
    return places


def _identity(item: Any, node: Type) -> Any:
    return item.get(node.merge_key) if node.merge_key and isinstance(item, dict) else item


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) or value is None else repr(value)


def _stripped(value: Any) -> Any:
    """A value that enters as new: without directives, and without the nulls that would only delete."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not _is_directive(key) and item is not None}
        return {key: _stripped(item) for key, item in kept.items() if not (isinstance(item, dict) and _PATCH in item)}
    if isinstance(value, list):
        return [_stripped(item) for item in value if not (isinstance(item, dict) and _PATCH in item)]
    return value
