"""Values seen through their types: which fields they have, how two differ, merge and shrink.

The four operations behind server-side apply. Each walks a value and its `Type` together; list items are addressed by
their keys, as the API addresses them, never by position (unless the list is atomic and so has no addressable items).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from regional.kube.schema.fieldset import SELF, FieldSet, is_member
from regional.kube.schema.types import ANY, LIST, MAP, SCALAR, UNTYPED, Type

_MISSING = object()


def clone(value: Any) -> Any:
    """A deep copy of JSON."""
    if isinstance(value, dict):
        return {key: clone(item) if isinstance(item, (dict, list)) else item for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def shape_of(node: Type, value: Any) -> int:
    """How to walk this value: SCALAR stands for every leaf, also atomic lists and maps, nulls and mismatches."""
    shape = node.shape
    if shape == ANY:
        return MAP if isinstance(value, dict) else SCALAR
    if node.atomic or shape == SCALAR:
        return SCALAR
    if shape == MAP:
        return MAP if isinstance(value, dict) else SCALAR
    return LIST if isinstance(value, list) else SCALAR


def child_type(node: Type, name: str) -> Type:
    """The type of a map entry; entries the type does not know are typed by their value."""
    if node.shape == ANY:
        return UNTYPED
    return node.child(name) or UNTYPED


# --- addresses of list items ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _string_key(key: str, value: str) -> str:
    return f"k:{{{as_json(key)}:{as_json(value)}}}"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def item_address(node: Type, item: Any) -> str | None:
    """`k:{"name":"x"}` or `v:"x"`; None when the item lacks all its keys."""
    if not node.keys:
        return None if isinstance(item, (dict, list)) or item is None else "v:" + as_json(item)
    if not isinstance(item, dict):
        return None
    if len(node.keys) == 1:
        value = item.get(node.keys[0])
        if type(value) is str:
            return _string_key(node.keys[0], value)
    found = {}
    for key in node.keys:
        value = item.get(key)
        if value is None:
            value = node.key_defaults.get(key)
        if value is not None:
            found[key] = value
    return "k:" + as_json(found) if found else None


def _addressed(node: Type, items: list[Any]) -> dict[str, Any]:
    """Items by address. Of items with the same address the first counts; items without one are passed over."""
    found: dict[str, Any] = {}
    for item in items:
        address = item_address(node, item)
        if address is not None:
            found.setdefault(address, item)
    return found


@lru_cache(maxsize=4096)
def address_text(address: str) -> str:
    """One path element as error messages print it: `.spec`, `[type="A"]`, `[="x"]`."""
    prefix, rest = address[:2], address[2:]
    if prefix == "f:":
        return "." + rest
    if prefix == "k:":
        keys = json.loads(rest)
        return "[" + ",".join(f"{key}={as_json(value)}" for key, value in keys.items()) + "]"
    if prefix == "v:":
        return f"[={rest}]"
    return f"[{rest}]"


# --- the fields of a value -----------------------------------------------------------------------------------------


def owned_fields(value: Any, node: Type) -> FieldSet:
    """The paths that applying this value owns: leaves, map entries and list items, but not structs as such."""
    out: FieldSet = {}
    if node.shape == ANY:
        for name, item in value.items():
            out["f:" + name] = _owned_entry(item, UNTYPED, named=False)
        return out
    for name, item in value.items():
        field = node.fields.get(name)
        if not isinstance(item, (dict, list)):
            out["f:" + name] = {}
        elif field is not None:
            entry = _owned_entry(item, field, named=True)
            if entry is not None:
                out["f:" + name] = entry
        else:
            out["f:" + name] = _owned_entry(item, node.element or UNTYPED, named=False)
    return out


def _owned_entry(item: Any, node: Type, *, named: bool) -> FieldSet | None:
    """The set below one address; None when nothing there is owned."""
    shape = shape_of(node, item)
    if shape == SCALAR:
        return {}
    below = owned_fields(item, node) if shape == MAP else _owned_items(item, node)
    if not named:
        if below:
            below[SELF] = {}
        return below
    if not below:
        # An empty struct is owned itself; an empty list leaves nothing to own.
        return {} if shape == MAP and not item else None
    return below


def _owned_items(items: list[Any], node: Type) -> FieldSet:
    out: FieldSet = {}
    for address, item in _addressed(node, items).items():
        out[address] = _owned_entry(item, node.element or UNTYPED, named=False)
    return out


def all_fields(value: Any, node: Type) -> FieldSet:
    """The node of a value that is wholly new or wholly gone: itself and everything below it are members."""
    shape = shape_of(node, value)
    if shape == SCALAR or not value:
        return {}
    out: FieldSet = {SELF: {}}
    if shape == MAP:
        for name, item in value.items():
            out["f:" + name] = all_fields(item, child_type(node, name)) if isinstance(item, (dict, list)) else {}
    else:
        element = node.element or UNTYPED
        for address, item in _addressed(node, value).items():
            out[address] = all_fields(item, element)
    return out


# --- comparing -----------------------------------------------------------------------------------------------------


class Difference:
    """What changed between two values, as field sets."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: FieldSet = {}
        self.removed: FieldSet = {}
        self.modified: FieldSet = {}

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.modified)


def compare(old: Any, new: Any, node: Type) -> Difference:
    out = Difference()
    _compare(old, new, node, out.added, out.removed, out.modified)
    return out


