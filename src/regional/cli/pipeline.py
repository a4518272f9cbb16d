"""`regionctl pipeline`: the provisioning pipelines of a region, one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from regional.cli.output import age, output_option, print_table, print_value, region_option
from regional.core.problems import UserError

if TYPE_CHECKING:
    from regional.local.provisioning import Provisioning


@click.group()
def pipeline() -> None:
    """Provisioning pipelines (Tekton files in tekton/): run one, list runs, look into them."""


@pipeline.command()
@click.argument("name")
@region_option
@click.option("--environment", default="local", show_default=True)
@click.option("--cluster", default="", help="Management Cluster id, for pipelines that are about one.")
def run(name: str, region: str, environment: str, cluster: str) -> int:
    """Run pipeline NAME again on a region that has been started. Every task looks before it acts."""
    from regional.core.loop import run as run_loop

    provisioning = pipelines_of(region, environment, cluster)
    known = provisioning.pipelines()
    if name not in known and f"provision-{name}" in known:
        name = f"provision-{name}"
    if name not in known:
        raise UserError(f"there is no pipeline {name!r}", "pipelines: " + ", ".join(known))
    from regional.cli.region import report_progress

    run_loop(provisioning.by_name(name, cluster, report_progress))
    return 0


def pipelines_of(region: str, environment: str, cluster: str = "") -> Provisioning:
    """Of a running region; `cluster`, if given, is one of its Management Clusters."""
    from regional.core.loop import run as run_loop
    from regional.local import source
    from regional.local.provisioning import Provisioning
    from regional.local.region import Region

    target = Region(region, environment)
    record = target.record()
    if record is None:
        raise UserError(f"there is no region {region} on this machine", "start it with `regionctl up`")
    if not run_loop(target.running()):
        raise UserError(f"region {region} is not running", f"start it with `regionctl up {region}`")
    if cluster and cluster not in record.management_clusters:
        raise UserError(f"{region} has no Management Cluster {cluster!r}", ", ".join(record.management_clusters))
    return Provisioning(target.paths, record, source.export(target.paths, record.commit))


@pipeline.command("list")
@region_option
@output_option
def list_command(region: str, output: str) -> int:
    """Pipeline runs of a region, newest first."""
    from regional.core.paths import RegionPaths
    from regional.pipelines.commands import list_runs

    runs = list_runs(RegionPaths(region).pipelines)
    if output in ("json", "yaml"):
        print_value(runs, output)
        return 0
    rows = [(r.name, r.pipeline, r.status, f"{len(r.tasks)}", age(_moment(r.started)), r.message) for r in runs]
    print_table(("RUN", "PIPELINE", "STATUS", "TASKS", "AGE", "MESSAGE"), rows)
    return 0


@pipeline.command()
@click.argument("run_name", metavar="RUN")
@region_option
@output_option
def show(run_name: str, region: str, output: str) -> int:
    """The tasks of a run: status and seconds."""
    from regional.core.paths import RegionPaths
    from regional.pipelines.commands import show_run

    record = show_run(RegionPaths(region).pipelines, run_name)
    if output in ("json", "yaml"):
        print_value(record, output)
        return 0
    rows = [
        (t.name, t.status, f"{max(0.0, t.finished - t.started):.2f}" if t.finished else "", t.message)
        for t in sorted(record.tasks.values(), key=lambda t: t.started)
    ]
    print_table(("TASK", "STATUS", "SECONDS", "MESSAGE"), rows)
    return 0


@pipeline.command()
@click.argument("run_name", metavar="RUN")
@click.argument("task", required=False, default="")
@region_option
def logs(run_name: str, task: str, region: str) -> int:
    """Everything that the steps of a run (or of one TASK) printed."""
    from regional.core.paths import RegionPaths
    from regional.pipelines.commands import logs as step_logs

    for step, line in step_logs(RegionPaths(region).pipelines, run_name, task):
        click.echo(f"{step}: {line}")
    return 0


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
