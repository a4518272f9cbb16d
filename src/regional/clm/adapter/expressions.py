"""CEL as task files use it: every name declared, compiled once, errors raised (the engine only returns them).

Besides CEL's own functions, strings, optionals and bindings there are those of HyperFleet's adapters that our files
use, and `feedback`, which gives a fed-back value in its own type where `statusFeedbackValue` knows only strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

_T = cel.Type
_MAP, _LIST = _T.Map(_T.DYN, _T.DYN), _T.List(_T.DYN)
# The engine chooses an overload by the value's type; "anything" matches nothing.
_ANY = (_MAP, _LIST, _T.STRING, _T.INT, _T.DOUBLE, _T.BOOL, _T.NULL)


class ExpressionError(Exception):
    pass


class Program:
    def __init__(self, text: str, compiled: Any) -> None:
        self._text = text
        self._compiled = compiled

    def evaluate(self, variables: dict[str, Any]) -> Any:
        try:
            outcome = self._compiled.eval(data=variables)
        except RuntimeError as error:
            raise ExpressionError(f"{_plain(str(error))} in {self._short()}") from None
        if outcome.type() == _T.ERROR:
            raise ExpressionError(f"{_plain(str(outcome.value()))} in {self._short()}")
        try:
            return outcome.plain_value()
        except TypeError:
            raise ExpressionError(f"the result is no JSON value in {self._short()}") from None

    def _short(self) -> str:
        text = " ".join(self._text.split())
        return repr(text if len(text) <= 120 else text[:117] + "...")


class Environment:
    def __init__(self, names: Iterable[str]) -> None:
        self._made = cel.NewEnv(
            variables=dict.fromkeys(names, _T.DYN),
            extensions=[
                ext_strings.ExtStrings(),
                ext_optional.ExtOptional(),
                ext_bindings.ExtBindings(),
                ext_math.ExtMath(),
                ext_encoders.ExtEncoders(),
            ],
            functions=_functions(),
        )

    def compile(self, text: str) -> Program:
        try:
            return Program(text, self._made.compile(text))
        except RuntimeError as error:
            raise ExpressionError(f"no valid CEL: {_plain(str(error))}") from None


def _plain(message: str) -> str:
    return " ".join(message.removesuffix(" [INVALID_ARGUMENT]").split()).removeprefix("INVALID_ARGUMENT: ")


def condition_status(conditions: Any, kind: str) -> str:
    found = [entry for entry in conditions or [] if isinstance(entry, dict) and entry.get("type") == kind]
    return str(found[0].get("status", "Unknown")) if found else "Unknown"


def feedback(status_feedback: Any, name: str) -> Any:
    """A fed-back value as it was on the management cluster; None if it is not there (yet)."""
    for value in (status_feedback or {}).get("values") or []:
        if value.get("name") != name:
            continue
        field = value.get("fieldValue") or {}
        match field.get("type"):
            case "JsonRaw":
                try:
                    return msgspec.json.decode(field.get("jsonRaw") or "null")
                except msgspec.DecodeError:
                    return None
            case "Integer":
                return field.get("integer")
            case "Boolean":
                return field.get("boolean")
            case _:
                return field.get("string")
    return None


def _feedback_text(status_feedback: Any, name: str) -> str:
    found = feedback(status_feedback, name)
    return found if isinstance(found, str) else ""


def _dig(document: Any, path: str) -> Any:
    for step in path.split("."):
        document = document.get(step) if isinstance(document, dict) else None
    return document


def _functions() -> list[Any]:
    return [
        _function("toJson", _T.STRING, [[kind] for kind in _ANY], lambda value: msgspec.json.encode(value).decode()),
        _function("dig", _T.DYN, [[_MAP, _T.STRING], [_T.NULL, _T.STRING]], _dig),
        _function("conditionStatus", _T.STRING, [[_LIST, _T.STRING], [_T.NULL, _T.STRING]], condition_status),
        _function("statusFeedbackValue", _T.STRING, [[_MAP, _T.STRING], [_T.NULL, _T.STRING]], _feedback_text),
        _function("feedback", _T.DYN, [[_MAP, _T.STRING], [_T.NULL, _T.STRING]], feedback),
        _function(
            "triState",
            _T.STRING,
            [[_T.BOOL, _T.BOOL]],
            lambda yes, no: "True" if yes else ("False" if no else "Unknown"),
        ),
    ]


def _function(name: str, result: Any, signatures: list[list[Any]], run: Callable[..., Any]) -> Any:
    overloads = [
        cel.Overload(f"clm_{name}_{index}", return_type=result, parameters=parameters, is_member=False, impl=run)
        for index, parameters in enumerate(signatures)
    ]
    return cel.FunctionDecl(name, overloads)
