"""The string functions of CEL as Go has them (version 2 of its extension), and `indexOf` of lists, which shares it."""

from __future__ import annotations

import datetime
import re
from typing import Any

from cel_expr_python import cel

from regional.kube.schema.cel_declaring import ANYTHING, ITEMS, STRINGS, Form, function, method, overloads

_T = cel.Type
_CLAUSE = re.compile(r"%(?:\.(\d+))?(.?)", re.DOTALL)
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = {lower: upper for upper, lower in _UPPER.items()}
_TYPES = {"INT": "int", "UINT": "uint", "DOUBLE": "double", "STRING": "string", "BOOL": "bool", "BYTES": "bytes"}


def _place(text: str, place: int) -> int:
    if not 0 <= place <= len(text):
        raise ValueError(f"index out of range: {place}")
    return place


def _char(text: str, place: int) -> str:
    return text[_place(text, place) :][:1]


def _substring(text: str, start: int, end: int) -> str:
    if start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[_place(text, start) : _place(text, end)]


def _last_index(text: str, part: str, last: int) -> int:
    return text.rfind(part, 0, _place(text, last) + len(part))


def _split(text: str, separator: str, most: int) -> list[str]:
    if most == 0:
        return []
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    letters = list(text)
    return letters if most < 0 or most >= len(letters) else [*letters[: most - 1], "".join(letters[most - 1 :])]


def _quoted(text: str) -> str:
    escapes = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    escapes |= {"\\": "\\\\", '"': '\\"'}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


# --- format --------------------------------------------------------------------------------------------------------


def _format(pattern: str, values: list[Any]) -> str:
    taken = iter(enumerate(values))
    used = 0

    def clause(found: re.Match[str]) -> str:
        nonlocal used
        precision, letter = found[1], found[2]
        if letter == "%" and precision is None:
            return "%"
        index, value = next(taken, (used, None))
        if index >= len(values):
            raise ValueError(f"index {index} out of range")
        used += 1
        return _formatted(letter, value, 6 if precision is None else int(precision))

    return _CLAUSE.sub(clause, pattern)


def _formatted(letter: str, value: Any, precision: int) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    match letter:
        case "s":
            return _shown(value, inside=False)
        case "d" if number:
            return str(value)
        case "x" | "X" if number:
            return f"{value:{letter}}"
        case "x" | "X" if isinstance(value, str | bytes | bytearray):
            text = (value.encode() if isinstance(value, str) else bytes(value)).hex()
            return text.upper() if letter == "X" else text
        case "o" | "b" if number:
            return f"{value:{letter}}"
        case "b" if isinstance(value, bool):
            return str(int(value))
        case "f" if isinstance(value, float):
            return f"{value:.{precision}f}"
        case "e" if isinstance(value, float):
            digits, _, power = f"{value:e}".partition("e")  # Go's own library does not heed the precision here
            return f"{digits}×10{power.removeprefix('+').translate(_SUPERSCRIPTS)}"
        case "d" | "x" | "X" | "o" | "b" | "f" | "e":
            names = {"d": "decimal", "o": "octal", "b": "binary", "f": "fixed-point", "e": "scientific notation"}
            raise ValueError(f"error during formatting: {names.get(letter, 'hex')} clause cannot take this value")
    raise ValueError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')


def _shown(value: Any, *, inside: bool) -> str:
    """As `%s` writes it; within lists and maps texts have quotes and doubles six digits."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value) if inside else value
        case float():
            return f"{value:.6f}" if inside else _double(value)
        case bytes() | bytearray():
            return f"b{_quoted(bytes(value).decode(errors='replace'))}" if inside else bytes(value).decode()
        case list() | tuple():
            return "[" + ", ".join(_shown(item, inside=True) for item in value) + "]"
        case dict():
            shown = sorted((_shown(key, inside=True), _shown(item, inside=True)) for key, item in value.items())
            return "{" + ", ".join(f"{key}:{item}" for key, item in shown) + "}"
        case datetime.timedelta():
            text = f"{_double(value.total_seconds())}s"
            return f'duration("{text}")' if inside else text
        case datetime.datetime():
            moment = value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
            text = re.sub(r"(\.\d*?)0+Z$", r"\1Z", moment)
            return f'timestamp("{text}")' if inside else text
    return _TYPES.get(str(value), str(value))


def _double(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else re.sub(r"\.0(?=e|$)", "", repr(value))


# --- lists that look like strings ----------------------------------------------------------------------------------


def _first_item(items: list[Any], item: Any) -> int:
    return items.index(item) if item in items else -1


def _last_item(items: list[Any], item: Any) -> int:
    return max((index for index, value in enumerate(items) if value == item), default=-1)


def _of_items(run: Any) -> list[Form]:
    return [(_T.INT, [ANYTHING, item], run, True) for item in ITEMS]


def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise ValueError("no such overload")
    return separator.join(items)


def declarations() -> list[Any]:
    text, number = _T.STRING, _T.INT
    return [
        method("charAt", text, [text, number], _char),
        overloads(
            "indexOf",
            (number, [text, text], lambda it, part: it.find(part), True),
            (number, [text, text, number], lambda it, part, start: it.find(part, _place(it, start)), True),
            *_of_items(_first_item),
        ),
        overloads(
            "lastIndexOf",
            (number, [text, text], lambda it, part: it.rfind(part), True),
            (number, [text, text, number], _last_index, True),
            *_of_items(_last_item),
        ),
        overloads("join", (text, [STRINGS], _join, True), (text, [STRINGS, text], _join, True)),
        method("lowerAscii", text, [text], lambda it: it.translate(_LOWER)),
        method("upperAscii", text, [text], lambda it: it.translate(_UPPER)),
        overloads(
            "replace",
            (text, [text, text, text], lambda it, old, new: it.replace(old, new), True),
            (text, [text, text, text, number], lambda it, old, new, most: it.replace(old, new, most), True),
        ),
        overloads(
            "split",
            (STRINGS, [text, text], lambda it, separator: _split(it, separator, -1), True),
            (STRINGS, [text, text, number], _split, True),
        ),
        overloads(
            "substring",
            (text, [text, number], lambda it, start: _substring(it, start, max(start, len(it))), True),
            (text, [text, number, number], _substring, True),
        ),
        method("trim", text, [text], str.strip),
        method("format", text, [text, ANYTHING], _format),
        function("strings.quote", text, [text], _quoted),
    ]
