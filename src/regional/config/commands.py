"""`regionctl config …`: thin doors to load, render, deploy and explain."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from regional.config import deploy
from regional.config.explain import explain
from regional.config.load import load
from regional.config.model import Configuration
from regional.config.render import render
from regional.config.shape import json_schema
from regional.core import paths
from regional.core.problems import UserError


@click.group("config", help="Declared regions: check, render and explain config.yaml.")
@click.option(
    "--checkout",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="Folder with config.yaml, deploy/ and argocd/ (default: the project's own).",
)
@click.pass_context
def config(context: click.Context, checkout: Path | None) -> None:
    context.obj = checkout or paths.checkout()


def _load(checkout: Path) -> Configuration:
    return load(checkout / "config.yaml")


@config.command("validate", help="Report everything that is wrong with config.yaml.")
@click.pass_obj
def validate_command(checkout: Path) -> None:
    configuration = _load(checkout)
    render(configuration, checkout / "argocd" / "config")
    clusters = sum(len(region.management_clusters) for region in configuration.regions)
    click.echo(f"config.yaml is valid: {len(configuration.regions)} regions, {clusters} management clusters")


@config.command("render", help="Write deploy/ from config.yaml.")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; fail when deploy/ is not what it would be.")
@click.pass_obj
def render_command(checkout: Path, check_only: bool) -> None:
    rendered = render(_load(checkout), checkout / "argocd" / "config")
    target = checkout / "deploy"
    changes = deploy.check(rendered, target) if check_only else deploy.write(rendered, target)
    for change in changes:
        click.echo(f"{change.kind:8} deploy/{change.path}")
    if check_only and changes:
        raise UserError(
            f"deploy/ differs from config.yaml in {len(changes)} files", "run `regionctl config render` and commit"
        )
    verdict = "up to date" if not changes else f"{len(changes)} files changed"
    click.echo(f"deploy/: {len(rendered)} files, {verdict}")


@config.command("explain", help="Say which level and line set a value, and what it overrode.")
@click.argument("path")
@click.option("--region", required=True, help="Region name, or environment/name.")
@click.option("--cluster", default=None, help="Management cluster of that region.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_obj
def explain_command(checkout: Path, path: str, region: str, cluster: str | None, output: str) -> None:
    found = explain(_load(checkout), path, region, cluster)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    for item in found:
        click.echo(f"{item.path} = {_short(item.value)}")
        written = item.set_by.written
        template = f", written {_short(written)}" if written != item.value else ""
        click.echo(f"  set by   {item.set_by}{template}")
        for origin in item.overrode:
            click.echo(f"  overrode {origin}: {_short(origin.written)}")


@config.command("schema", help="Print the JSON Schema of config.yaml, for editors.")
def schema_command() -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode()
