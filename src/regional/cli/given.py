"""What people give a command to send: a file or stdin, `--set path=value`, `--label key=value`, made into one body."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from regional.core.problems import UserError

Document = dict[str, Any]

_LARGEST = 1 << 20
# What the API shows of a resource and nobody sends: output of `describe -o yaml` can be given back.
_SHOWN_ONLY = frozenset(
    {"id", "kind", "href", "target_project_id", "created_by", "generation", "resource_version", "status", "created_at"}
    | {"updated_at", "deleted_at", "nodepools", "history"}
)

file_option = click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="YAML or JSON: a spec, or a whole resource with name, spec and labels; - is stdin.",
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="A field of the spec, over what --file says."
)
label_option = click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; may be repeated.")


def read_document(file: str) -> Document:
    """One YAML or JSON object."""
    import yaml

    try:
        if file == "-":
            text = sys.stdin.read(_LARGEST + 1)
        else:
            with Path(file).open(encoding="utf-8") as stream:
                text = stream.read(_LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}", exit_code=2) from None
    if len(text) > _LARGEST:
        raise UserError(f"{file} has more than {_LARGEST} characters", exit_code=2)
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UserError(
            f"{file} is not valid YAML{line}: {getattr(error, 'problem', None) or error}", exit_code=2
        ) from None
    if not isinstance(found, dict):
        raise UserError(f"{file} must hold one object, it holds {_kind(found)}", exit_code=2)
    return found


def resource_of(file: str | None) -> Document:
    """`name`, `spec` and `labels` as a file gives them; a file without `spec` and `name` is a spec."""
    if not file:
        return {}
    found = read_document(file)
    if "spec" not in found and "name" not in found:
        return {"spec": found}
    return {field: value for field, value in found.items() if field not in _SHOWN_ONLY}


def with_settings(spec: Any, settings: tuple[str, ...]) -> Document:
    """`release.version=4.20.1` sets a field; values are YAML, so that true, 3 and null are what they look like."""
    import yaml

    if not isinstance(spec, dict | None):
        raise UserError(f"spec must be an object, it is {_kind(spec)}", exit_code=2)
    made: Document = dict(spec or {})
    for setting in settings:
        path, equals, text = setting.partition("=")
        fields = path.split(".")
        if not equals or not all(fields):
            raise UserError(f"--set {setting!r} is not PATH=VALUE", "such as --set release.version=4.20.1", 2)
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        target = made
        for field in fields[:-1]:
            below = target.get(field)
            target[field] = dict(below) if isinstance(below, dict) else {}
            target = target[field]
        target[fields[-1]] = value
    return made


def labels_of(given: Any, labels: tuple[str, ...]) -> Document:
    made: Document = dict(given or {}) if isinstance(given, dict | None) else {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not equals or not key:
            raise UserError(f"--label {label!r} is not KEY=VALUE", "such as --label team=blue", 2)
        made[key] = value
    return made


def _kind(value: Any) -> str:
    names = {list: "a list", str: "text", int: "a number", type(None): "nothing"}
    return names.get(type(value), "something else")
