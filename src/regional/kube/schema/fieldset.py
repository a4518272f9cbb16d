"""Sets of field paths, kept in the very shape that managedFields stores (FieldsV1 tries).

Ownership arithmetic on the stored shape needs no parsing and no printing. A node is a dict of children; `{}` is a
member without children; a member with children holds the key ".". The root is never a member, so `{}` there is empty.
"""

from __future__ import annotations

from typing import Any, TypeAlias

FieldSet: TypeAlias = dict[str, Any]

SELF = "."


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Of two sets (roots). The result may share nodes with its operands; nodes are never changed in place."""
    if not left:
        return right
    if not right:
        return left
    out = dict(left)
    for key, node in right.items():
        mine = out.get(key)
        out[key] = node if mine is None else _union_nodes(mine, node)
    return out


def _union_nodes(left: FieldSet, right: FieldSet) -> FieldSet:
    if left is right or not (left or right):
        return left
    merged = union(left, right)
    if is_member(left) or is_member(right):
        merged = dict(merged)
        merged[SELF] = {}
    return merged


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of left that are not members of right."""
    if not left or not right:
        return left
    out: FieldSet = {}
    for key, node in left.items():
        other = right.get(key)
        if other is None:
            out[key] = node
        elif key != SELF and (node or other):
            rest = _difference_nodes(node, other)
            if rest is not None:
                out[key] = rest
    return out


def _difference_nodes(left: FieldSet, right: FieldSet) -> FieldSet | None:
    member = is_member(left) and not is_member(right)
    children = {key: node for key, node in left.items() if key != SELF}
    rest = difference(children, {key: node for key, node in right.items() if key != SELF}) if children else {}
    if not rest:
        return {} if member else None
    return {SELF: {}, **rest} if member else rest


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    out: FieldSet = {}
    for key, node in left.items():
        other = right.get(key)
        if other is None or key == SELF:
            continue
        member = is_member(node) and is_member(other)
        below = intersection(node, other) if node and other else {}
        if member:
            out[key] = {SELF: {}, **below} if below else {}
        elif below:
            out[key] = below
    return out


def members(node: FieldSet, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every path of the set, in the order conflicts are listed: level by level within each branch."""
    keys = sorted(key for key in node if key != SELF)
    found = [(*prefix, key) for key in keys if is_member(node[key])]
    for key in keys:
        found.extend(members(node[key], (*prefix, key)))
    return found


def ordered(node: FieldSet) -> FieldSet:
    """The same set with its keys sorted, as clients see it."""
    return {key: ordered(below) if (below := node[key]) else below for key in sorted(node)}
