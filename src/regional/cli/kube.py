"""`regionctl kube`: the data of clusters on this machine, kept safe and put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import click

from regional.cli.output import age, output_option, print_table, print_value, region_option
from regional.core.problems import UserError

file_option = click.option(
    "--file", type=click.Path(path_type=Path), help="The cluster's data file itself (kube.db), instead of CLUSTER."
)


@click.group()
def kube() -> None:
    """Data of clusters on this machine: snapshot, list snapshots, restore."""


@kube.command()
@click.argument("cluster", required=False, default="")
@region_option
@file_option
@click.option("--into", type=click.Path(path_type=Path, dir_okay=False), help="Write it there, not beside the data.")
def snapshot(cluster: str, region: str, file: Path | None, into: Path | None) -> int:
    """Copy the objects of CLUSTER (rc, mc01, …) into one file, while it is served.

    The copy is one consistent state. Without --into it stands beside the cluster's own periodic snapshots.
    """
    from regional.kube.apiserver import snapshots

    if into is not None and into.exists():
        raise UserError(f"{into} exists already", "choose another name; no snapshot is ever overwritten")
    taken = snapshots.take(_data_file(cluster, region, file), into, _progress("pages copied"))
    click.echo(f"{taken.path}: revision {taken.revision}, {taken.path.stat().st_size:,} bytes, checked")
    return 0


@kube.command("snapshots")
@click.argument("cluster", required=False, default="")
@region_option
@file_option
@output_option
def list_command(cluster: str, region: str, file: Path | None, output: str) -> int:
    """Snapshots of CLUSTER, newest first, and whether each can be restored."""
    from regional.kube.apiserver import snapshots

    found: list[dict[str, Any]] = [
        {
            "file": str(each.path),
            "revision": each.revision,
            "taken": each.taken.astimezone(UTC).isoformat(timespec="seconds"),
            "good": snapshots.is_good(each.path),
        }
        for each in snapshots.known(_data_file(cluster, region, file))
    ]
    if output in ("json", "yaml"):
        print_value(found, output)
        return 0
    rows = [(str(row["revision"]), age(row["taken"]), "yes" if row["good"] else "NO", row["file"]) for row in found]
    print_table(("REVISION", "AGE", "GOOD", "FILE"), rows)
    return 0


@kube.command()
@click.argument("cluster", required=False, default="")
@region_option
@file_option
@click.option("--from", "source", default="latest", show_default=True, help="The snapshot's file.")
@click.option("--stop", is_flag=True, help="Stop the cluster's API for it, and start it again afterwards.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def restore(cluster: str, region: str, file: Path | None, source: str, stop: bool, yes: bool) -> int:
    """Put CLUSTER's objects back to a snapshot.

    A cluster that is being served is refused unless --stop is given. What was there is kept beside it. Revisions do not
    go back: every client that watches is told that its version is too old, and lists again.
    """
    from regional.core.loop import run
    from regional.core.paths import RegionPaths
    from regional.kube.apiserver import restoring
    from regional.local.cluster_data import chosen_snapshot, restore_served

    target = _data_file(cluster, region, file)
    chosen = chosen_snapshot(target, source)
    stopping = stop and bool(cluster)
    try:
        if not stopping:
            restoring.refuse_if_served(target)
        if not yes:
            click.confirm(f"replace the objects in {target} by those of {chosen}?", abort=True)
        tell = _progress("objects restored")
        if stopping:
            done = run(restore_served(RegionPaths(region), cluster, chosen, tell))
        else:
            done = restoring.restore(target, chosen, tell)
    except UserError as error:
        if cluster and not stop and "in use" in error.message:
            raise UserError(error.message, "give --stop to stop its API for the restore") from error
        raise
    click.echo(f"{done.objects} objects are back; the cluster goes on at revision {done.revision}")
    if done.before is not None:
        click.echo(f"what was there is now {done.before}")
    return 0


def _data_file(cluster: str, region: str, file: Path | None) -> Path:
    from regional.core.paths import RegionPaths
    from regional.local.cluster_data import data_file

    if (file is None) == (not cluster):
        raise UserError("name one cluster, or its data file with --file", "for example: regionctl kube snapshot mc01")
    return file if file is not None else data_file(RegionPaths(region), cluster)


def _progress(what: str) -> Callable[[int, int], None]:
    """On standard error, and only for what takes longer than a second or so."""
    state = {"next": time.monotonic() + 1.0}

    def tell(done: int, total: int) -> None:
        if time.monotonic() >= state["next"]:
            click.echo(f"{done:,} of {total:,} {what}", err=True)
            state["next"] = time.monotonic() + 1.0

    return tell
