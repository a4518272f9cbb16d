"""`regionctl nodepool`: the nodes of a cluster, in groups that are scaled together."""

from __future__ import annotations

import click

from regional.cli.cluster import confirm, finish_delete, finish_update, wait_for
from regional.cli.customer import Completions, Document, Session, api_command
from regional.cli.given import file_option, label_option, labels_of, resource_of, set_option, with_settings
from regional.cli.output import age, output_option, print_table, print_value
from regional.cli.waiting import Duration, Progress, Wait, wait_options
from regional.core.problems import UserError

POOLS = "/api/v0/nodepools"

pool_argument = click.argument("name", metavar="NAME|ID", shell_complete=Completions.node_pools)
cluster_option = click.option(
    "--cluster", metavar="NAME|ID", shell_complete=Completions.clusters, help="The cluster whose pool it is."
)


@click.group()
def nodepool() -> None:
    """Node pools: groups of nodes of a cluster.

    \b
    Examples:
      regionctl nodepool create --cluster demo --name workers --replicas 2 --wait
      regionctl nodepool list --cluster demo
      regionctl nodepool scale workers --cluster demo --replicas 3 --wait
      regionctl nodepool delete workers --cluster demo --yes --wait
    A pool's name is unique in its cluster; where two clusters have such a pool, say --cluster or give the id.
    """


@nodepool.command()
@click.option("--cluster", required=True, metavar="NAME|ID", shell_complete=Completions.clusters, help="Whose nodes.")
@click.option("--name", help="3 to 15 lower-case letters, digits and hyphens.")
@click.option("--replicas", type=int, help="How many nodes; 2 if nothing says otherwise.")
@click.option("--min", "least", type=int, help="Autoscaling: at least so many nodes; with --max.")
@click.option("--max", "most", type=int, help="Autoscaling: at most so many nodes; with --min.")
@file_option
@set_option
@label_option
@wait_options
@output_option
@api_command
def create(
    session: Session,
    cluster: str,
    name: str | None,
    replicas: int | None,
    least: int | None,
    most: int | None,
    file: str | None,
    settings: tuple[str, ...],
    labels: tuple[str, ...],
    wait: bool,
    timeout: float,
    output: str,
) -> int:
    """Create a node pool of a cluster, also of one that is not Ready yet.

    \b
    Examples:
      regionctl nodepool create --cluster demo --name workers --replicas 2 --wait
      regionctl nodepool create --cluster demo --name burst --min 1 --max 5
      regionctl nodepool create --cluster demo --name gpu --set nodeLabels.kind=gpu
    """
    body = resource_of(file)
    body["name"] = name or body.get("name")
    if not body["name"]:
        raise UserError("which name? give --name, or a file that has one", "--name workers", 2)
    body["spec"] = with_settings(body.get("spec"), _sizes(replicas, least, most) + settings)
    if made_labels := labels_of(body.get("labels"), labels):
        body["labels"] = made_labels
    body["cluster_id"] = session.find("cluster", cluster)["id"]
    progress = Progress()
    made = session.call("POST", POOLS, body).json()
    if wait:
        made = Wait(session, made, timeout, progress).ready()
    if output in ("json", "yaml"):
        print_value(made, output)
    elif wait:
        click.echo(f"node pool {made['name']} is Ready: {made['status'].get('replicas', 0)} nodes")
    else:
        click.echo(f"node pool {made['name']} accepted: {made['id']}")
        click.echo(f"watch it: regionctl nodepool wait {made['id']} --for ready", err=True)
    return 0


def _sizes(replicas: int | None, least: int | None, most: int | None) -> tuple[str, ...]:
    if (least is None) != (most is None):
        raise UserError("--min and --max belong together", "--min 1 --max 5", 2)
    if replicas is not None and least is not None:
        raise UserError("--replicas and --min/--max exclude each other", exit_code=2)
    if least is not None:
        return f"autoScaling.min={least}", f"autoScaling.max={most}"
    return (f"replicas={replicas}",) if replicas is not None else ()


