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
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
    else:
        click.echo(msgspec.yaml.encode(msgspec.to_builtins(value)).decode(), nl=False)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(str(row[i])) for row in [headers, *rows]) for i in range(len(headers))]
    for row in [headers, *rows]:
        click.echo("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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


def interactive() -> bool:
    return sys.stdout.isatty()
