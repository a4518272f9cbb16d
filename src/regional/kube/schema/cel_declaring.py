"""How a function of ours is made known to the CEL engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cel_expr_python import cel

_T = cel.Type
STRINGS = _T.List(_T.STRING)
ANYTHING = _T.List(_T.DYN)
ITEMS = (
    *(_T.INT, _T.UINT, _T.DOUBLE, _T.STRING, _T.BOOL, _T.BYTES, _T.TIMESTAMP, _T.DURATION),
    *(ANYTHING, _T.Map(_T.DYN, _T.DYN)),
)
"""What a list may hold, one by one: the engine picks a Python function by the types of its arguments."""

Form = tuple[Any, list[Any], Callable[..., Any], bool]
"""Result, parameters, the function, and whether it is called on its first parameter."""


def function(name: str, result: Any, parameters: list[Any], run: Callable[..., Any]) -> Any:
    return overloads(name, (result, parameters, run, False))


def method(name: str, result: Any, parameters: list[Any], run: Callable[..., Any]) -> Any:
    return overloads(name, (result, parameters, run, True))


def overloads(name: str, *forms: Form) -> Any:
    made = [
        cel.Overload(
            f"regional_{name.replace('.', '_')}_{index}",
            return_type=result,
            parameters=parameters,
            is_member=member,
            impl=run,
        )
        for index, (result, parameters, run, member) in enumerate(forms)
    ]
    return cel.FunctionDecl(name, made)


def succeeds(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check
