"""The grammar of label selectors: `a=b,c!=d,e in (f,g),!h,i>5`.

Reads as the real server's parser does, word by word, so that a bad selector is refused with the same sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from regional.kube.apiserver.errors import bad_request
from regional.kube.schema.names import label_value, qualified_name
from regional.kube.schema.openapi_validation import shown

_WORD = re.compile(r"[ \t\r\n]*(==|!=|[=!()<>,]|[^ \t\r\n=!()<>,]+)")
_SYMBOLS = frozenset(("=", "==", "!=", "!", "<", ">", "(", ")", ","))
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")
_INTEGER = re.compile(r"[+-]?\d+")
_END = ""


class Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: str  # =, !=, in, notin, exists, absent, >, <
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "=" | "in":
                return value is not None and value in self.values
            case "!=" | "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        limit, number = _integer(next(iter(self.values))), _integer(value or "")
        if limit is None or number is None:
            return False
        return number > limit if self.operator == ">" else number < limit


class LabelSelector(msgspec.Struct, frozen=True):
    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_labels(text: str) -> LabelSelector:
    if not text:
        return LabelSelector()
    words = _WORD.findall(text.partition("\0")[0])  # the real scanner takes NUL for the end
    return LabelSelector(tuple(_Parser(words).parse()))


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


class _Bad(Exception):
    """Something is wrong within one requirement."""


class _Parser:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._position = 0

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (word := self._ahead()) != _END:
            if not (self._is_name(word) or word == "!"):
                raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except _Bad as bad:
                raise bad_request(f"unable to parse requirement: {bad}") from None
            separator = self._next()
            if separator == _END:
                break
            if separator != ",":
                raise bad_request(f"found '{separator}', expected: ',' or 'end of string'")
            following = self._ahead()
            if not (self._is_name(following) or following == "!"):
                raise bad_request(f"found '{following}', expected: identifier after ','")
        return found

    def _ahead(self) -> str:
        return self._words[self._position] if self._position < len(self._words) else _END

    def _next(self) -> str:
        word = self._ahead()
        self._position += 1
        return word

    @staticmethod
    def _is_name(word: str) -> bool:
        return word != _END and word not in _SYMBOLS

    def _requirement(self) -> Requirement:
        absent = self._ahead() == "!"
        if absent:
            self._next()
        key = self._next()
        if not self._is_name(key):
            raise _Bad(f"found '{key}', expected: identifier")
        _check(key, "<nil>", _label_key)
        if self._ahead() in (_END, ","):
            return Requirement(key, "absent" if absent else "exists")
        if absent:
            return Requirement(key, "absent")
        operator = self._next()
        if operator not in _OPERATORS:
            raise _Bad(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._several() if operator in ("in", "notin") else [self._single()]
        if operator in ("<", ">") and _integer(values[0]) is None:
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _Bad(f"values[0]: Invalid value: {shown(values[0])}: {why}")
        for index, value in enumerate(values):
            _check(value, f"values[{index}][{key}]", label_value)
        return Requirement(key, "=" if operator == "==" else operator, frozenset(values))

    def _single(self) -> str:
        if self._ahead() in (_END, ","):
            return ""
        value = self._next()
        if not self._is_name(value):
            raise _Bad(f"found '{value}', expected: identifier")
        return value

    def _several(self) -> list[str]:
        opening = self._next()
        if opening != "(":
            raise _Bad(f"found '{opening}' expected: '('")
        first = self._ahead()
        if first == ")":
            self._next()
            return [""]
        if not (self._is_name(first) or first == ","):
            raise _Bad(f"found '{first}', expected: ',', ')' or identifier")
        values = self._listed()
        self._next()  # the closing bracket, which `_listed` has seen
        return sorted(values)

    def _listed(self) -> set[str]:
        """Values with commas between; where one is missing it is the empty one."""
        values: set[str] = set()
        while True:
            word = self._next()
            if self._is_name(word):
                values.add(word)
                following = self._ahead()
                if following == ")":
                    return values
                if following != ",":
                    raise _Bad(f"found '{following}', expected: ',' or ')'")
            elif word == ",":
                if not values:
                    values.add("")
                following = self._ahead()
                if following == ")":
                    return values | {""}
                if following == ",":
                    self._next()
                    values.add("")
            else:
                raise _Bad(f"found '{word}', expected: ',', or identifier")


def _label_key(key: str) -> list[str]:
    return [text.replace("a qualified name must", "a valid label key must") for text in qualified_name(key)]


def _check(value: str, where: str, rule: Callable[[str], list[str]]) -> None:
    if problems := rule(value):
        raise _Bad(f"{where}: Invalid value: {shown(value)}: {'; '.join(problems)}")
