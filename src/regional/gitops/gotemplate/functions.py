"""Functions of templates, typed by their parameters: the types decide where a missing value becomes an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regional.gitops.gotemplate import sprig
from regional.gitops.gotemplate.values import MISSING, StringMap, TemplateError, sprintf, text, truth, type_name

_TYPES = {
    "s": "string",
    "i": "int",
    "b": "bool",
    "m": "map[string]interface {}",
    "l": "[]interface {}",
    "a": "interface {}",
}


@dataclass(slots=True, frozen=True)
class Function:
    """`shape` has a letter per parameter (see _TYPES); a trailing `*` makes the last one variadic."""

    name: str
    shape: str
    call: Callable[..., Any]

    def __call__(self, arguments: Sequence[Any]) -> Any:
        variadic = self.shape.endswith("*")
        letters = self.shape.rstrip("*")
        fixed = len(letters) - 1 if variadic else len(letters)
        if len(arguments) < fixed or (len(arguments) > fixed and not variadic):
            want = f"at least {fixed}" if variadic else str(fixed)
            raise TemplateError(f"wrong number of args for {self.name}: want {want} got {len(arguments)}")
        kinds = letters[:fixed] + letters[-1:] * (len(arguments) - fixed)
        return self.call(*[_checked(letter, value) for letter, value in zip(kinds, arguments, strict=True)])


def _checked(letter: str, value: Any) -> Any:
    if letter == "a":
        return None if value is MISSING else value
    if value is MISSING or value is None:
        if letter in "ml" and value is None:
            return {} if letter == "m" else []
        raise TemplateError(f"invalid value; expected {_TYPES[letter]}")
    fits = {
        "s": isinstance(value, str),
        "i": isinstance(value, int) and not isinstance(value, bool),
        "b": isinstance(value, bool),
        "m": isinstance(value, dict) and not isinstance(value, StringMap),
        "l": isinstance(value, list | tuple),
    }[letter]
    if not fits:
        raise TemplateError(f"wrong type for value; expected {_TYPES[letter]}; got {type_name(value)}")
    return value


def _index(item: Any, *keys: Any) -> Any:
    if item is None:
        raise TemplateError("index of untyped nil")
    for key in keys:
        if isinstance(item, dict):
            if not isinstance(key, str):
                raise TemplateError(f"value has type {type_name(key)}; should be string")
            item = item.get(key, "" if isinstance(item, StringMap) else None)
        elif isinstance(item, list | tuple | str):
            if not isinstance(key, int) or isinstance(key, bool):
                raise TemplateError(f"cannot index slice/array with type {type_name(key)}")
            if not 0 <= key < len(item):
                raise TemplateError(f"index out of range: {key}")
            item = item[key]
        else:
            raise TemplateError(f"can't index item of type {type_name(item)}")
    return item


def _length(item: Any) -> int:
    if isinstance(item, str):
        return len(item.encode())
    if not isinstance(item, dict | list | tuple):
        raise TemplateError(f"len of type {type_name(item)}")
    return len(item)


def _basic(value: Any) -> str:
    name = type_name(value)
    if name not in ("bool", "int", "float64", "string"):
        raise TemplateError("invalid type for comparison" if value is not None else "incompatible types for comparison")
    return name


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise TemplateError("missing argument for comparison")
    for other in others:
        if first is None or other is None:
            if first is other:
                return True
            continue
        if _basic(first) != _basic(other):
            raise TemplateError("incompatible types for comparison")
        if first == other:
            return True
    return False


def _less(first: Any, second: Any) -> bool:
    if _basic(first) != _basic(second):
        raise TemplateError("incompatible types for comparison")
    if isinstance(first, bool):
        raise TemplateError("invalid type for comparison")
    return bool(first < second)


def _print(*values: Any) -> str:
    """fmt.Sprint puts a space between operands when neither is a string."""
    out = ""
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            out += " "
        out += text(value, top=False)
    return out


_TABLE: list[tuple[str, str, Callable[..., Any]]] = [
    ("and", "a*", lambda *_: None),  # these two are evaluated by the engine, which may stop early
    ("or", "a*", lambda *_: None),
    ("not", "a", lambda value: not truth(value)),
    ("index", "aa*", _index),
    ("len", "a", _length),
    ("print", "a*", _print),
    ("println", "a*", lambda *values: " ".join(text(value, top=False) for value in values) + "\n"),
    ("printf", "sa*", lambda pattern, *values: sprintf(pattern, values)),
    ("eq", "aa*", _equal),
    ("ne", "aa", lambda first, second: not _equal(first, second)),
    ("lt", "aa", _less),
    ("le", "aa", lambda first, second: _less(first, second) or _equal(first, second)),
    ("gt", "aa", lambda first, second: not _less(first, second) and not _equal(first, second)),
    ("ge", "aa", lambda first, second: not _less(first, second)),
    *sprig.TABLE,
]

FUNCTIONS = {name: Function(name, shape, call) for name, shape, call in _TABLE}
