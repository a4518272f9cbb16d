"""Regular expressions in time linear in the text, for patterns that users write.

Python's own engine backtracks: `(a+)+$` on forty letters takes hours. Here all ways through the pattern are followed at
once, a character at a time, in order of preference; so the result is the same as that of Go's engine (leftmost, first
alternative first) and the worst case is length of the text times length of the pattern.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

MAX_STEPS = 10_000
"""Instructions of one program: repeat counts multiply (`(a{100}){100}`)."""

_CHARACTER, _SPLIT, _JUMP, _ASSERT, _MATCH = range(5)
_WORD = re.compile(r"\w", re.ASCII)
_CATEGORIES = {
    sre.CATEGORY_DIGIT: re.compile(r"[0-9]"),
    sre.CATEGORY_NOT_DIGIT: re.compile(r"[^0-9]"),
    sre.CATEGORY_SPACE: re.compile(r"[\t\n\f\r ]"),
    sre.CATEGORY_NOT_SPACE: re.compile(r"[^\t\n\f\r ]"),
    sre.CATEGORY_WORD: _WORD,
    sre.CATEGORY_NOT_WORD: re.compile(r"\W", re.ASCII),
}


class Unsupported(ValueError):
    """A pattern that Go's engine would not take either, or one too large."""


class Program:
    def __init__(self, pattern: str) -> None:
        try:
            parsed = _parser.parse(pattern.replace(r"\z", r"\Z"))
        except (re.error, RecursionError, OverflowError) as error:
            raise Unsupported(f"error parsing regexp: {error}") from None
        self._flags = parsed.state.flags
        self._code: list[tuple[int, Any, Any]] = []
        self._sequence(parsed)
        self._add(_MATCH)

    # --- from pattern to instructions ------------------------------------------------------------------------------

    def _add(self, operation: int, one: Any = None, two: Any = None) -> int:
        if len(self._code) >= MAX_STEPS:
            raise Unsupported("error parsing regexp: expression nests or repeats too much")
        self._code.append((operation, one, two))
        return len(self._code) - 1

    def _sequence(self, items: Any) -> None:
        for kind, detail in items:
            self._item(kind, detail)

    def _item(self, kind: Any, detail: Any) -> None:
        if kind is sre.SUBPATTERN:
            self._sequence(detail[-1])
        elif kind is sre.BRANCH:
            self._branch(detail[1])
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            self._repeat(*detail, greedy=kind is sre.MAX_REPEAT)
        elif kind is sre.AT:
            self._add(_ASSERT, detail)
        elif kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            self._add(_CHARACTER, kind, detail)
        else:
            raise Unsupported(f"error parsing regexp: invalid or unsupported Perl syntax: {kind}")

    def _branch(self, ways: Any) -> None:
        ends = []
        for way in ways[:-1]:
            split = self._add(_SPLIT)
            self._sequence(way)
            ends.append(self._add(_JUMP))
            self._code[split] = (_SPLIT, split + 1, len(self._code))
        self._sequence(ways[-1])
        for end in ends:
            self._code[end] = (_JUMP, len(self._code), None)

    def _repeat(self, least: int, most: Any, body: Any, *, greedy: bool) -> None:
        for _ in range(least):
            self._sequence(body)
        if most is sre.MAXREPEAT:
            split = self._add(_SPLIT)
            self._sequence(body)
            self._add(_JUMP, split)
            self._choose(split, len(self._code), greedy)
            return
        splits = []
        for _ in range(int(most) - least):
            splits.append(self._add(_SPLIT))
            self._sequence(body)
        for split in splits:
            self._choose(split, len(self._code), greedy)

    def _choose(self, split: int, past: int, greedy: bool) -> None:
        self._code[split] = (_SPLIT, split + 1, past) if greedy else (_SPLIT, past, split + 1)

    # --- running ---------------------------------------------------------------------------------------------------

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the leftmost match begins and ends."""
        found: tuple[int, int] | None = None
        threads: dict[int, int] = {}  # instruction → where its match began, best first
        for at in range(start, len(text) + 1):
            if found is None:
                self._follow(threads, 0, at, text, at)
            if not threads and found is not None:
                break  # without one, a match may still begin later: `\b` and `^` do not hold everywhere
            following: dict[int, int] = {}
            for place, begun in threads.items():
                operation, kind, detail = self._code[place]
                if operation == _MATCH:
                    found = (begun, at)
                    break  # whatever comes later is less preferred
                if at < len(text) and self._accepts(kind, detail, text[at]):
                    self._follow(following, place + 1, begun, text, at + 1)
            threads = following
        return found

    def _follow(self, threads: dict[int, int], place: int, begun: int, text: str, at: int) -> None:
        """Add all instructions that can be reached from here without reading, in order of preference."""
        waiting, seen = [place], set(threads)
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            operation, one, two = self._code[place]
            if operation == _JUMP:
                waiting.append(one)
            elif operation == _SPLIT:
                waiting += (two, one)
            elif operation == _ASSERT:
                if self._holds(one, text, at):
                    waiting.append(place + 1)
            else:
                threads[place] = begun

    def _holds(self, what: Any, text: str, at: int) -> bool:
        if what in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            lines = what is sre.AT_BEGINNING and self._flags & re.MULTILINE
            return at == 0 or bool(lines and text[at - 1] == "\n")
        if what in (sre.AT_END, sre.AT_END_STRING):
            lines = what is sre.AT_END and self._flags & re.MULTILINE
            return at == len(text) or bool(lines and text[at] == "\n")
        before = at > 0 and _WORD.match(text[at - 1]) is not None
        after = at < len(text) and _WORD.match(text[at]) is not None
        return (before != after) == (what is sre.AT_BOUNDARY)

    def _accepts(self, kind: Any, detail: Any, character: str) -> bool:
        if kind is sre.ANY:
            return character != "\n" or bool(self._flags & re.DOTALL)
        forms = {character, character.lower(), character.upper()} if self._flags & re.IGNORECASE else {character}
        codes = [ord(form) for form in forms if len(form) == 1]
        if kind is sre.LITERAL:
            return detail in codes
        if kind is sre.NOT_LITERAL:
            return detail not in codes
        return any(_in_class(detail, code) for code in codes)


def _in_class(items: Any, code: int) -> bool:
    negated = bool(items) and items[0][0] is sre.NEGATE
    inside = any(_in_item(kind, detail, code) for kind, detail in items if kind is not sre.NEGATE)
    return inside != negated


def _in_item(kind: Any, detail: Any, code: int) -> bool:
    if kind is sre.LITERAL:
        return bool(detail == code)
    if kind is sre.RANGE:
        return bool(detail[0] <= code <= detail[1])
    return _CATEGORIES[detail].match(chr(code)) is not None


@lru_cache(maxsize=256)
def program(pattern: str) -> Program:
    return Program(pattern)


def find_all(pattern: str, text: str, limit: int = -1) -> list[str]:
    """The matches from left to right, at most `limit` of them if that is not negative; none overlap."""
    compiled, found, at = program(pattern), list[str](), 0
    previous = -1
    while at <= len(text) and (limit < 0 or len(found) < limit):
        where = compiled.search(text, at)
        if where is None:
            break
        begin, end = where
        if not (begin == end == previous):  # no empty match right behind another
            found.append(text[begin:end])
        previous = end
        at = end if end > begin else end + 1
    return found
