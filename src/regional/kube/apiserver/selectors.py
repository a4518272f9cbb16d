"""Field selectors, and labels' beside them: parsed once a request, matched against the small index beside each
object's bytes."""

from __future__ import annotations

import re

import msgspec

from regional.kube.apiserver.entries import Entry
from regional.kube.apiserver.errors import bad_request
from regional.kube.apiserver.label_grammar import LabelSelector, Requirement, parse_labels
from regional.kube.schema.registry import Kind

__all__ = ["FieldSelector", "LabelSelector", "Requirement", "parse_fields", "parse_labels"]

_OPERATOR = re.compile(r"!=|==|=")


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


def parse_fields(text: str, kind: Kind) -> FieldSelector:
    terms: list[tuple[str, str, bool]] = []
    for part in _terms(text):
        operator = _OPERATOR.search(part)
        if operator is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = part[: operator.start()], _unescaped(part[operator.end() :])
        if not field and not value:
            continue  # the real server takes nothing = nothing for no condition
        if field not in _fields(kind):
            raise bad_request(_unknown(field, kind))
        terms.append((field, value, operator.group() != "!="))
    return FieldSelector(tuple(terms))


def _fields(kind: Kind) -> tuple[str, ...]:
    """Cluster-wide kinds that list their fields do not list a namespace; the others never thought of it."""
    placeless = bool(kind.selectable_fields) and not kind.namespaced and kind.custom is None
    return ("metadata.name", *(() if placeless else ("metadata.namespace",)), *kind.selectable_fields)


def _unknown(field: str, kind: Kind) -> str:
    if (kind.group, kind.kind) == ("batch", "Job"):
        return f'field label "{field}" not supported for Job'
    if kind.selectable_fields:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _terms(text: str) -> list[str]:
    """Commas separate, unless a backslash stands before them."""
    return [part for part in re.findall(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL) if part]


def _unescaped(value: str) -> str:
    result: list[str] = []
    letters = iter(value)
    for letter in letters:
        if letter == "\\":
            letter = next(letters, "")
            if letter not in ("\\", ",", "="):
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{letter}")
        elif letter in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(letter)}")
        result.append(letter)
    return "".join(result)
