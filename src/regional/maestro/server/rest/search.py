"""`search` and `orderBy` as SQL. Both dialects that clients send are one grammar here.

Plain comparisons (`source = 'a' and version > 2`) and paths into a bundle's JSON
(`payload->'metadata'->'labels'->>'k' in ('a')`). Values become parameters; names come from a fixed table.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

MOST_OPERATORS = 50
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<op>->>|->|@>|<=|>=|<>|!=|=|<|>|\(|\)|,|[-+*/%])"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)?))"
)
_COMPARISONS = {"=", "!=", "<>", "<", "<=", ">", ">="}
_LABELS = ("r.metadata -> 'labels'", "r.labels")
_KEYWORDS = {"and", "or", "not", "in", "like", "ilike", "is", "null", "between"}


class BadSearch(ValueError):
    pass


class Table(msgspec.Struct, frozen=True):
    """Column name → (expression, type). `json` columns are reached by paths."""

    name: str
    columns: dict[str, tuple[str, str]]


_NOT_APPLIED = "(r.deleted_at IS NOT NULL OR NOT r.applied OR r.status_version IS DISTINCT FROM r.version)"
"""Whatever `delivery.state` calls otherwise than applied, in the words of the row."""

_STATUS = "CASE WHEN pg_input_is_valid(r.status, 'jsonb') THEN r.status::jsonb END"
"""It is as its agent sent it, and not all that is JSON can be `jsonb`: one such must not spoil a search among all."""

RESOURCES = Table(
    "resources",
    {name: (f"r.{name}", "text") for name in ("id", "name", "source", "consumer_name", "type", "request_id")}
    | {name: (f"r.{name}", "timestamptz") for name in ("created_at", "updated_at", "deleted_at", "status_at")}
    | {"version": ("r.version", "integer"), "status_version": ("r.status_version", "integer")}
    | {"applied": ("r.applied", "boolean"), "not_applied": (_NOT_APPLIED, "boolean")}
    | {"metadata": ("r.metadata", "json"), "payload": ("", "json"), "status": (_STATUS, "json")},
)
CONSUMERS = Table(
    "consumers",
    {name: (f"r.{name}", "text") for name in ("id", "name", "agent", "cluster_unreachable")}
    | {name: (f"r.{name}", "text") for name in ("agent_version", "agent_certificate")}
    | {name: (f"r.{name}", "timestamptz") for name in ("created_at", "updated_at", "last_seen_at", "absent_since")}
    | {"labels": ("r.labels", "json")},
)
_PAYLOAD = {"metadata": "r.metadata", "data": "r.spec::jsonb"}


def where(text: str, table: Table, parameters: list[Any]) -> str:
    """A condition over the alias `r`. Appends to `parameters`. Raises BadSearch."""
    if not text.strip():
        return "true"
    parser = _Parser(_tokens(text), table, parameters)
    condition = parser.expression()
    if parser.peek() is not None:
        raise BadSearch(f"unexpected {parser.peek()!r}")
    return condition


def order(text: str, table: Table, default: str) -> str:
    """Always ends with the id, so that pages do not overlap. Raises BadSearch."""
    terms = []
    for part in text.split(",") if text.strip() else ():
        words = part.split()
        if not 1 <= len(words) <= 2 or (len(words) == 2 and words[1].lower() not in ("asc", "desc")):
            raise BadSearch(f"bad order value '{part.strip()}'")
        expression, kind = _column(words[0], table)
        if kind == "json":
            raise BadSearch(f"bad order value '{part.strip()}'")
        terms.append(f"{expression} {words[1].lower() if len(words) == 2 else 'asc'}")
    return ", ".join([*(terms or [default]), "r.id"])


def _column(name: str, table: Table) -> tuple[str, str]:
    prefix, dot, bare = name.lower().rpartition(".")
    found = table.columns.get(bare)
    if found is None or (dot and prefix != table.name):
        raise BadSearch(f"{name} is not a valid field name")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise BadSearch(f"unexpected {text[position : position + 20]!r}")
        tokens.append((found.lastgroup, found.group(found.lastgroup)))
        position = found.end()
    return tokens


def _check_kind(operator: str, kind: str, wanted: str) -> None:
    if kind != wanted:
        raise BadSearch(f"{operator} compares {wanted}, and this is {kind}")


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], table: Table, parameters: list[Any]) -> None:
        self._tokens, self._table, self._parameters = tokens, table, parameters
        self._position = 0
        self._label: tuple[str, str] | None = None
        """The labels and the key that the operand just read stands for: such a comparison has an index."""
        if sum(1 for kind, text in tokens if kind == "word" and text.lower() in ("and", "or", "not")) > MOST_OPERATORS:
            raise BadSearch(f"more than {MOST_OPERATORS} logical operators")

    def peek(self) -> str | None:
        if self._position >= len(self._tokens):
            return None
        kind, text = self._tokens[self._position]
        return text.lower() if kind == "word" and text.lower() in _KEYWORDS else text

    def take(self) -> tuple[str, str]:
        if self._position >= len(self._tokens):
            raise BadSearch("it ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def _accept(self, *words: str) -> bool:
        if self.peek() in words:
            self._position += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise BadSearch(f"expected {word!r}, found {self.peek()!r}")

    def expression(self) -> str:
        terms = [self._conjunction()]
        while self._accept("or"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"

    def _conjunction(self) -> str:
        factors = [self._factor()]
        while self._accept("and"):
            factors.append(self._factor())
        return factors[0] if len(factors) == 1 else f"({' AND '.join(factors)})"

    def _factor(self) -> str:
        if self._accept("not"):
            return f"NOT ({self._factor()})"
        if self._accept("("):
            inner = self.expression()
            self._expect(")")
            return f"({inner})"
        return self._predicate()

    def _predicate(self) -> str:
        left, kind = self._operand()
        if self._accept("@>"):
            _check_kind("@>", kind, "json")
            return f"{left} @> {self._json()}"
        if self._accept("is"):
            negated = self._accept("not")
            self._expect("null")
            return f"{left} IS {'NOT ' if negated else ''}NULL"
        negated = self._accept("not")
        word = "NOT " if negated else ""
        if self._accept("in"):
            if self._label and not negated:
                return f"({' OR '.join(self._labelled(*self._label, value) for value in self._texts())})"
            return f"{left} {word}IN ({', '.join(self._list(kind))})"
        if self._accept("between"):
            low = self._literal(kind)
            self._expect("and")
            return f"{left} {word}BETWEEN {low} AND {self._literal(kind)}"
        for like in ("like", "ilike"):
            if self._accept(like):
                _check_kind(like, kind, "text")
                return f"{left} {word}{like.upper()} {self._literal('text')}"
        operator = self.peek()
        if negated or operator not in _COMPARISONS:
            raise BadSearch(f"expected an operator, found {operator!r}")
        self.take()
        if self._accept("null"):
            return f"{left} IS {'NULL' if operator == '=' else 'NOT NULL'}"
        if self._label and operator == "=":
            return self._labelled(*self._label, self._text())
        return f"{left} {'<>' if operator == '!=' else operator} {self._literal(kind)}"

    def _operand(self) -> tuple[str, str]:
        self._label = None
        kind, text = self.take()
        if kind != "word" or text.lower() in _KEYWORDS:
            raise BadSearch(f"expected a field, found {text!r}")
        expression, kind = _column(text, self._table)
        if kind == "integer":
            return self._calculated(expression), kind
        if kind != "json":
            return expression, kind
        if not expression:
            expression = self._payload()
        while self.peek() in ("->", "->>"):
            arrow, name = self.take()[1], self._string()
            if arrow == "->>":
                if expression in _LABELS:
                    self._label = (expression, name)
                return f"({expression} ->> {self._segment(name)})", "text"
            expression = f"{expression} -> {self._segment(name)}"
        return f"({expression})", "json"

    def _calculated(self, expression: str) -> str:
        """`version * 2 - 1`, from left to right by the usual precedence: PostgreSQL's own."""
        start = expression
        while self._position < len(self._tokens):
            given, text = self._tokens[self._position]
            if text in ("+", "-", "*", "/", "%"):
                self._position += 1
                given, number = self.take()
            elif given == "number" and text.startswith("-"):  # as it is read where no blank follows
                self._position += 1
                text, number = "-", text[1:]
            else:
                break
            if given != "number":
                raise BadSearch(f"expected a number, found {number!r}")
            expression = f"{expression} {text} {self._parameter(number, 'numeric')}"
        return expression if expression is start else f"({expression})"

    @staticmethod
    def _segment(name: str) -> str:
        """As a constant, not a parameter: an index over a path fits only to that very path."""
        if "\x00" in name:
            raise BadSearch("a field's name holds a NUL")
        return "'" + name.replace("'", "''") + "'"

    def _labelled(self, labels: str, key: str, value: str) -> str:
        return f"({labels}) @> {self._parameter(msgspec.json.encode({key: value}).decode(), 'jsonb')}"

    def _payload(self) -> str:
        self._expect("->")
        part = self._string()
        if part not in _PAYLOAD:
            raise BadSearch(f"payload has no {part!r}")
        return _PAYLOAD[part]

    def _string(self) -> str:
        kind, text = self.take()
        if kind != "text":
            raise BadSearch(f"expected a string, found {text!r}")
        return text[1:-1].replace("''", "'")

    def _json(self) -> str:
        text = self._string()
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise BadSearch(f"{text!r} is not JSON: {error}") from None
        return self._parameter(text, "jsonb")

    def _list(self, kind: str) -> list[str]:
        return [self._parameter(text, "jsonb" if kind == "json" else kind) for text in self._texts(kind)]

    def _texts(self, kind: str = "text") -> list[str]:
        self._expect("(")
        values = [self._text(kind)]
        while self._accept(","):
            values.append(self._text(kind))
        self._expect(")")
        return values

    def _literal(self, kind: str) -> str:
        return self._parameter(self._text(kind), "jsonb" if kind == "json" else kind)

    def _text(self, kind: str = "text") -> str:
        given, text = self.take()
        if given == "text":
            return text[1:-1].replace("''", "'")
        if not (given == "number" or (kind == "boolean" and text.lower() in ("true", "false"))):
            raise BadSearch(f"expected a value, found {text!r}")
        return text

    def _parameter(self, text: str, kind: str) -> str:
        """As text with a cast: PostgreSQL itself says what is no number or date."""
        self._parameters.append(text)
        kind = "numeric" if kind == "integer" and "." in text else kind
        return f"${len(self._parameters)}::text" + ("" if kind == "text" else f"::{kind}")
