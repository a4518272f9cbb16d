"""`regionctl cluster`: clusters of the calling account, from a create to a kubeconfig that works, and to nothing."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import click

from regional.cli.customer import Completions, Document, Session, api_command
from regional.cli.given import file_option, label_option, labels_of, resource_of, set_option, with_settings
from regional.cli.output import age, output_option, print_table, print_value
from regional.cli.waiting import Duration, Progress, Wait, wait_options
from regional.core.problems import UserError

CLUSTERS = "/api/v0/clusters"

name_argument = click.argument("name", metavar="NAME|ID", shell_complete=Completions.clusters)


@click.group()
def cluster() -> None:
    """Clusters: hosted control planes of your account.

    \b
    Settings come from the environment: eval "$(regionctl env)"
    A cluster's life:
      regionctl cluster create demo --wait
      regionctl nodepool create --cluster demo --name workers --replicas 2 --wait
      regionctl cluster kubeconfig demo > demo.kubeconfig
      kubectl --kubeconfig demo.kubeconfig get nodes,ns,clusterversion
      regionctl cluster describe demo
      regionctl cluster delete demo --wait --yes

    \b
    Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 the region cannot be reached;
    4 --timeout is over (the region goes on); 130 stopped with Ctrl-C (the region goes on).
    """


@cluster.command()
@click.argument("name", required=False)
@click.option(
    "--release", metavar="X.Y.Z", help="OpenShift version of the control plane; the region's default if absent."
)
@file_option
@set_option
@label_option
@wait_options
@output_option
@api_command
def create(
    session: Session,
    name: str | None,
    release: str | None,
    file: str | None,
    settings: tuple[str, ...],
    labels: tuple[str, ...],
    wait: bool,
    timeout: float,
    output: str,
) -> int:
    """Create cluster NAME: 3 to 18 lower-case letters, digits and hyphens.

    Without --wait it answers as soon as the cluster is accepted and placed. With --wait the steps are shown as they
    happen (accepted, placed, published, applied, control plane, Ready). Ctrl-C ends only the watching.

    \b
    Examples:
      regionctl cluster create demo --wait
      regionctl cluster create demo --release 4.20.1 --label team=blue
      regionctl cluster create demo --set deleteProtection=true --set networking.networkType=Calico
      regionctl cluster create -f demo.yaml --wait --timeout 5m
      regionctl cluster describe demo -o yaml | regionctl cluster create demo2 -f -
    """
    body = resource_of(file)
    if name:
        body["name"] = name
    if not body.get("name"):
        raise UserError("which name? give NAME, or a file that has one", "regionctl cluster create demo", 2)
    body["spec"] = with_settings(body.get("spec"), ((f"release.version={release}",) if release else ()) + settings)
    if made_labels := labels_of(body.get("labels"), labels):
        body["labels"] = made_labels
    progress = Progress()
    made = _create_once(session, body)
    if wait:
        made = Wait(session, made, timeout, progress).ready()
    if output in ("json", "yaml"):
        print_value(made, output)
    elif wait:
        click.echo(f"cluster {made['name']} is Ready: {_endpoint(made)}")
        click.echo(f"next: regionctl cluster kubeconfig {made['name']} > {made['name']}.kubeconfig", err=True)
    else:
        where = _placement(made)
        click.echo(f"cluster {made['name']} accepted: {made['id']}" + (f", placed on {where}" if where else ""))
        if not where:
            click.echo(f"it waits: {made['status'].get('message', 'no management cluster has room')}", err=True)
        click.echo(f"watch it: regionctl cluster wait {made['name']} --for ready", err=True)
    return 0


def _create_once(session: Session, body: Document) -> Document:
    """An answer that got lost must not leave the caller with "exists already" for a cluster that this call made."""
    from regional.gateway.client import ApiError, ApiUnreachable

    request_id = str(uuid.uuid4())
    try:
        return dict(session.call("POST", CLUSTERS, body, request_id=request_id).json())
    except ApiUnreachable as error:
        if error.status == 0 and "refused" in error.reason.lower():
            raise  # nobody was there to take it
    try:
        return dict(session.call("POST", CLUSTERS, body, request_id=request_id, patience=10.0).json())
    except ApiError as error:
        found = session.find_or_none("cluster", str(body["name"])) if error.status == 409 else None
        if found is None or not any(e["request_id"] == request_id for e in _history(session, found["id"])):
            raise
        return found


@cluster.command("list")
@click.option("--limit", type=click.IntRange(1), help="At most so many, newest first; all of them if absent.")
@output_option
@api_command
def list_command(session: Session, limit: int | None, output: str) -> int:
    """Clusters of this account, newest first.

    \b
    Examples:
      regionctl cluster list
      regionctl cluster list -o wide --limit 20
      regionctl cluster list -o json | jq -r '.items[] | select(.status.phase != "Ready") | .name'
    """
    found = list(session.pages(CLUSTERS, most=limit or 0))
    if output in ("json", "yaml"):
        print_value({"kind": "ClusterList", "total": len(found), "items": found}, output)
        return 0
    if not found:
        click.echo("no clusters yet; make one: regionctl cluster create demo --wait", err=True)
        return 0
    wide = output == "wide"
    headers = ["NAME", "PHASE", "PLACED ON", "AGE", "MESSAGE"]
    rows = [[c["name"], c["status"]["phase"], _placement(c), age(c["created_at"]), _message(c)] for c in found]
    if wide:
        headers[1:1] = ["ID", "GENERATION", "RELEASE", "CREATED BY"]
        for row, document in zip(rows, found, strict=True):
            release = document["spec"].get("release") or {}
            asked = release.get("version") or release.get("image") or "default"
            row[1:1] = [document["id"], str(document["generation"]), asked, document.get("created_by", "")]
    print_table(headers, rows)
    return 0


@cluster.command()
@name_argument
@output_option
@api_command
def describe(session: Session, name: str, output: str) -> int:
    """One cluster: what happened when, what it waits for now, its pools, and the requests that changed it.

    \b
    Examples:
      regionctl cluster describe demo
      regionctl cluster describe demo -o yaml
    """
    from regional.cli import described

    found = session.find("cluster", name)
    document = session.get(f"{CLUSTERS}/{found['id']}")
    pools = list(session.pages("/api/v0/nodepools", {"clusterId": found["id"]}))
    history = _history(session, found["id"])
    if output in ("json", "yaml"):
        print_value(document | {"nodepools": pools, "history": history}, output)
    else:
        described.cluster(document, pools, history)
    return 0


@cluster.command()
@name_argument
@api_command
def kubeconfig(session: Session, name: str) -> int:
    """Print the administrator's kubeconfig of a cluster that is up. It is a secret: keep it.

    \b
    Examples:
      regionctl cluster kubeconfig demo > demo.kubeconfig
      kubectl --kubeconfig demo.kubeconfig get nodes,ns,clusterversion
    """
    from regional.gateway.client import ApiError

    found = session.find("cluster", name)
    try:
        answer = session.call("GET", f"{CLUSTERS}/{found['id']}/kubeconfig", patience=1.0)
    except ApiError as error:
        if error.code != "kubeconfig-not-ready":
            raise
        hint = f"wait for it: regionctl cluster wait {found['name']} --for ready"
        raise UserError(error.reason, "" if found.get("deleted_at") else hint) from None
    click.echo(answer.body, nl=False)
    return 0


@cluster.command()
@name_argument
@set_option
@file_option
@wait_options
@output_option
@api_command
def update(
    session: Session, name: str, settings: tuple[str, ...], file: str | None, wait: bool, timeout: float, output: str
) -> int:
    """Change fields of a cluster's spec; what is not named stays, null takes a field away.

    \b
    Examples:
      regionctl cluster update demo --set deleteProtection=false
      regionctl cluster update demo --set release.version=4.20.2 --wait
      regionctl cluster update demo --set displayName=null
    """
    spec = with_settings(resource_of(file).get("spec"), settings)
    if not spec:
        raise UserError("nothing to change: give --set or --file", "--set deleteProtection=false", 2)
    found = session.find("cluster", name)
    progress = Progress()
    changed = session.call("PATCH", f"{CLUSTERS}/{found['id']}", {"spec": spec}).json()
    return finish_update(session, changed, found, wait, timeout, output, progress)


def finish_update(
    session: Session, changed: Document, before: Document, wait: bool, timeout: float, output: str, progress: Progress
) -> int:
    """The end of every change of a spec: nothing to do, accepted, or carried out."""
    noun = "cluster" if changed["kind"] == "Cluster" else "node pool"
    same = changed["generation"] == before["generation"]
    if wait:
        changed = Wait(session, changed, timeout, progress).ready(since="" if same else changed["updated_at"])
    if output in ("json", "yaml"):
        print_value(changed, output)
    elif same:
        click.echo(f"{noun} {changed['name']} is like that already; nothing changed")
    else:
        done = "changed" if wait else "change accepted"
        click.echo(f"{noun} {changed['name']} {done}: generation {changed['generation']}")
    return 0


@cluster.command()
@name_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@wait_options
@output_option
@api_command
def delete(session: Session, name: str, yes: bool, wait: bool, timeout: float, output: str) -> int:
    """Delete a cluster with its node pools and everything in it.

    \b
    Examples:
      regionctl cluster delete demo                  asks first
      regionctl cluster delete demo --yes --wait     for scripts; returns when nothing is left
    """
    found = session.find("cluster", name)
    confirm(f"Delete cluster {found['name']} ({found['id']}) with its node pools and all that runs in it?", yes)
    progress = Progress()
    session.call("DELETE", f"{CLUSTERS}/{found['id']}")
    if wait:
        progress.step("accepted", progress.elapsed, found["id"])
    return finish_delete(session, found, wait, timeout, output, progress)


def finish_delete(
    session: Session, found: Document, wait: bool, timeout: float, output: str, progress: Progress
) -> int:
    noun, word = ("cluster", "cluster") if found["kind"] == "Cluster" else ("node pool", "nodepool")
    if wait:
        Wait(session, found, timeout, progress).gone()
    if output in ("json", "yaml"):
        print_value({"kind": found["kind"], "id": found["id"], "name": found["name"], "gone": wait}, output)
    elif wait:
        click.echo(f"{noun} {found['name']} is deleted")
    else:
        click.echo(f"{noun} {found['name']} is being deleted")
        named = found["name"] if word == "cluster" else found["id"]
        click.echo(f"watch it: regionctl {word} wait {named} --for deleted", err=True)
    return 0


def confirm(question: str, yes: bool) -> None:
    """Deleting is never a slip of the finger: a person is asked, a script says --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError("nobody can be asked here, and it would be deleted", "say --yes if you mean it", 2)
    click.confirm(question, abort=True, err=True)


