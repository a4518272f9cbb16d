"""From template text to a tree. Positions are kept, so that an error names the place as Go does."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from regional.gitops.gotemplate.values import TemplateError

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<raw>`[^`]*`)
      | (?P<char>'(?:\\.|[^'\\\n])+')
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))
      | (?P<field>\.[^\W\d]\w*)
      | (?P<dot>\.)
      | (?P<variable>\$\w*)
      | (?P<word>[^\W\d]\w*)
      | (?P<op>:=|=|\||\(|\)|,)""",
    re.VERBOSE,
)
_OPEN = re.compile(r"\{\{(?:-(?=\s))?")
_COMMENT = re.compile(r"\s*/\*.*?\*/\s*?(?P<trim>\s-)?\}\}", re.DOTALL)
_CLOSE = re.compile(r"(?P<trim>\s-)?\}\}")
_REFUSED = frozenset({"define", "template", "block"})


@dataclass(slots=True)
class Token:
    kind: str
    text: str
    offset: int


@dataclass(slots=True)
class Operand:
    """kind: dot, nil, literal, field, variable, word, pipe. `fields` are the .a.b that follow it."""

    kind: str
    offset: int
    value: Any = None
    fields: list[str] = field(default_factory=list)
    source: str = ""


@dataclass(slots=True)
class Pipe:
    commands: list[list[Operand]]
    declares: list[str] = field(default_factory=list)
    assigns: bool = False


@dataclass(slots=True)
class Node:
    """kind: text, action, if, with, range, break, continue."""

    kind: str
    text: str = ""
    pipe: Pipe | None = None
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


