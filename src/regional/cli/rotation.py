"""`regionctl management-cluster rotate-certificate`: the pipeline of that, begun, gone on with, or cut short."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from regional.cli.output import region_option

if TYPE_CHECKING:
    from regional.local.provisioning import Provisioning
    from regional.pipelines.events import Event

ROTATE, RETIRE = "rotate-agent-certificate", "retire-agent-certificates"
_DOES = {
    "mint": "a new certificate beside the present one",
    "carry-over": "certificate and key into the cluster's own account",
    "await-agent": "until the agent has come in with it; a cluster looks for new secrets every 2 minutes",
    "retire-former": "the former certificate is withdrawn",
}


@click.command("rotate-certificate")
@click.argument("cluster", metavar="NAME")
@click.option(
    "--finish",
    is_flag=True,
    help="Withdraw former certificates now: the agent does not say what it uses, or a former key has leaked.",
)
@region_option
@click.option("--environment", default="local", show_default=True)
def rotate_certificate(cluster: str, finish: bool, region: str, environment: str) -> int:
    """Give the agent of management cluster NAME a new certificate, without a lost message.

    The former one stays good until the agent was seen with the new one; then it is withdrawn. Stopped anywhere, the
    same command goes on from there. In the cloud Tekton runs the same pipeline, rotate-agent-certificate.

    \b
    Examples:
      regionctl mc rotate-certificate mc01
      regionctl mc rotate-certificate mc01 --finish    do not wait for the agent to be seen with the new one
    """
    from regional.cli.pipeline import pipelines_of
    from regional.cli.region import report_progress
    from regional.core.loop import run

    pipelines = pipelines_of(region, environment, cluster)
    if finish:
        run(pipelines.by_name(RETIRE, cluster, report_progress, watch=_tell))
        click.echo(f"{cluster} has no certificate but the newest")
        return 0
    begun = _begun(pipelines, cluster)
    if begun is not None:
        click.echo(f"goes on with the rotation that began {begun:%Y-%m-%d %H:%M:%S} UTC")
    run(pipelines.by_name(ROTATE, cluster, report_progress, fresh=begun is None, watch=_tell))
    click.echo(f"the agent of {cluster} uses its new certificate; the former one is withdrawn")
    return 0


def _begun(pipelines: Provisioning, cluster: str) -> datetime | None:
    """When a rotation began that has neither succeeded nor been cut short since."""
    last, cut_short = pipelines.last_run(ROTATE, cluster), pipelines.last_run(RETIRE, cluster)
    if last is None or last.status == "Succeeded":
        return None
    if cut_short is not None and cut_short.status == "Succeeded" and cut_short.started > last.started:
        return None
    return datetime.fromtimestamp(last.started, UTC)


def _tell(event: Event) -> None:
    if event.kind in ("task-started", "task-adopted"):
        click.echo(f"  · {event.task}: {_DOES.get(event.task, '')}")
