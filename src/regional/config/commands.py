"""`regionctl config …`: thin doors to load, render, deploy and explain."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import IO

import click
import msgspec

from regional.config import deploy
from regional.config.checkout import Git, bring_up_to_date, validated
from regional.config.difference import difference, difference_text
from regional.config.exchange import alone
from regional.config.explain import explain
from regional.config.graph import graph
from regional.config.load import load, load_region, load_text
from regional.config.memory import Memory
from regional.config.migrate import migrate
from regional.config.model import Configuration
from regional.config.render import render
from regional.config.repository import Repository
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
    if gc.isenabled():  # hundreds of thousands of objects, hardly one of them garbage
        gc.disable()
        context.call_on_close(gc.enable)


_NO_GIT = click.option("--no-git", is_flag=True, help="Do not look pinned commits up in the repository.")


_GIT_IF_THERE = click.option(
    "--git-if-there", is_flag=True, help="Look pinned commits up only where their history is (not in exported copies)."
)


def _git(no_git: bool, git_if_there: bool) -> Git:
    return Git.LEAVE_OUT if no_git else Git.IF_THERE if git_if_there else Git.ASK


def _validated(checkout: Path, git: Git, *, quietly: bool = False, memory: Memory | None = None) -> Configuration:
    configuration, warnings = validated(checkout, git=git, memory=memory)
    for warning in warnings:
        if quietly and warning in configuration.warnings:
            continue
        click.echo(f"warning: {warning}", err=True)
    return configuration


@config.command("validate", help="Report everything that is wrong with config.yaml.")
@_NO_GIT
@_GIT_IF_THERE
@click.pass_obj
def validate_command(checkout: Path, no_git: bool, git_if_there: bool) -> None:
    configuration = _validated(checkout, _git(no_git, git_if_there))
    clusters = sum(len(region.management_clusters) for region in configuration.regions)
    click.echo(f"config.yaml is valid: {len(configuration.regions)} regions, {clusters} management clusters")


@config.command("render", help="Write deploy/ from config.yaml.")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; fail when deploy/ is not what it would be.")
@_NO_GIT
@_GIT_IF_THERE
@click.pass_obj
def render_command(checkout: Path, check_only: bool, no_git: bool, git_if_there: bool) -> None:
    git = _git(no_git, git_if_there)
    if check_only:
        rendered = render(_validated(checkout, git, quietly=True))
        changes, count = deploy.compare(rendered, checkout / "deploy"), len(rendered)
    else:
        with alone(checkout):
            memory = Memory(checkout)
            configuration = _validated(checkout, git, quietly=True, memory=memory)
            changes, count = bring_up_to_date(configuration, checkout, memory)
    _list_changes(changes)
    if check_only and changes:
        raise UserError(
            f"deploy/ differs from config.yaml in {len(changes)} files", "run `regionctl config render` and commit"
        )
    verdict = "up to date" if not changes else f"{len(changes)} files changed"
    click.echo(f"deploy/: {count} files, {verdict}")


def _list_changes(changes: list[deploy.Change], most: int = 200) -> None:
    for change in changes[:most]:
        click.echo(f"{change.kind:8} deploy/{change.path}")
    if len(changes) > most:
        click.echo(f"… and {len(changes) - most} more")


@config.command("explain", help="Say which level and line set a value, and what it overrode.")
@click.argument("path")
@click.option("--region", required=True, help="Region name, or environment/name.")
@click.option("--cluster", default=None, help="Management cluster of that region.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_obj
def explain_command(checkout: Path, path: str, region: str, cluster: str | None, output: str) -> None:
    found = explain(load_region(checkout / "config.yaml", region), path, region, cluster)
    if output == "json":
        click.echo(_json(found), nl=False)
        return
    for item in found:
        click.echo(f"{item.path} = {_short(item.value)}")
        written = item.set_by.written
        template = f", written {_short(written)}" if written != item.value else ""
        click.echo(f"  set by   {item.set_by}{template}")
        for origin in item.overrode:
            click.echo(f"  overrode {origin}: {_short(origin.written)}")


@config.command("diff", help="Say what the change since revision REV (of config.yaml) does to each region.")
@click.argument("revision", metavar="REV")
@click.argument("until", metavar="[REV2]", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_obj
def diff_command(checkout: Path, revision: str, until: str | None, output: str) -> None:
    repository = Repository(checkout)
    before = _at(repository, revision)
    found = difference(before, _at(repository, until) if until else load(checkout / "config.yaml"))
    click.echo(_json(found) if output == "json" else difference_text(found), nl=False)


def _at(repository: Repository, revision: str) -> Configuration:
    commit = repository.resolve(revision)
    text = repository.contents([(commit, "config.yaml")]).get((commit, "config.yaml"))
    if text is None:
        raise UserError(f"commit {commit[:8]} has no config.yaml")
    return load_text(text, f"config.yaml at {revision}")


@config.command("graph", help="Draw sectors, regions and pins as SVG.")
@click.option("-o", "--output", type=click.File("w", atomic=True), default="-", help="File to write; stdout if absent.")
@click.pass_obj
def graph_command(checkout: Path, output: IO[str]) -> None:
    output.write(graph(load(checkout / "config.yaml")))


@config.command("migrate", help="Print config.yaml for an older layout: a file with shards, or a folder of accounts.")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--environment", default="integration", show_default=True, help="For account files that name none.")
@_NO_GIT
@click.pass_obj
def migrate_command(checkout: Path, path: Path, environment: str, no_git: bool) -> None:
    migrated = migrate(path, environment, None if no_git else Repository(checkout))
    for note in migrated.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(migrated.text, nl=False)


@config.command("schema", help="Print the JSON Schema of config.yaml, for editors.")
def schema_command() -> None:
    click.echo(_json(json_schema()), nl=False)


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
