"""The CEL rules of a CRD (`x-kubernetes-validations`): compiled once per schema, run where their part of the object is.

Rules about a changed value see `self`; rules that mention `oldSelf` run only where the old value is known to be the
same thing (same field, same key). The engine stops a rule that iterates too long, so no object can hold the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cel_expr_python import cel
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from regional.kube.objects import Obj
from regional.kube.schema.cel_functions import environment, environment_with_optional_old
from regional.kube.schema.cel_text import adapted
from regional.kube.schema.errors import FieldError
from regional.kube.schema.openapi_validation import NOTHING, correlated_items, shown
from regional.kube.schema.types import Schema

_OLD_SELF = re.compile(r"\boldSelf\b")
_STRING_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_PLAIN_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*$")
_RESERVED = {
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
}
_ESCAPES = {".": "__dot__", "-": "__dash__", "/": "__slash__", "__": "__underscores__"}
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|μs|ns)")
_STOPPED = "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to"
_GO_WORDS = (
    (re.compile(r"^divide by zero$"), "division by zero"),
    (re.compile(r'^Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"^no_such_field : (.*)$"), r"no such key: \1"),
    (re.compile(r"^Index error: index=(-?\d+) size=\d+$"), r"index out of bounds: \1"),
)
_REASON_TEXT = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def check_rules(obj: Obj, old: Obj | None, schema: Schema) -> list[FieldError]:
    """What the schema's rules say against the object."""
    if schema.structural is None:
        return []
    if schema.rules is None:
        schema.rules = RuleNode(schema.structural)
    tree: RuleNode = schema.rules
    if not tree.busy:
        return []
    found: list[FieldError] = []
    try:
        found.extend(tree.check(obj, NOTHING if old is None else old, ""))
    except _TooCostly as last:
        found.append(last.finding)
    return found


class _TooCostly(Exception):
    """A rule was stopped because it ran too long; no further one is run."""

    def __init__(self, finding: FieldError) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Rule:
    """One rule; its expressions are compiled when they are first needed."""

    __slots__ = (
        "_message_program",
        "_message_text",
        "_program",
        "field_path",
        "message",
        "name",
        "optional_old",
        "reason",
        "text",
        "transition",
    )

    def __init__(self, declared: Obj) -> None:
        self.text: str = declared.get("rule") or ""
        self.message: str = (declared.get("message") or "").strip() or f"failed rule: {self.text.strip()}"
        self.name: str = (declared.get("message") or "").strip() or self.text.strip()
        self.reason: str = declared.get("reason") or "FieldValueInvalid"
        self.field_path: str = declared.get("fieldPath") or ""
        self.optional_old = bool(declared.get("optionalOldSelf"))
        self.transition = bool(_OLD_SELF.search(_STRING_LITERAL.sub("", self.text)))
        self._message_text: str = declared.get("messageExpression") or ""
        self._program: Any = None
        self._message_program: Any = None

    def run(self, value: Any, old: Any) -> FieldErrorText | None:
        """None if the rule holds."""
        data = {"self": value}
        if self.optional_old:
            data["hasOldSelf"] = old is not NOTHING
            data["givenOldSelf"] = None if old is NOTHING else old
        elif old is not NOTHING:
            data["oldSelf"] = old
        try:
            if self._program is None:
                self._program = self._compile(self.text)
            outcome = self._program.eval(data=data)
        except RuntimeError as error:
            if "budget" in str(error):
                return FieldErrorText(f"{_STOPPED} call cost exceeds limit for rule: {self.text}", final=True)
            return FieldErrorText(f"rule compile error: {error}")
        except ValueError as error:  # the engine's own functions, at the end of their means
            return FieldErrorText(f"{error} evaluating rule: {self.name}", failed=True)
        if outcome.type() == cel.Type.ERROR:
            return FieldErrorText(_engine_text(outcome, self.name), failed=True)
        if outcome.value() is True:
            return None
        return FieldErrorText(self._explain(data), self.reason)

    def _compile(self, text: str) -> Any:
        return compiled(text, optional_old=self.optional_old)

    def _explain(self, data: Obj) -> str:
        if not self._message_text:
            return self.message
        try:
            if self._message_program is None:
                self._message_program = self._compile(self._message_text)
            outcome = self._message_program.eval(data=data)
        except (RuntimeError, ValueError):
            return self.message
        text = outcome.value() if outcome.type() == cel.Type.STRING else ""
        return text if isinstance(text, str) and text.strip() and "\n" not in text else self.message


def compiled(text: str, *, optional_old: bool = False) -> Any:
    """The expression as a program; RuntimeError with the engine's words if it is none."""
    text = adapted(text)
    if not optional_old:
        return environment().compile(text)
    text = f"cel.bind(oldSelf, hasOldSelf ? optional.of(givenOldSelf) : optional.none(), {text}\n)"
    return environment_with_optional_old().compile(text)


class FieldErrorText:
    """Why a rule did not hold: the words, and the reason it declares. `failed`: it could not be run to its end."""

    __slots__ = ("failed", "final", "reason", "text")

    def __init__(
        self, text: str, reason: str = "FieldValueInvalid", *, final: bool = False, failed: bool = False
    ) -> None:
        self.text = text
        self.reason = reason
        self.final = final
        self.failed = failed


