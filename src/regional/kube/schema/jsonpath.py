"""The simple JSONPath of CRDs: fields, quoted fields, indexes, `[*]` and `[?(@.type=="Ready")]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.?(?P<field>[A-Za-z0-9_\-]+(?:\\\.[A-Za-z0-9_\-]+)*)      # .name, with \. for a dot inside a name
      | \[['"](?P<quoted>[^'"]+)['"]\]                             # ['name']
      | \[(?P<index>-?\d+)\]                                       # [0]
      | (?P<all>\[\*\]|\.\*)                                       # [*]
      | \[\?\(@\.(?P<key>[\w.\-]+)\s*==\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def parse(path: str) -> tuple[tuple[str, Any], ...] | None:
    """The steps of a path, or None if it is none of ours."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[tuple[str, Any]] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or found.end() == at:
            return None
        at = found.end()
        if found["field"] is not None:
            steps.append(("field", found["field"].replace("\\.", ".")))
        elif found["quoted"] is not None:
            steps.append(("field", found["quoted"].replace("\\.", ".")))
        elif found["index"] is not None:
            steps.append(("index", int(found["index"])))
        elif found["all"] is not None:
            steps.append(("all", None))
        else:
            steps.append(("filter", (found["key"], found["value"].strip("\"'"))))
    return tuple(steps)


def matches(value: Any, path: str) -> Iterator[Any]:
    """Every value the path leads to."""
    steps = parse(path)
    return _walk(value, steps) if steps else iter(())


def first_match(value: Any, path: str) -> Any:
    return next(matches(value, path), None)


def _walk(value: Any, steps: tuple[tuple[str, Any], ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    (kind, detail), rest = steps[0], steps[1:]
    for item in _step(value, kind, detail):
        yield from _walk(item, rest)


def _step(value: Any, kind: str, detail: Any) -> Iterator[Any]:
    if kind == "field" and isinstance(value, dict):
        if detail in value:
            yield value[detail]
    elif kind == "index" and isinstance(value, list):
        if -len(value) <= detail < len(value):
            yield value[detail]
    elif kind == "all" and isinstance(value, (list, dict)):
        yield from value if isinstance(value, list) else value.values()
    elif kind == "filter" and isinstance(value, list):
        key, wanted = detail
        for item in value:
            found = item
            for step in key.split("."):
                found = found.get(step) if isinstance(found, dict) else None
            if found is not None and (str(found).lower() if isinstance(found, bool) else str(found)) == wanted:
                yield item