@nodepool.command("list")
@cluster_option
@click.option("--limit", type=click.IntRange(1), help="At most so many, newest first; all of them if absent.")
@output_option
@api_command
def list_command(session: Session, cluster: str | None, limit: int | None, output: str) -> int:
    """Node pools of this account, or of one cluster, newest first.

    \b
    Examples:
      regionctl nodepool list
      regionctl nodepool list --cluster demo -o wide
    """
    names = {c["id"]: c["name"] for c in ([session.find("cluster", cluster)] if cluster else ())}
    query = {"clusterId": next(iter(names))} if names else {}
    found = list(session.pages(POOLS, query, most=limit or 0))
    if output in ("json", "yaml"):
        print_value({"kind": "NodePoolList", "total": len(found), "items": found}, output)
        return 0
    if not found:
        hint = cluster or "CLUSTER"
        click.echo(f"no node pools; make one: regionctl nodepool create --cluster {hint} --name workers", err=True)
        return 0
    if not names:
        names = {c["id"]: c["name"] for c in session.pages("/api/v0/clusters")}
    from regional.cli.described import wanted

    headers = ["NAME", "CLUSTER", "REPLICAS", "PHASE", "AGE", "MESSAGE"]
    rows = [
        [
            p["name"],
            names.get(p["cluster_id"], p["cluster_id"]),
            wanted(p),
            p["status"]["phase"],
            age(p["created_at"]),
            str(p["status"].get("message", "")),
        ]
        for p in found
    ]
    if output == "wide":
        headers[1:1] = ["ID", "GENERATION"]
        for row, document in zip(rows, found, strict=True):
            row[1:1] = [document["id"], str(document["generation"])]
    print_table(headers, rows)
    return 0


@nodepool.command()
@pool_argument
@cluster_option
@output_option
@api_command
def describe(session: Session, name: str, cluster: str | None, output: str) -> int:
    """One node pool: size, timeline, what it waits for.

    \b
    Examples:
      regionctl nodepool describe workers --cluster demo
      regionctl nodepool describe workers -o json
    """
    from regional.cli import described

    document = session.get(f"{POOLS}/{_find(session, name, cluster)['id']}")
    if output in ("json", "yaml"):
        print_value(document, output)
        return 0
    owner = session.find_or_none("cluster", document["cluster_id"])
    described.node_pool(document, owner["name"] if owner else "")
    return 0


@nodepool.command()
@pool_argument
@cluster_option
@click.option("--replicas", type=int, help="So many nodes, whatever was said before.")
@click.option("--min", "least", type=int, help="Autoscaling: at least so many nodes; with --max.")
@click.option("--max", "most", type=int, help="Autoscaling: at most so many nodes; with --min.")
@wait_options
@output_option
@api_command
def scale(
    session: Session,
    name: str,
    cluster: str | None,
    replicas: int | None,
    least: int | None,
    most: int | None,
    wait: bool,
    timeout: float,
    output: str,
) -> int:
    """Change how many nodes a pool has.

    \b
    Examples:
      regionctl nodepool scale workers --replicas 3 --wait
      regionctl nodepool scale workers --cluster demo --min 1 --max 5
    """
    sizes = _sizes(replicas, least, most)
    if not sizes:
        raise UserError("how many nodes? give --replicas, or --min and --max", "--replicas 3", 2)
    other = "autoScaling=null" if replicas is not None else "replicas=null"
    found = _find(session, name, cluster)
    progress = Progress()
    changed = session.call("PATCH", f"{POOLS}/{found['id']}", {"spec": with_settings(None, (other, *sizes))}).json()
    return finish_update(session, changed, found, wait, timeout, output, progress)


@nodepool.command()
@pool_argument
@cluster_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@wait_options
@output_option
@api_command
def delete(session: Session, name: str, cluster: str | None, yes: bool, wait: bool, timeout: float, output: str) -> int:
    """Delete a node pool and its nodes.

    \b
    Examples:
      regionctl nodepool delete workers --cluster demo               asks first
      regionctl nodepool delete workers --cluster demo --yes --wait
    """
    found = _find(session, name, cluster)
    confirm(f"Delete node pool {found['name']} ({found['id']}) and its nodes?", yes)
    progress = Progress()
    session.call("DELETE", f"{POOLS}/{found['id']}")
    if wait:
        progress.step("accepted", progress.elapsed, found["id"])
    return finish_delete(session, found, wait, timeout, output, progress)


@nodepool.command()
@pool_argument
@cluster_option
@click.option("--for", "goal", type=click.Choice(["ready", "deleted"]), default="ready", show_default=True)
@click.option("--timeout", type=Duration(), default="10m", show_default=True, help="How long: 90s, 10m, 1h.")
@output_option
@api_command
def wait(session: Session, name: str, cluster: str | None, goal: str, timeout: float, output: str) -> int:
    """Wait until a node pool is ready, or deleted.

    \b
    Example:
      regionctl nodepool wait workers --cluster demo --for ready
    """
    return wait_for(session, "node pool", name, goal, timeout, output, **_narrowed(session, cluster))


def _find(session: Session, name: str, cluster: str | None) -> Document:
    return session.find("node pool", name, **_narrowed(session, cluster))


def _narrowed(session: Session, cluster: str | None) -> dict[str, str]:
    return {"clusterId": session.find("cluster", cluster)["id"]} if cluster else {}