class Parser:
    def __init__(self, source: str, functions: Container[str]) -> None:
        self._source = source
        self._functions = functions
        self._offset = 0
        self._trim_next = False
        self._tokens: list[Token] = []

    def parse(self) -> list[Node]:
        nodes, end = self._nodes()
        if end:
            raise self.error(f"unexpected {{{{{end}}}}}", self._offset)
        return nodes

    def error(self, message: str, offset: int) -> TemplateError:
        return TemplateError(f"template: :{self._source.count(chr(10), 0, offset) + 1}: {message}")

    def _nodes(self, depth: int = 0) -> tuple[list[Node], str]:
        """Nodes up to an `else` or `end` (returned) or the end of the text."""
        if depth > 100:
            raise self.error("nested too deeply", self._offset)
        nodes: list[Node] = []
        while True:
            literal = self._literal()
            if literal:
                nodes.append(Node("text", literal))
            if self._offset >= len(self._source):
                if depth:
                    raise self.error("unexpected EOF", self._offset)
                return nodes, ""
            if not self._action_tokens():
                continue
            word = self._tokens[0].text if self._tokens and self._tokens[0].kind == "word" else ""
            if word in ("else", "end"):
                self._tokens.pop(0)
                return nodes, word
            nodes.append(self._node(word, depth))

    def _node(self, word: str, depth: int) -> Node:
        if word in ("if", "with", "range"):
            self._tokens.pop(0)
            return self._block(word, depth)
        if word in ("break", "continue"):
            self._tokens.pop(0)
            self._finished()
            return Node(word)
        if word in _REFUSED:
            raise self.error(f"{{{{{word}}}}} is not supported here", self._tokens[0].offset)
        node = Node("action", pipe=self._pipe())
        self._finished()
        return node

    def _block(self, word: str, depth: int) -> Node:
        pipe = self._pipe(loop=word == "range")
        self._finished()
        body, end = self._nodes(depth + 1)
        node = Node(word, pipe=pipe, body=body)
        if end == "else":
            if self._peek() in ("if", "with"):
                chained = self._tokens_skip_space().text
                node.otherwise = [self._block(chained, depth + 1)]
                return node
            self._finished()
            node.otherwise, end = self._nodes(depth + 1)
        if end != "end":
            raise self.error("expected end", self._offset)
        self._finished()
        return node

    def _literal(self) -> str:
        match = _OPEN.search(self._source, self._offset)
        stop = match.start() if match else len(self._source)
        literal = self._source[self._offset : stop]
        if self._trim_next:
            literal = literal.lstrip(" \t\r\n")
            self._trim_next = False
        self._offset = stop
        if match:
            if match.group().endswith("-"):
                literal = literal.rstrip(" \t\r\n")
            self._offset = match.end()
        return literal

    def _action_tokens(self) -> bool:
        """False for a comment."""
        if comment := _COMMENT.match(self._source, self._offset):
            self._trim_next = bool(comment["trim"])
            self._offset = comment.end()
            return False
        self._tokens = []
        while True:
            if close := _CLOSE.match(self._source, self._offset):
                self._trim_next = bool(close["trim"])
                self._offset = close.end()
                while self._tokens and self._tokens[0].kind == "space":
                    self._tokens.pop(0)
                return True
            match = _TOKEN.match(self._source, self._offset)
            if not match:
                if self._offset >= len(self._source):
                    raise self.error("unclosed action", self._offset)
                raise self.error(f"unexpected {self._source[self._offset]!r} in action", self._offset)
            self._tokens.append(Token(match.lastgroup or "", match.group(), self._offset))
            self._offset = match.end()

    def _peek(self) -> str:
        return next((token.text for token in self._tokens if token.kind != "space"), "")

    def _tokens_skip_space(self) -> Token:
        while self._tokens and self._tokens[0].kind == "space":
            self._tokens.pop(0)
        if not self._tokens:
            raise self.error("unexpected end of action", self._offset)
        return self._tokens.pop(0)

    def _finished(self) -> None:
        if left := self._peek():
            raise self.error(f"unexpected {left!r} in action", self._offset)

    def _pipe(self, *, loop: bool = False) -> Pipe:
        pipe = Pipe([])
        plain = [token for token in self._tokens if token.kind != "space"]
        names = [plain[0]] if plain and plain[0].kind == "variable" else []
        if loop and names and len(plain) > 2 and plain[1].text == "," and plain[2].kind == "variable":
            names.append(plain[2])
        after = plain[len(names) * 2 - 1].text if names and len(plain) >= len(names) * 2 else ""
        if after in (":=", "="):
            pipe.declares, pipe.assigns = [name.text for name in names], after == "="
            while self._tokens_skip_space().text != after:
                pass
        while True:
            pipe.commands.append(self._command())
            if self._peek() != "|":
                return pipe
            self._tokens_skip_space()

    def _command(self) -> list[Operand]:
        operands: list[Operand] = []
        while (ahead := self._peek()) and ahead not in ("|", ")"):
            operands.append(self._operand())
        if not operands:
            raise self.error("missing value for command", self._offset)
        return operands

    def _operand(self) -> Operand:
        token = self._tokens_skip_space()
        kind, value, fields = self._start(token)
        while self._tokens and self._tokens[0].kind == "field":
            if kind in ("literal", "nil", "word"):
                raise self.error(f"unexpected {self._tokens[0].text!r} after {token.text!r}", token.offset)
            fields.append(self._tokens.pop(0).text[1:])
        source = token.text + "".join(f".{name}" for name in (fields[1:] if token.kind == "field" else fields))
        return Operand(kind, token.offset, value, fields, source)

    def _start(self, token: Token) -> tuple[str, Any, list[str]]:
        if token.kind == "field":
            return "field", None, [token.text[1:]]
        if token.kind == "dot":
            return "dot", None, []
        if token.kind == "variable":
            return "variable", token.text, []
        if token.kind == "word":
            if token.text in ("true", "false"):
                return "literal", token.text == "true", []
            if token.text == "nil":
                return "nil", None, []
            if token.text not in self._functions:
                raise self.error(f'function "{token.text}" not defined', token.offset)
            return "word", token.text, []
        if token.text == "(":
            pipe = self._pipe()
            if not self._tokens or self._tokens_skip_space().text != ")":
                raise self.error("unclosed left paren", token.offset)
            return "pipe", pipe, []
        return "literal", self._constant(token), []

    def _constant(self, token: Token) -> Any:
        body = token.text
        if token.kind == "raw":
            return body[1:-1]
        if token.kind in ("string", "char"):
            try:
                inner = body[1:-1].replace('"', '\\"') if token.kind == "char" else body[1:-1]
                decoded = json.loads('"' + _json_escapes(inner) + '"')
            except ValueError:
                raise self.error(f"invalid syntax {body}", token.offset) from None
            return ord(decoded) if token.kind == "char" else decoded
        if token.kind != "number":
            raise self.error(f"unexpected {body!r} in operand", token.offset)
        plain = body.replace("_", "")
        if "x" in plain.lower():
            return int(plain, 16)
        return float(plain) if any(mark in plain for mark in ".eE") else int(plain, 10)


def _json_escapes(body: str) -> str:
    r"""Go knows \a, \v, \x41, octal and \' beyond JSON's escapes."""

    def one(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape[0] == "x":
            return f"\\u00{escape[1:]}"
        if escape[0].isdigit():
            return f"\\u{int(escape, 8):04x}"
        return {"a": "\\u0007", "v": "\\u000b", "'": "'"}.get(escape, "\\" + escape)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", one, body).replace("\t", "\\t")
