"""Label and field selectors: parsed once a request, matched against the small index beside each object's bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from regional.kube.apiserver.entries import Entry
from regional.kube.apiserver.errors import bad_request

_TOKEN = re.compile(r"\s*(==|!=|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_ALPHANUMERIC = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")


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
        try:
            limit = int(next(iter(self.values)))
            number = int(value or "")
        except ValueError:
            return False
        return number > limit if self.operator == ">" else number < limit


class LabelSelector(msgspec.Struct, frozen=True):
    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldSelector(msgspec.Struct, frozen=True):
    """(field, wanted, equal?) conjunctions; `metadata.name` and `metadata.namespace` are the entry's own."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, entry: Entry) -> bool:
        for field, wanted, equal in self.terms:
            if field == "metadata.name":
                value = entry.name
            elif field == "metadata.namespace":
                value = entry.namespace
            else:
                value = entry.fields.get(field, "")
            if (value == wanted) != equal:
                return False
        return True

    def equalities(self) -> dict[str, str]:
        return {field: wanted for field, wanted, equal in self.terms if equal}


def _refuse(text: str, why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}") if text else bad_request(why)


def parse_labels(text: str) -> LabelSelector:
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _refuse(text, f"found unparsable text in {text!r}")
    requirements: list[Requirement] = []
    position = 0
    while position < len(tokens):
        requirement, position = _requirement(text, tokens, position)
        requirements.append(requirement)
        if position < len(tokens):
            if tokens[position] != "," or position + 1 == len(tokens):
                raise _refuse(text, f"found '{tokens[position]}', expected: ',' or 'end of string'")
            position += 1
    return LabelSelector(tuple(requirements))


def _requirement(text: str, tokens: list[str], position: int) -> tuple[Requirement, int]:
    absent = tokens[position] == "!"
    position += absent
    key = tokens[position] if position < len(tokens) else ""
    if not _KEY.match(key) or len(key.rpartition("/")[2]) > 63:
        if not key or key[0] in "=!<>(),":
            raise _refuse(text, f"found '{key}', expected: !, identifier, or 'end of string'")
        raise _refuse(text, f'<nil>: Invalid value: "{key}": name part {_ALPHANUMERIC}')
    position += 1
    if absent:
        return Requirement(key, "absent"), position
    operator = tokens[position] if position < len(tokens) else ","
    if operator == ",":
        return Requirement(key, "exists"), position
    position += 1
    if operator in ("in", "notin"):
        values, position = _value_list(text, tokens, position)
        return Requirement(key, operator, values), position
    if operator not in ("=", "==", "!=", ">", "<"):
        raise _refuse(text, f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    value = ""
    if position < len(tokens) and tokens[position] not in (",", ")", "("):
        value = tokens[position]
        position += 1
    if operator in "<>":
        if not re.fullmatch(r"-?\d+", value):
            raise _refuse(
                text,
                f"values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer",
            )
    else:
        _check_value(text, key, value)
    return Requirement(key, "=" if operator == "==" else operator, frozenset((value,))), position


def _value_list(text: str, tokens: list[str], position: int) -> tuple[frozenset[str], int]:
    if position >= len(tokens) or tokens[position] != "(":
        found = tokens[position] if position < len(tokens) else ""
        raise _refuse(text, f"found '{found}' expected: '('")
    position += 1
    values: set[str] = set()
    value = ""
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token in (",", ")"):
            values.add(value)
            value = ""
            if token == ")":
                for each in values:
                    _check_value(text, "", each)
                return frozenset(values), position
        elif token in ("(", "=", "==", "!=", "!", "<", ">") or value:
            raise _refuse(text, f"found '{token}', expected: ',', or ')'")
        else:
            value = token
    raise _refuse(text, "found '', expected: ',', or ')'")


def _check_value(text: str, key: str, value: str) -> None:
    if not _VALUE.match(value):
        rule = "a valid label must be an empty string or " + _ALPHANUMERIC.removeprefix("must ")
        raise _refuse(text, f'values[0][{key}]: Invalid value: "{value}": {rule}')
    if len(value) > 63:
        raise _refuse(text, f'values[0][{key}]: Invalid value: "{value}": must be no more than 63 bytes')


def parse_fields(text: str, known: tuple[str, ...]) -> FieldSelector:
    terms: list[tuple[str, str, bool]] = []
    for part in _split_fields(text):
        match = re.match(r"^([^=!]+)(!=|==|=)(.*)$", part, re.DOTALL)
        if not match:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = match.group(1).strip(), match.group(2), match.group(3)
        if field not in ("metadata.name", "metadata.namespace") and field not in known:
            if known:
                raise bad_request(f"field label not supported: {field}")
            raise bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        terms.append((field, re.sub(r"\\(.)", r"\1", value), operator != "!="))
    return FieldSelector(tuple(terms))


def _split_fields(text: str) -> list[str]:
    """Commas separate, unless a backslash stands before them."""
    return [part for part in re.split(r"(?<!\\),", text) if part.strip()]
