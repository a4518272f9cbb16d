"""The one law of inheritance: mappings merge key by key, everything else (lists, scalars, null) replaces.

A fold from the outermost level inwards, so a level that puts a scalar over a mapping wipes it for good: what a later
level adds there starts from nothing. The result shares its leaves with the levels, hence still knows their lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from regional.config.source import Node


def merge(under: Node | None, over: Node | None) -> Node | None:
    if over is None:
        return under
    if under is None:
        return over
    if not (isinstance(under.value, dict) and isinstance(over.value, dict)):
        return over
    entries = dict(under.value)
    for key, child in over.value.items():
        below = entries.get(key)
        entries[key] = child if below is None else merge(below, child)
    return Node(entries, over.line, over.column, {**under.keys, **over.keys})


def merge_all(levels: Iterable[Node | None]) -> Node | None:
    result: Node | None = None
    for level in levels:
        result = merge(result, level)
    return result