def _engine_text(outcome: Any, rule: str) -> str:
    """The engine's words for a rule that could not be run, as Go's engine has them."""
    text = re.sub(r"^[A-Z_]+: ", "", str(outcome.value()))
    if "No matching overloads" in text or text.startswith("Applying SELECT") or text == "no such overload":
        return (
            "'no such overload': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {rule}"
        )
    for pattern, words in _GO_WORDS:
        text = pattern.sub(words, text)
    return f"{text} evaluating rule: {rule}"


class RuleNode:
    """The rules at one place of a schema and below it."""

    __slots__ = ("_extra", "_items", "_plain", "_properties", "_schema", "busy", "rules")

    busy: bool

    def __init__(self, schema: Obj) -> None:
        self._schema = schema
        self.rules = [Rule(declared) for declared in schema.get("x-kubernetes-validations") or ()]
        below = {name: RuleNode(child) for name, child in (schema.get("properties") or {}).items()}
        self._properties = {name: node for name, node in below.items() if node.busy}
        self._extra = _busy(schema.get("additionalProperties"))
        self._items = _busy(schema.get("items"))
        self._plain = bool(self.rules) and _is_plain(schema)
        self.busy = bool(self.rules or self._properties or self._extra or self._items)

    def check(self, value: Any, old: Any, path: str) -> Iterator[FieldError]:
        if value is None:
            return
        if self.rules:
            yield from self._own(value, old, path)
        if isinstance(value, dict):
            earlier = old if isinstance(old, dict) else {}
            for name, item in value.items():
                node = self._properties.get(name)
                if node is None and self._extra is not None and name not in (self._schema.get("properties") or {}):
                    node = self._extra
                if node is not None:
                    yield from node.check(item, earlier.get(name, NOTHING), f"{path}.{name}" if path else name)
        elif isinstance(value, list) and self._items is not None:
            partner = correlated_items(old, self._schema)
            for index, item in enumerate(value):
                yield from self._items.check(item, partner(item), f"{path}[{index}]")

    def _own(self, value: Any, old: Any, path: str) -> Iterator[FieldError]:
        same = old is not NOTHING and old == value
        current: Any = NOTHING
        before: Any = NOTHING
        for rule in self.rules:
            if rule.transition and old is NOTHING and not rule.optional_old:
                continue
            if same and not rule.transition:
                continue
            if current is NOTHING:
                current = value if self._plain else to_cel(value, self._schema)
                before = old if self._plain or old is NOTHING else to_cel(old, self._schema)
            problem = rule.run(current, before)
            if problem is not None and (problem.final or problem.failed):
                text = f'Invalid value: "{self._schema.get("type") or ""}": {problem.text}'
                finding = FieldError(path or "<nil>", problem.reason, text)
                if problem.final:
                    raise _TooCostly(finding)
                yield finding
                continue
            if problem is not None:
                yield _finding(problem, value, (path + rule.field_path).removeprefix("."))


def _busy(schema: Any) -> RuleNode | None:
    if not isinstance(schema, dict):
        return None
    node = RuleNode(schema)
    return node if node.busy else None


def _finding(problem: FieldErrorText, value: Any, path: str) -> FieldError:
    head = _REASON_TEXT.get(problem.reason, "Invalid value")
    if problem.reason == "FieldValueDuplicate":
        return FieldError(path, problem.reason, f"{head}: {shown(value)}")
    if problem.reason == "FieldValueInvalid" and not isinstance(value, (dict, list)):
        return FieldError(path, problem.reason, f"{head}: {shown(value)}: {problem.text}")
    return FieldError(path or "<nil>", problem.reason, f"{head}: {problem.text}")


# --- values as rules see them --------------------------------------------------------------------------------------


def _is_plain(schema: Any) -> bool:
    """The value can be handed over as it is: no times, no doubles, no names that CEL cannot spell."""
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "number" or schema.get("format") in ("date-time", "datetime", "date", "duration", "byte"):
        return False
    properties = schema.get("properties") or {}
    return (
        all(escaped(name) == name and _is_plain(child) for name, child in properties.items())
        and _is_plain(schema.get("items"))
        and _is_plain(schema.get("additionalProperties"))
    )


def escaped(name: str) -> str:
    """A property name as rules must write it: `__namespace__`, `foo__dash__bar`."""
    if name in _RESERVED:
        return f"__{name}__"
    if _PLAIN_NAME.match(name):
        return name
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found.group(0)], name)


def to_cel(value: Any, schema: Obj) -> Any:
    """The value in CEL's types, as its schema declares them."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        return {
            (escaped(name) if name in properties else name): to_cel(
                item, properties.get(name) or (extra if isinstance(extra, dict) else {})
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items")
        return [to_cel(item, items) for item in value] if isinstance(items, dict) else value
    if isinstance(value, str):
        return _string_to_cel(value, schema.get("format"))
    if schema.get("type") == "number" and not isinstance(value, bool) and isinstance(value, int):
        return float(value)
    return value


def _string_to_cel(value: str, wanted: Any) -> Any:
    if wanted in ("date-time", "datetime", "date"):
        moment = Timestamp()
        try:
            moment.FromJsonString(value if wanted != "date" else f"{value}T00:00:00Z")
        except ValueError:
            return value
        return moment
    if wanted == "duration":
        parts = _DURATION_PART.findall(value)
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
        nanos = round((-seconds if value.startswith("-") else seconds) * 1e9)
        span = Duration()
        span.FromNanoseconds(nanos)
        return span
    return value
