"""Typed settings of a role: one msgspec struct, filled from flags, then environment, then defaults.

A field `db_secret` is the flag `--db-secret` and the variable `DB_SECRET`. A role's struct is its documentation:
`regionctl serve ROLE --help` prints it. Unknown flags and bad values are reported all at once.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

import msgspec

from regional.core.problems import UserError

T = TypeVar("T", bound=msgspec.Struct)


def load(kind: type[T], argv: Sequence[str], environ: Mapping[str, str] | None = None) -> T:
    environ = os.environ if environ is None else environ
    if "-h" in argv or "--help" in argv:
        print_help(kind)
        raise SystemExit(0)
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    problems: list[str] = []
    for name in kind.__struct_fields__:
        if (value := environ.get(name.upper())) is not None:
            given[name] = value
    flags = {"--" + name.replace("_", "-"): name for name in kind.__struct_fields__}
    rest = list(argv)
    while rest:
        flag, separator, inline = rest.pop(0).partition("=")
        if flag not in flags:
            near = difflib.get_close_matches(flag, flags, 1)
            problems.append(f"unknown flag {flag}" + (f" (did you mean {near[0]}?)" if near else ""))
            continue
        name = flags[flag]
        if separator:
            given[name] = inline
        elif hints[name] is bool:
            given[name] = "true"
        elif rest:
            given[name] = rest.pop(0)
        else:
            problems.append(f"{flag} needs a value")
    values: dict[str, Any] = {}
    for name, raw in given.items():
        try:
            values[name] = _convert(raw, hints[name])
        except msgspec.ValidationError as error:
            problems.append(f"--{name.replace('_', '-')}: {error}")
    required = [f.name for f in msgspec.structs.fields(kind) if f.required and f.name not in given]
    problems += [f"--{name.replace('_', '-')} is required" for name in required]
    if problems:
        raise UserError("; ".join(problems), hint="see --help", exit_code=2)
    return kind(**values)


def _convert(raw: str, hint: Any) -> Any:
    if hint == list[str]:
        return [part.strip() for part in raw.split(",") if part.strip()]
    return msgspec.convert(raw, hint, strict=False)


def print_help(kind: type[msgspec.Struct]) -> None:
    print("Flags, each also a variable of the environment (--log-level is LOG_LEVEL):")
    rows = describe(kind)
    width = max((len(flag) for flag, _ in rows), default=0)
    for flag, text in rows:
        print(f"  {flag:<{width}}  {text}")


def describe(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """(flag, default or `required`) for help texts."""
    rows = []
    for field in msgspec.structs.fields(kind):
        flag = "--" + field.name.replace("_", "-")
        if field.required:
            rows.append((flag, "required"))
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            rows.append((flag, f"default {default!r}"))
    return rows
