"""`regionctl work`: a ManifestWork sent by hand, as the designs' first demonstration does."""

from __future__ import annotations

import click

from regional.cli.bundle import BUNDLES, until_it
from regional.cli.customer import Completions, Document, Session, api_command
from regional.cli.given import read_document
from regional.cli.output import output_option, print_value
from regional.cli.waiting import Progress, wait_options


@click.group()
def work() -> None:
    """Work: a ManifestWork sent by hand to one management cluster (it becomes a resource bundle).

    \b
    Needs an account that may run the region.
      regionctl work create -f examples/work/payload.json --wait
      regionctl bundle describe maestro-payload-test
    """


@work.command("create")
@click.option(
    "-f",
    "--file",
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="JSON or YAML: the API's body with cluster_id and data, or a ManifestWork alone; - is stdin.",
)
@click.option(
    "--to", "consumer", metavar="MC", shell_complete=Completions.management_clusters, help="Over the file's cluster_id."
)
@click.option("--name", help="Over the ManifestWork's own name, to send one file more than once.")
@wait_options
@output_option
@api_command
def create_work(
    session: Session, file: str, consumer: str | None, name: str | None, wait: bool, timeout: float, output: str
) -> int:
    """Send a ManifestWork to a management cluster; with --wait until its agent says that it is applied.

    \b
    Examples:
      regionctl work create -f examples/work/payload.json --to mc01 --wait
      regionctl work create -f work.yaml --to mc02 --name second-try
    """
    body = read_document(file)
    if body.get("kind") == "ManifestWork":
        body = {"data": body}
    if consumer:
        body["cluster_id"] = consumer
    if name and isinstance(body.get("data"), dict):
        data = body["data"]
        body["data"] = data | {"metadata": dict(data.get("metadata") or {}) | {"name": name}}
    progress = Progress()
    made = session.call("POST", "/api/v0/work", body).json()
    if wait:
        progress.step("accepted", progress.elapsed, made["id"])

        def look() -> Document | None:
            found: Document = session.get(f"{BUNDLES}/{made['id']}")
            delivery = found.get("delivery") or {}
            if delivery.get("state") == "applied":
                return found
            progress.waiting("applied", str(delivery.get("reason", "")))
            return None

        late = f"work {made['name']} is not applied on {made['cluster_id']} after {timeout:g} s"
        found = until_it(look, timeout, progress, late, made["id"])
        progress.step("applied", progress.elapsed, f"on {made['cluster_id']}")
        made = made | {"status": found.get("status") or {}}
    if output in ("json", "yaml"):
        print_value(made, output)
    else:
        said = f"is applied on {made['cluster_id']}" if wait else f"accepted for {made['cluster_id']}"
        click.echo(f"work {made['name']} {said}: {made['id']}")
        if not wait:
            click.echo(f"what came back: regionctl bundle describe {made['id']}", err=True)
    return 0
