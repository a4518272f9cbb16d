"""YAML written so that Go and Python read the same thing, and the same value always gives the same bytes.

Go's YAML 1.1 takes plain `y`, `n`, `1234e56` and `0o14` for booleans and numbers where PyYAML sees strings and leaves
them unquoted; a pin of digits and one `e` would reach Argo CD as a number. Such strings are quoted here.

PyYAML decides how a scalar is written; the lines around it are ours, because its emitter costs thirty microseconds a
value and hundreds of regions have a hundred thousand values, nearly all of them seen before.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import yaml

# The last: commit hashes, all of them alike, so that a diff of pins is a diff of pins.
_QUOTED = re.compile(r"[yYnN]|[-+.]?[0-9][-+0-9a-fA-FxXoObB_.:]*|[0-9a-f]{40}")
# What PyYAML would leave plain as well; it is asked about everything else.
_PLAIN = re.compile(r"[A-Za-z]([A-Za-z0-9_./-]|:(?=[A-Za-z0-9_./-]))*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})
_BREAK = re.compile("[\n\r\x85\u2028\u2029]")


class _Dumper(yaml.CSafeDumper):
    pass


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # A text with line breaks is escaped into one line: block and folded forms depend on where they stand.
    style = '"' if _BREAK.search(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """Block style, keys in their order, list items not indented under their key, lines of any length."""
    out: list[str] = []
    if isinstance(value, dict) and value:
        _mapping(value, "", "", out)
    elif isinstance(value, list) and value:
        _list(value, "", "", out)
    else:
        out.append(f"{_scalar(value)}\n")
    return "".join(out)


def _mapping(value: dict[str, Any], first: str, indent: str, out: list[str]) -> None:
    """`first` begins the first line (a list item's dashes), `indent` all others."""
    start = first
    for key, child in value.items():
        head = f"{start}{_string(key)}:"
        if type(child) is str:
            out.append(f"{head} {_string(child)}\n")
        elif isinstance(child, dict) and child:
            out.append(f"{head}\n")
            _mapping(child, f"{indent}  ", f"{indent}  ", out)
        elif isinstance(child, list) and child:
            out.append(f"{head}\n")
            _list(child, indent, indent, out)
        else:
            out.append(f"{head} {_scalar(child)}\n")
        start = indent


def _list(value: list[Any], first: str, indent: str, out: list[str]) -> None:
    start = first
    for child in value:
        if isinstance(child, dict) and child:
            _mapping(child, f"{start}- ", f"{indent}  ", out)
        elif isinstance(child, list) and child:
            _list(child, f"{start}- ", f"{indent}  ", out)
        else:
            out.append(f"{start}- {_scalar(child)}\n")
        start = indent


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _written(value)


@functools.lru_cache(maxsize=1 << 16)
def _string(value: str) -> str:
    if _QUOTED.fullmatch(value):
        return f"'{value}'"
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _written(value)


def _written(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=1 << 30)
    return text.removesuffix("\n...\n").removesuffix("\n")
