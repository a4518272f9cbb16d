"""YAML read so that every value knows its line.

Built on libyaml's events and not on PyYAML's loader, for three reasons. Positions must survive the merge of four
levels, for error messages and `explain`. Input is refused where YAML is dangerous: aliases (bombs), duplicate keys,
tags, depth, size. And YAML 1.1 reads an unquoted `no`, `012345678901`, `12e4567` or `2026-01-01` as something
nobody meant, differently in Python and in Go: such words must be quoted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from regional.config.problems import ConfigProblems, Problem

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 40

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+")
_AMBIGUOUS = re.compile(
    r"(?i:y|n|yes|no|on|off)"  # booleans of YAML 1.1
    r"|[-+]?0[0-9_]+|[-+]?0[xXoObB][0-9a-fA-F_]+"  # octal, hexadecimal, binary
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9]*)?"  # base 60
    r"|[-+]?[0-9][0-9_]*_[0-9_]*"  # digits with underscores
    r"|[-+]?([0-9][0-9_]*)?\.?[0-9]*[eE][-+]?[0-9]+|[-+]?[0-9]+\.|[-+]?\.[0-9]+"  # floats without a plain point
    r"|(?i:[-+]?\.inf|\.nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"  # dates
)


class Node:
    """A YAML value with the place that wrote it. A mapping's `value` is dict[str, Node], a list's list[Node]."""

    __slots__ = ("column", "keys", "line", "value")

    def __init__(self, value: Any, line: int = 0, column: int = 0, keys: dict[str, tuple[int, int]] | None = None):
        self.value = value
        self.line = line
        self.column = column
        self.keys = keys or {}

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    def get(self, key: str) -> Node | None:
        return self.value.get(key) if isinstance(self.value, dict) else None

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    @classmethod
    def of(cls, value: Any) -> Node:
        if isinstance(value, dict):
            return cls({key: cls.of(child) for key, child in value.items()})
        if isinstance(value, list):
            return cls([cls.of(child) for child in value])
        return cls(value)


class Document:
    """A parsed file and the problems found in it so far."""

    def __init__(self, file: str, root: Node, problems: list[Problem]) -> None:
        self.file = file
        self.root = root
        self.problems = problems

    def problem(self, at: Node | tuple[int, int], message: str) -> None:
        line, column = (at.line, at.column) if isinstance(at, Node) else at
        self.problems.append(Problem(self.file, line, column, message))


def read(path: Path) -> Document:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigProblems([Problem(str(path), 0, 0, f"cannot be read: {error.strerror}")]) from None
    return parse(raw, path.name)


def parse(raw: bytes, file: str) -> Document:
    """Raises ConfigProblems when the text is no YAML at all; lesser faults are collected in the document."""
    if len(raw) > MAX_BYTES:
        raise ConfigProblems([Problem(file, 0, 0, f"is larger than {MAX_BYTES // 1024 // 1024} MiB")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"is not UTF-8 (byte 0x{raw[error.start]:02x})"
        raise ConfigProblems([Problem(file, line, column, message)]) from None
    document = Document(file, Node(None, 1, 1), [])
    try:
        document.root = _Composer(document, text).compose()
    except yaml.MarkedYAMLError as error:
        raise ConfigProblems([_syntax_problem(file, text, error)]) from None
    except yaml.YAMLError as error:
        raise ConfigProblems([Problem(file, 0, 0, f"is not YAML: {' '.join(str(error).split())}")]) from None
    return document


def _syntax_problem(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(file, 0, 0, f"is not YAML: {error.problem}")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1]:
        return Problem(file, mark.line + 1, line.index("\t") + 1, "has a tab: YAML is indented with spaces")
    return Problem(file, mark.line + 1, mark.column + 1, f"is not YAML: {error.problem or error.context}")


class _Composer:
    def __init__(self, document: Document, text: str) -> None:
        self._document = document
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)

    def compose(self) -> Node:
        root = Node(None, 1, 1)
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._stop(event, "a second document in one file")
                root = self._node(next(self._events), 0)
        return root

    def _node(self, event: Any, depth: int) -> Node:
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        if depth > MAX_DEPTH:
            self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self._stop(event, "anchors and aliases are not allowed: use defaults and sectors to share values")
        if event.tag is not None and event.tag != "!":
            self._stop(event, f"tag {event.tag} is not allowed")
        if isinstance(event, yaml.ScalarEvent):
            return Node(self._scalar(event, line, column), line, column)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(item, depth + 1))
            return Node(items, line, column)
        return self._mapping(line, column, depth)

    def _mapping(self, line: int, column: int, depth: int) -> Node:
        entries: dict[str, Node] = {}
        keys: dict[str, tuple[int, int]] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            place = (event.start_mark.line + 1, event.start_mark.column + 1)
            if not isinstance(event, yaml.ScalarEvent):
                self._stop(event, "a key must be a plain word")
            if event.anchor is not None or event.value == "<<":
                self._stop(event, "anchors and merge keys are not allowed: use defaults and sectors to share values")
            key: str = event.value
            if event.implicit[0] and not isinstance(self._scalar(event, *place), str):
                self._document.problem(place, f"key {key} reads as a number or boolean: quote it")
            value = self._node(next(self._events), depth + 1)
            if key in entries:
                self._document.problem(place, f"key {key} is given twice (first in line {keys[key][0]})")
                continue
            entries[key], keys[key] = value, place
        return Node(entries, line, column, keys)

    def _scalar(self, event: Any, line: int, column: int) -> Any:
        text: str = event.value
        if not event.implicit[0]:  # quoted or block: a string whatever it looks like
            return text
        if text in _NULL:
            return None
        if text in _BOOLEAN:
            return _BOOLEAN[text]
        if _INTEGER.fullmatch(text):
            return int(text) if len(text) < 4000 else text
        if _DECIMAL.fullmatch(text):
            return float(text)
        if _AMBIGUOUS.fullmatch(text):
            self._document.problem((line, column), f"{text} means different things to YAML readers: quote it")
        return text

    def _stop(self, event: Any, message: str) -> None:
        mark = event.start_mark
        raise ConfigProblems(
            [*self._document.problems, Problem(self._document.file, mark.line + 1, mark.column + 1, message)]
        )
