"""YAML read so that every value knows its line.

Built on libyaml's events and not on PyYAML's loader, for three reasons. Positions must survive the merge of four
levels, for error messages and `explain`. Input is refused where YAML is dangerous: aliases (bombs), duplicate keys,
tags, depth, size. And YAML 1.1 reads an unquoted `no`, `012345678901`, `12e4567` or `2026-01-01` as something
nobody meant, differently in Python and in Go: such words must be quoted here.
"""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from regional.config.problems import ConfigProblems, Problem

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 40
MAX_KEY = 256
MAX_VALUES = 500_000
MAX_NUMBER = 64  # characters; also what keeps the pattern below quick, which backtracks

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_LEAST, _MOST = -(2**63), 2**63 - 1
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


_NUMERIC = re.compile(r"[-+.]?[0-9][-+.:0-9_eE]*")
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as libyaml counts lines
Place = tuple[int, int]
NOWHERE: Mapping[str, Place] = {}


class Node:
    """A YAML value with the place that wrote it. A mapping's `value` is dict[str, Node], a list's list[Node]."""

    __slots__ = ("column", "keys", "line", "value")

    def __init__(self, value: Any, line: int = 0, column: int = 0, keys: Mapping[str, Place] = NOWHERE) -> None:
        self.value = value
        self.line = line
        self.column = column
        self.keys = keys

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

    def __init__(self, file: str, text: str, root: Node, problems: list[Problem]) -> None:
        self.file = file
        self.text = text
        self.root = root
        self.problems = problems
        self._lines: list[int] = []

    def offset(self, at: Node) -> int:
        """Where in the text it begins."""
        if not self._lines:
            self._lines = [0, *(found.end() for found in _LINE_END.finditer(self.text))]
        return self._lines[at.line - 1] + at.column - 1

    def problem(self, at: Node | tuple[int, int], message: str) -> None:
        line, column = (at.line, at.column) if isinstance(at, Node) else at
        self.problems.append(Problem(self.file, line, column, message))


def read(path: Path) -> Document:
    try:
        if stat.S_ISFIFO(path.stat().st_mode):  # to open it would wait for a writer
            raise OSError(errno.EINVAL, "Is a named pipe")
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
    document = Document(file, text, Node(None, 1, 1), [])
    try:
        document.root = _Composer(document, text).compose()
    except yaml.MarkedYAMLError as error:
        raise ConfigProblems([_syntax_problem(file, text, error)]) from None
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="replace")  # libyaml counts bytes
        message = f"is not YAML: it may not hold the character U+{error.character:04X}"
        raise ConfigProblems([Problem(file, *_place_after(before), message)]) from None
    except yaml.YAMLError as error:
        raise ConfigProblems([Problem(file, 0, 0, f"is not YAML: {' '.join(str(error).split())}")]) from None
    return document


def _place_after(text: str) -> Place:
    ends = [found.end() for found in _LINE_END.finditer(text)]
    return len(ends) + 1, len(text) - (ends[-1] if ends else 0) + 1


def _syntax_problem(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(file, 0, 0, f"is not YAML: {error.problem}")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1]:
        return Problem(file, mark.line + 1, line.index("\t") + 1, "has a tab: YAML is indented with spaces")
    return Problem(file, mark.line + 1, mark.column + 1, f"is not YAML: {error.problem or error.context}")


def _plain_word(text: str) -> Any:
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


class _Composer:
    def __init__(self, document: Document, text: str) -> None:
        self._document = document
        self._text = text
        self._plain: dict[str, Any] = {}  # unquoted words already read
        self._count = 0
        self._next: Callable[[], Any] = lambda: None

    def compose(self) -> Node:
        loader = yaml.CSafeLoader(self._text)
        self._next = loader.get_event
        try:
            return self._documents()
        finally:
            loader.dispose()

    def _documents(self) -> Node:
        root = Node(None, 1, 1)
        documents = 0
        while (event := self._next()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._stop(event, "a second document in one file")
                root = self._node(self._next(), 0)
        return root

    def _node(self, event: Any, depth: int) -> Node:
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        kind = type(event)
        self._count += 1
        if self._count > MAX_VALUES:
            self._stop(event, f"has more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
        if kind is yaml.AliasEvent or event.anchor is not None:
            self._stop(event, "anchors and aliases are not allowed: use defaults and sectors to share values")
        if event.tag is not None and event.tag != "!":
            self._stop(event, f"tag {event.tag} is not allowed")
        if kind is yaml.ScalarEvent:
            return Node(self._scalar(event, line, column), line, column)
        if kind is yaml.SequenceStartEvent:
            items = []
            while type(item := self._next()) is not yaml.SequenceEndEvent:
                items.append(self._node(item, depth + 1))
            return Node(items, line, column)
        return self._mapping(line, column, depth)

    def _mapping(self, line: int, column: int, depth: int) -> Node:
        entries: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            mark = event.start_mark
            place = (mark.line + 1, mark.column + 1)
            if type(event) is not yaml.ScalarEvent:
                self._stop(event, "a key must be a plain word")
            if event.anchor is not None or event.value == "<<":
                self._stop(event, "anchors and merge keys are not allowed: use defaults and sectors to share values")
            key: str = event.value
            if len(key) > MAX_KEY:
                self._stop(event, f"a key is longer than {MAX_KEY} characters")
            if event.implicit[0] and not isinstance(self._scalar(event, *place), str):
                self._document.problem(place, f"key {key} reads as a number or boolean: quote it")
            value = self._node(self._next(), depth + 1)
            if key in entries:
                self._document.problem(place, f"key {key} is given twice (first in line {keys[key][0]})")
                continue
            entries[key], keys[key] = value, place
        return Node(entries, line, column, keys)

    def _scalar(self, event: Any, line: int, column: int) -> Any:
        text: str = event.value
        if not event.implicit[0]:  # quoted or block: a string whatever it looks like
            return text
        if text in self._plain:
            return self._plain[text]
        if len(text) > MAX_NUMBER:
            if _NUMERIC.fullmatch(text):
                self._document.problem((line, column), f"{text[:12]}… is too long a number: quote it")
            return text
        if _AMBIGUOUS.fullmatch(text):
            self._document.problem((line, column), f"{text} means different things to YAML readers: quote it")
            return text
        value = _plain_word(text)
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            self._document.problem((line, column), f"{text} does not fit in 64 bits, Go would round it: quote it")
            return text
        self._plain[text] = value
        return value

    def _stop(self, event: Any, message: str) -> None:
        mark = event.start_mark
        raise ConfigProblems(
            [*self._document.problems, Problem(self._document.file, mark.line + 1, mark.column + 1, message)]
        )
