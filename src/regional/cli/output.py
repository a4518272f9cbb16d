"""How commands speak: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

FORMATS = ("table", "wide", "json", "yaml")

output_option = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print the result."
)
region_option = click.option(
    "--region", default="local", show_default=True, envvar="REGIONAL_REGION", help="Which region on this machine."
)


def print_value(value: Any, form: str) -> None:
    if form == "json":
        _write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    else:
        _write(msgspec.yaml.encode(msgspec.to_builtins(value)))


def _write(text: bytes) -> None:
    """All of it: with PYTHONUNBUFFERED a pipe takes what it has room for, and Python forgets the rest."""
    sys.stdout.flush()
    stream = sys.stdout.buffer
    while text:
        text = text[stream.write(text) or 0 :]
    stream.flush()


_CONTROLS = dict.fromkeys([*range(32), *range(127, 160), 0x2028, 0x2029], " ")


def printable(text: object) -> str:
    """On one line, and nothing that a terminal would obey: words of agents and clusters are shown here."""
    return str(text).translate(_CONTROLS)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[printable(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def age(moment: str, now: datetime | None = None) -> str:
    """kubectl's habit: 28s, 4m, 3h, 2d."""
    if not moment:
        return ""
    try:
        seconds = int(((now or datetime.now(UTC)) - datetime.fromisoformat(moment)).total_seconds())
    except ValueError:
        return ""
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{letter}"
    return f"{max(0, seconds)}s"


def last_seen(found: dict[str, Any]) -> str:
    """Of a management cluster, in a table or where it is described."""
    moment = str(found.get("last_seen_at", ""))
    return f"{age(moment)} ago" if moment else "never"


def interactive() -> bool:
    return sys.stdout.isatty()
