"""The search language of lists (TSL) as a WHERE clause with parameters: no text of a caller becomes SQL.

    name = 'demo' and (labels.env in ['dev', 'qa'] or status.conditions.Reconciled = 'False')

Equality of labels and conditions is a containment test, which has an index. A number is compared as a number only with
values that are numbers, so that no row can make a query fail.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from regional.clm.api.problems import BadRequest

LENGTH = 4096
TERMS = 100
NESTING = 50
_TOKEN = re.compile(
    r"\s*(?:(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<time>\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))?)"
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)"
    r"|(?P<op><=|>=|!=|<>|==|=|<|>)|(?P<mark>[()\[\],])"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_./-]*))"
)
_TEXT = {"name", "kind", "created_by", "updated_by", "deleted_by", "owner_kind"}
_TIMES = {"created_time", "updated_time", "deleted_time"}
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_CONDITION_TYPE = re.compile(r"[A-Z][A-Za-z0-9]*")
_OPERATORS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def to_sql(search: str, parameters: list[Any]) -> str:
    """A condition over `resources`; its values are appended to `parameters`. Raises BadRequest."""
    if len(search) > LENGTH:
        raise BadRequest(f"search may have at most {LENGTH} characters")
    return _Parser(_tokens(search), parameters).whole()


def _tokens(search: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    text = search.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or "\0" in match.group(0):
            raise _unparsable(f"unexpected {text[position:].lstrip()[:20]!r}")
        kind = match.lastgroup or ""
        found.append(_Token(kind, match.group(kind)))
        position = match.end()
    return found


def _unparsable(why: str) -> BadRequest:
    return BadRequest(f"failed to parse search query: {why}")


class _Parser:
    def __init__(self, tokens: list[_Token], parameters: list[Any]) -> None:
        self._tokens = tokens
        self._at = 0
        self._parameters = parameters
        self._terms = 0

    def whole(self) -> str:
        sql = self._either(0, False)
        if self._at < len(self._tokens):
            raise _unparsable(f"unexpected {self._tokens[self._at].text[:40]!r}")
        return sql

    # -- grammar -----------------------------------------------------------------------------------------------------

    def _either(self, depth: int, negated: bool) -> str:
        parts = [self._both(depth, negated)]
        while self._accept("or"):
            parts.append(self._both(depth, negated))
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _both(self, depth: int, negated: bool) -> str:
        parts = [self._one(depth, negated)]
        while self._accept("and"):
            parts.append(self._one(depth, negated))
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _one(self, depth: int, negated: bool) -> str:
        if depth > NESTING:
            raise BadRequest(f"search is nested deeper than {NESTING} levels")
        if self._accept("not"):
            return f"(NOT {self._one(depth + 1, True)})"
        if self._accept("("):
            inner = self._either(depth + 1, negated)
            self._expect(")")
            return inner
        self._terms += 1
        if self._terms > TERMS:
            raise BadRequest(f"search has more than {TERMS} terms")
        token = self._next("a field")
        if token.kind != "word":
            raise _unparsable(f"expected a field, found {token.text[:40]!r}")
        return self._term(token.text, negated)

    def _term(self, field: str, negated: bool) -> str:
        if field.startswith("status.conditions."):
            return self._condition(field.removeprefix("status.conditions."), negated)
        if field.startswith("labels."):
            return self._label(field.removeprefix("labels."), negated)
        if field.startswith("spec."):
            return self._spec(field)
        if field in _TIMES:
            return self._comparison(f"resources.{field}", self._time, field, "timestamptz")
        if field == "generation":
            return self._comparison("resources.generation::numeric", self._number, field, "numeric")
        if field in ("id", "owner_id"):
            return self._identifier(f"resources.{field}", field)
        if field == "tenancy":
            return self._comparison("resources.tenant", self._string, field, "text")
        if field in _TEXT:
            return self._comparison(f"resources.{field}", self._string, field, "text")
        raise BadRequest(f"search: there is no field {field[:100]!r}")

    def _condition(self, path: str, negated: bool) -> str:
        kind, dot, part = path.partition(".")
        if negated:
            raise BadRequest("search: 'not' cannot be used with conditions")
        if not _CONDITION_TYPE.fullmatch(kind):
            raise BadRequest(f"search: {kind[:100]!r} is no type of a condition")
        if not dot:
            operator = self._next("'='")
            value = self._string(f"status.conditions.{kind}")
            if _OPERATORS.get(operator.text) != "=" or value not in ("True", "False", "Unknown"):
                raise BadRequest(f"search: status.conditions.{kind} can only be compared by '=' with True or False")
            wanted = msgspec.json.encode([{"type": kind, "status": value}]).decode()
            return f"resources.conditions @> {self._bind(wanted, 'jsonb')}"
        cast, read = ("timestamptz", self._time), ("numeric", self._number)
        found = {"last_updated_time": cast, "last_transition_time": cast, "observed_generation": read}.get(part)
        if found is None:
            raise BadRequest(f"search: conditions have no {part[:100]!r} to search by")
        kind_bound = self._bind(kind, "text")
        value_sql = (
            f"(SELECT (found ->> '{part}')::{found[0]} FROM jsonb_array_elements(resources.conditions) AS found"
            f" WHERE found ->> 'type' = {kind_bound} LIMIT 1)"
        )
        return self._comparison(value_sql, found[1], f"status.conditions.{path}", found[0], only_operators=True)

    def _label(self, key: str, negated: bool) -> str:
        if negated:
            raise BadRequest("search: 'not' cannot be used with labels")
        if self._peek().text in ("=", "=="):
            self._at += 1
            wanted = msgspec.json.encode({key: self._string(f"labels.{key}")}).decode()
            return f"resources.labels @> {self._bind(wanted, 'jsonb')}"
        value = f"(resources.labels ->> {self._bind(key, 'text')})"
        return self._comparison(value, self._string, f"labels.{key}", "text")

    def _spec(self, field: str) -> str:
        segments = field.split(".")[1:]
        if not all(_SEGMENT.fullmatch(segment) for segment in segments):
            raise BadRequest(f"search: {field[:100]!r} is no path into spec")
        path = self._bind(segments, "text[]")
        if self._number_follows():
            # A CASE, because the order of two ANDed tests is the planner's choice.
            number = (
                f"(CASE WHEN jsonb_typeof(resources.spec #> {path}) = 'number'"
                f" THEN (resources.spec #>> {path})::numeric END)"
            )
            return self._comparison(number, self._number, field, "numeric")
        return self._comparison(f"(resources.spec #>> {path})", self._string, field, "text")

    def _identifier(self, column: str, field: str) -> str:
        follows = self._tokens[self._at : self._at + 2]
        if len(follows) == 2 and follows[0].text in ("=", "==") and follows[1].kind == "string":
            try:
                wanted = uuid.UUID(follows[1].text[1:-1])
            except ValueError:
                pass
            else:
                self._at += 2
                return f"{column} = {self._bind(wanted, 'uuid')}"
        return self._comparison(f"{column}::text", self._string, field, "text")

    def _comparison(self, value: str, read: Any, field: str, cast: str, *, only_operators: bool = False) -> str:
        token = self._next(f"an operator after {field[:100]!r}")
        if token.kind == "op":
            return f"{value} {_OPERATORS[token.text]} {self._bind(read(field), cast)}"
        if only_operators:
            raise BadRequest(f"search: {field[:100]!r} can only be compared")
        if token.word == "is":
            negated = self._accept("not")
            self._expect("null")
            return f"{value} IS {'NOT ' if negated else ''}NULL"
        negation = "NOT " if token.word == "not" else ""
        word = self._next("an operator").word if negation else token.word
        if word == "in":
            return f"{value} {'<> ALL' if negation else '= ANY'} ({self._bind(self._list(read, field), cast + '[]')})"
        if word == "between":
            low = self._bind(read(field), cast)
            self._expect("and")
            return f"{value} {negation}BETWEEN {low} AND {self._bind(read(field), cast)}"
        if word in ("like", "ilike"):
            if cast != "text":
                raise BadRequest(f"search: {field[:100]!r} is no text")
            return f"{value} {negation}{word.upper()} {self._bind(self._pattern(field), 'text')}"
        raise _unparsable(f"expected an operator after {field[:40]!r}, found {token.text[:40]!r}")

    # -- literals ----------------------------------------------------------------------------------------------------

    def _list(self, read: Any, field: str) -> list[Any]:
        closing = {"[": "]", "(": ")"}.get(self._next("'['").text)
        if closing is None:
            raise _unparsable(f"expected a list after 'in' of {field[:40]!r}")
        values = []
        while not self._accept(closing):
            values.append(read(field))
            if not self._accept(","):
                self._expect(closing)
                break
        if not values:
            raise BadRequest(f"search: the list after 'in' of {field[:100]!r} is empty")
        return values

    def _string(self, field: str) -> str:
        token = self._next(f"a value for {field[:100]!r}")
        if token.kind == "string":
            return token.text[1:-1]
        if token.kind in ("number", "time"):
            return token.text
        raise _unparsable(f"expected a value for {field[:40]!r}, found {token.text[:40]!r}")

    def _pattern(self, field: str) -> str:
        text = self._string(field)
        if text.endswith("\\") and (len(text) - len(text.rstrip("\\"))) % 2:
            raise BadRequest(f"search: the pattern for {field[:100]!r} ends in an escape")
        return text

    def _number(self, field: str) -> Decimal:
        token = self._next(f"a number for {field[:100]!r}")
        if token.kind != "number" or len(token.text) > 40:
            raise BadRequest(f"search: {field[:100]!r} is compared with numbers, not {token.text[:40]!r}")
        return Decimal(token.text)

    def _time(self, field: str) -> datetime:
        token = self._next(f"a time for {field[:100]!r}")
        try:
            moment = datetime.fromisoformat(token.text.strip("'\""))
        except ValueError:
            raise BadRequest(f"search: {field[:100]!r} is compared with times, not {token.text[:40]!r}") from None
        try:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except OverflowError:
            raise BadRequest(f"search: {token.text[:40]!r} is out of range") from None

    # -- tokens ------------------------------------------------------------------------------------------------------

    def _number_follows(self) -> bool:
        for token in self._tokens[self._at : self._at + 3]:
            if token.kind == "number":
                return True
            if token.kind == "string" or token.word in ("is", "like", "ilike"):
                return False
        return False

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("end", "")

    def _next(self, expected: str) -> _Token:
        token = self._peek()
        if token.kind == "end":
            raise _unparsable(f"expected {expected} at the end")
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if (token.word or token.text) == text and token.kind in ("word", "mark"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise _unparsable(f"expected {text!r}, found {self._peek().text[:40]!r}")

    def _bind(self, value: Any, cast: str) -> str:
        self._parameters.append(value)
        return f"${len(self._parameters)}::{cast}"
