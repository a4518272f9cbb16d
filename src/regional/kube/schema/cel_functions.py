"""The CEL that rules of a CRD are written in: the standard library, Go's extensions, and what Kubernetes adds."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math
from google.protobuf.duration_pb2 import Duration

from regional.kube.schema import cel_formats, cel_network, cel_quantities, cel_strings
from regional.kube.schema.cel_declaring import ANYTHING, STRINGS, function, method, overloads
from regional.kube.schema.linear_regex import find_all

_T = cel.Type
LONGEST_RANGE = 100_000
_EXTENSIONS = """
name: kubernetes
extensions: [{name: optional}, {name: lists}, {name: sets}, {name: two-var-comprehensions}]
"""


@cache
def environment() -> Any:
    """The one environment in which rules of CRDs are compiled."""
    return _made({"self": _T.DYN, "oldSelf": _T.DYN}, [])


@cache
def environment_with_optional_old() -> Any:
    """For rules that run without an old value too; `cel.bind` makes `oldSelf` an optional."""
    variables = {"self": _T.DYN, "hasOldSelf": _T.BOOL, "givenOldSelf": _T.DYN}
    return _made(variables, [ext_bindings.ExtBindings()])


def environment_with(variables: dict[str, Any]) -> Any:
    """The same functions, and a few more, for expressions that speak of other things."""
    return _made(variables, [ext_bindings.ExtBindings(), ext_math.ExtMath(), ext_encoders.ExtEncoders()])


def _made(variables: dict[str, Any], extensions: list[Any]) -> Any:
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_EXTENSIONS),
        variables=variables,
        extensions=extensions,
        functions=[
            *_declarations(),
            *cel_strings.declarations(),
            *cel_network.declarations(),
            *cel_quantities.declarations(),
            *cel_formats.declarations(),
        ],
    )


@cache
def _matcher() -> Any:
    return environment().compile("self.matches(oldSelf)")


def matches_pattern(pattern: str, text: str) -> bool:
    """Whether a Go regular expression finds a match; done by the engine because its dialect and cost are the same.

    A pattern that is no valid expression matches everything: the CRD was accepted with it.
    """
    found = _matcher().eval(data={"self": text, "oldSelf": pattern})
    return bool(found.type() == _T.ERROR or found.value())


def is_pattern(pattern: str) -> bool:
    """Whether it is a Go regular expression."""
    return bool(_matcher().eval(data={"self": "", "oldSelf": pattern}).type() != _T.ERROR)


def _find(text: str, pattern: str) -> str:
    return next(iter(find_all(pattern, text, 1)), "")


def _find_all(text: str, pattern: str) -> list[str]:
    return find_all(pattern, text)


def _find_some(text: str, pattern: str, limit: int) -> list[str]:
    return find_all(pattern, text, limit)


def _is_sorted(items: list[Any]) -> bool:
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _sum(items: list[Any]) -> Any:
    total = sum(items[1:], start=items[0]) if items else 0
    if not isinstance(total, timedelta):
        return total
    span = Duration()
    span.FromTimedelta(total)
    return span


def _up_to(end: int) -> list[int]:
    if end > LONGEST_RANGE:
        raise ValueError("operation cancelled: actual cost limit exceeded")
    return list(range(end))


def _extreme(name: str, choose: Any) -> Any:
    def run(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return choose(items)

    return run


def _declarations() -> list[Any]:
    text, number, yes = _T.STRING, _T.INT, _T.BOOL
    return [
        method("find", text, [text, text], _find),
        overloads(
            "findAll",
            (STRINGS, [text, text], _find_all, True),
            (STRINGS, [text, text, number], _find_some, True),
        ),
        function("lists.upTo", _T.List(number), [number], _up_to),
        method("isSorted", yes, [ANYTHING], _is_sorted),
        method("sum", _T.DYN, [ANYTHING], _sum),
        method("min", _T.DYN, [ANYTHING], _extreme("min", min)),
        method("max", _T.DYN, [ANYTHING], _extreme("max", max)),
    ]