@cluster.command()
@name_argument
@click.option("--for", "goal", type=click.Choice(["ready", "deleted"]), default="ready", show_default=True)
@click.option("--timeout", type=Duration(), default="10m", show_default=True, help="How long: 90s, 10m, 1h.")
@output_option
@api_command
def wait(session: Session, name: str, goal: str, timeout: float, output: str) -> int:
    """Wait until a cluster is ready, or deleted.

    \b
    Examples:
      regionctl cluster wait demo --for ready --timeout 5m
      regionctl cluster wait demo --for deleted
    """
    return wait_for(session, "cluster", name, goal, timeout, output)


def wait_for(session: Session, what: str, name: str, goal: str, timeout: float, output: str, **narrowed: str) -> int:
    if goal == "ready":
        found = Wait(session, session.find(what, name, **narrowed), timeout).ready()
        if output in ("json", "yaml"):
            print_value(found, output)
        else:
            click.echo(f"{what} {found['name']} is Ready")
        return 0
    gone = session.find_or_none(what, name, **narrowed)
    if gone is not None:
        Wait(session, gone, timeout).gone()
    if output in ("json", "yaml"):
        print_value({"name": gone["name"] if gone else name, "gone": True}, output)
        return 0
    click.echo(f"there is no {what} {name}" if gone is None else f"{what} {gone['name']} is deleted")
    return 0


def _history(session: Session, cluster_id: str) -> list[Document]:
    return list(session.get(f"{CLUSTERS}/{cluster_id}/history")["items"])


def _placement(document: Document) -> str:
    return str((document["status"].get("placementRef") or {}).get("managementCluster", ""))


def _message(document: Document) -> str:
    return str(document["status"].get("message", ""))


def _endpoint(document: Document) -> str:
    found: Any = document["status"].get("controlPlaneEndpoint")
    return f"https://{found['host']}:{found['port']}" if found else ""