def _compare(old: Any, new: Any, node: Type, added: FieldSet, removed: FieldSet, modified: FieldSet) -> None:
    """Compare two maps or two lists below one address; the sets receive what is found."""
    if isinstance(old, list) or isinstance(new, list):
        element = node.element or UNTYPED
        before = _addressed(node, old or [])
        after = _addressed(node, new or [])
        for address, item in after.items():
            earlier = before.get(address, _MISSING)
            _compare_entry(address, earlier, item, element, added, removed, modified)
        for address, item in before.items():
            if address not in after:
                removed[address] = all_fields(item, element)
        return
    old, new = old or {}, new or {}
    for name, item in new.items():
        earlier = old.get(name, _MISSING)
        if earlier is _MISSING and not isinstance(item, (dict, list)):
            added["f:" + name] = {}
        elif earlier is not item:
            _compare_entry("f:" + name, earlier, item, child_type(node, name), added, removed, modified)
    for name, item in old.items():
        if name not in new:
            removed["f:" + name] = all_fields(item, child_type(node, name))


def _compare_entry(
    address: str, old: Any, new: Any, node: Type, added: FieldSet, removed: FieldSet, modified: FieldSet
) -> None:
    if old is _MISSING:
        added[address] = all_fields(new, node)
        return
    if old == new and type(old) is type(new):
        return
    # A null compares as an empty container of the other side's shape.
    shape = shape_of(node, new if old is None else old)
    other = shape_of(node, old if new is None else new)
    if shape == SCALAR or other != shape or not (old or new):
        if old != new or isinstance(old, bool) != isinstance(new, bool):
            modified[address] = {}
            _compare_replaced(address, old, new, node, added, removed)
        return
    below: tuple[FieldSet, FieldSet, FieldSet] = ({}, {}, {})
    _compare(old, new, node, *below)
    for target, found in zip((added, removed, modified), below, strict=True):
        if found:
            target[address] = found


def _compare_replaced(address: str, old: Any, new: Any, node: Type, added: FieldSet, removed: FieldSet) -> None:
    """A value of another shape took the place of this one: what was inside is gone, what is inside is new."""
    for value, target in ((old, removed), (new, added)):
        if shape_of(node, value) != SCALAR:
            below = {key: child for key, child in all_fields(value, node).items() if key != SELF}
            if below:
                target[address] = below


# --- merging -------------------------------------------------------------------------------------------------------


def merge(live: Any, config: Any, node: Type) -> Any:
    """Live with config laid over it: config wins, lists merge by key. Shares nothing with its operands."""
    if config is None and node.shape in (MAP, LIST) and not node.atomic:
        return clone(live)  # to say null of something that merges is to say nothing
    shape = shape_of(node, config)
    if shape == SCALAR or shape_of(node, live) != shape:
        return clone(config)
    if shape == LIST:
        return _merge_items(live, config, node)
    out = {}
    for name, item in live.items():
        if name in config:
            wanted = config[name]
            leaf = wanted is not None and not isinstance(wanted, (dict, list))
            out[name] = wanted if leaf else merge(item, wanted, child_type(node, name))
        else:
            out[name] = clone(item)
    for name, item in config.items():
        if name not in live:
            out[name] = clone(item)
    return out


def _merge_items(live: list[Any], config: list[Any], node: Type) -> list[Any]:
    """Config's items in config's order; items only in live keep their place between the shared ones."""
    element = node.element or UNTYPED
    before = [(item_address(node, item), item) for item in live]
    after = [(item_address(node, item), item) for item in config]
    partners = _addressed(node, live)
    wanted = {address for address, _ in after}
    shared = [address for address, _ in after if address in partners]
    taken: set[str | None] = set()
    out: list[Any] = []
    left = right = at = 0
    while left < len(before) or right < len(after):
        if left < len(before):
            address, item = before[left]
            if address not in wanted:
                out.append(clone(item))
                left += 1
                continue
            expected = shared[at] if at < len(shared) else None
            # A shared item that config puts elsewhere is placed when config's own turn comes.
            if address in taken or (right < len(after) and address != expected):
                left += 1
                continue
        address, item = after[right]
        partner = partners.get(address) if address is not None else None
        out.append(clone(item) if partner is None else merge(partner, item, element))
        taken.add(address)
        if at < len(shared) and shared[at] == address:
            at += 1
        right += 1
    return out


# --- removing ------------------------------------------------------------------------------------------------------


def remove_fields(value: Any, gone: FieldSet, kept: FieldSet, node: Type) -> None:
    """Take the paths of `gone` out of value, in place, with the containers this empties unless `kept` has them."""
    if isinstance(value, list):
        _remove_items(value, gone, kept, node)
        return
    for address, below in gone.items():
        name = address[2:]
        if address == SELF or not isinstance(value, dict) or name not in value:
            continue
        keep = kept.get(address)
        named = name in node.fields
        # A struct goes with its owner only if nobody owns anything inside it; a map entry goes whole.
        goes = is_member(below) and (keep is None or not named)
        if not goes and _empties(value[name], below, keep or {}, child_type(node, name)):
            goes = keep is None or not is_member(keep)
        if goes:
            del value[name]


def _remove_items(items: list[Any], gone: FieldSet, kept: FieldSet, node: Type) -> None:
    element = node.element or UNTYPED
    rest = []
    for item in items:
        address = item_address(node, item)
        below = gone.get(address) if address is not None else None
        if below is not None and address is not None:
            if is_member(below):
                continue
            _empties(item, below, kept.get(address) or {}, element)
        rest.append(item)
    items[:] = rest


def _empties(value: Any, gone: FieldSet, kept: FieldSet, node: Type) -> bool:
    """Remove below value; True if that left it empty."""
    if not isinstance(value, (dict, list)) or not value or shape_of(node, value) == SCALAR:
        return False
    remove_fields(value, gone, kept, node)
    # Empty lists are nobody's, so they do not keep a struct alive.
    return not value or (isinstance(value, dict) and not owned_fields(value, node))
