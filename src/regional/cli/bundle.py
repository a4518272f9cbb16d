"""`regionctl bundle`: what Maestro carries to management clusters, and what came back."""

from __future__ import annotations

from collections.abc import Callable

import click

from regional.cli.cluster import confirm
from regional.cli.customer import TIMED_OUT, Completions, Document, Session, api_command, is_id
from regional.cli.output import age, output_option, print_table, print_value, printable
from regional.cli.waiting import Progress, until, wait_options
from regional.core.problems import UserError

BUNDLES = "/api/v0/resource_bundles"
REQUEST_ID = "regional.io/request-id"

bundle_argument = click.argument("bundle_name", metavar="NAME|ID", shell_complete=Completions.bundles)
to_option = click.option(
    "--to", "consumer", metavar="MC", shell_complete=Completions.management_clusters, help="Only of this one."
)


@click.group()
def bundle() -> None:
    """Resource bundles: manifests on their way to a management cluster, and the status that came back.

    \b
    Needs an account that may run the region.
      regionctl bundle list
      regionctl bundle list --not-applied  and what each waits for
      regionctl bundle describe NAME       also says why it is not applied
      regionctl bundle history NAME        what became of it
    """


@bundle.command("list")
@to_option
@click.option("--not-applied", is_flag=True, help="Only those that are not applied, or being deleted.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, newest first; all of them if absent.")
@output_option
@api_command
def list_command(session: Session, consumer: str | None, not_applied: bool, limit: int | None, output: str) -> int:
    """Resource bundles of the region, newest first.

    \b
    Examples:
      regionctl bundle list
      regionctl bundle list --to mc01
      regionctl bundle list --not-applied
      regionctl bundle list -o json | jq -r '.items[] | select(.version > 1) | .name'
    """
    found = bundles_of(session, consumer, not_applied=not_applied, most=limit or 0)
    if output in ("json", "yaml"):
        print_value({"kind": "ResourceBundleList", "total": len(found), "items": found}, output)
        return 0
    if not found:
        whose = f" for {consumer}" if consumer else ""
        click.echo(f"no resource bundles{whose}" + (" that are not applied" if not_applied else ""), err=True)
        return 0
    print_bundles(found, wide=output == "wide")
    return 0


def bundles_of(session: Session, consumer: str | None, *, not_applied: bool, most: int = 0) -> list[Document]:
    """Newest first. Maestro itself passes over what is applied: nearly everything is, and it is large."""
    terms = [f"consumer_name = '{_quoted(consumer)}'"] if consumer else []
    terms += ["not_applied = true"] if not_applied else []
    query = {"orderBy": "created_at desc"} | ({"search": " and ".join(terms)} if terms else {})
    return list(session.numbered_pages(BUNDLES, query, most=most))


def print_bundles(found: list[Document], *, wide: bool = False) -> None:
    headers = ["NAME", "MC", "VERSION", "APPLIED", "AVAILABLE", "AGE", "WAITS FOR"]
    rows = [
        [
            name_of(b),
            b["consumer_name"],
            str(b["version"]),
            _condition(b, "Applied") or "-",
            _condition(b, "Available") or "-",
            age(b["created_at"]),
            str((b.get("delivery") or {}).get("reason", "")),
        ]
        for b in found
    ]
    if wide:
        headers[1:1] = ["ID", "SOURCE", "OBJECTS"]
        for row, document in zip(rows, found, strict=True):
            row[1:1] = [document["id"], document.get("source", ""), str(len(document.get("manifests") or []))]
    print_table(headers, rows)


def print_not_applied(session: Session, consumer: str, *, most: int = 20) -> None:
    """The part about bundles where one management cluster is described."""
    from regional.cli.described import section

    late = bundles_of(session, consumer, not_applied=True)
    section(f"Resource bundles that are not applied: {len(late)}")
    if late:
        print_bundles(late[:most])


@bundle.command("get")
@bundle_argument
@to_option
@output_option
@api_command
def get_command(session: Session, bundle_name: str, consumer: str | None, output: str) -> int:
    """One resource bundle as a line, or whole with -o yaml; `describe` tells its story.

    \b
    Examples:
      regionctl bundle get maestro-payload-test
      regionctl bundle get maestro-payload-test -o yaml
    """
    found = _find(session, bundle_name, consumer)
    if output in ("json", "yaml"):
        print_value(found, output)
    else:
        print_bundles([found], wide=output == "wide")
    return 0


@bundle.command()
@bundle_argument
@to_option
@output_option
@api_command
def history(session: Session, bundle_name: str, consumer: str | None, output: str) -> int:
    """What became of a resource bundle: versions accepted, statuses that came back. By its id also when it is gone.

    \b
    Examples:
      regionctl bundle history maestro-payload-test
      regionctl bundle history 4b825dc6-42cb-5ae1-9f2c-0b6bd6a2f5b1 -o json
    """
    bundle_id = bundle_name if is_id(bundle_name) else _find(session, bundle_name, consumer)["id"]
    found = session.get(f"{BUNDLES}/{bundle_id}/history")
    if output in ("json", "yaml"):
        print_value(found, output)
        return 0
    headers = ["AGE", "CHANGE", "VERSION", "REQUEST", "NOTE"]
    rows = [
        [age(entry["at"]), entry["change"], str(entry["version"]), entry.get("request_id", ""), entry.get("note", "")]
        for entry in found["items"]
    ]
    if output == "wide":
        headers.insert(0, "TIME")
        rows = [[entry["at"], *row] for entry, row in zip(found["items"], rows, strict=True)]
    print_table(headers, rows)
    return 0


@bundle.command()
@bundle_argument
@to_option
@wait_options
@api_command
def redeliver(session: Session, bundle_name: str, consumer: str | None, wait: bool, timeout: float) -> int:
    """Send a resource bundle to its agent once more; with --wait until the agent has confirmed it, or it is gone.

    An agent that has a newer version than Maestro knows of (its database was set back) is sent a version above that.

    \b
    Example:
      regionctl bundle redeliver maestro-payload-test --wait
    """
    from regional.gateway.client import ApiError

    found = _find(session, bundle_name, consumer)
    name = name_of(found)
    progress = Progress()
    gone = {"delivery": {"state": "gone"}}
    try:
        sent = session.call("POST", f"{BUNDLES}/{found['id']}/redeliver").json()
    except ApiError as error:
        if error.status != 404:
            raise
        sent = gone  # its agent was quicker
    if not wait:
        click.echo(f"bundle {name} " + ("is gone" if sent is gone else f"is sent again as version {sent['version']}"))
        return 0
    progress.step("sent", progress.elapsed, found["id"])

    def look() -> Document | None:
        try:
            now = session.get(f"{BUNDLES}/{found['id']}")
        except ApiError as error:
            if error.status == 404:
                return gone
            raise
        delivery = now.get("delivery") or {}
        progress.waiting("confirmed", str(delivery.get("reason", "")))
        return now if delivery.get("state") in ("applied", "delivered") else None

    done = gone if sent is gone else until_it(look, timeout, progress, f"bundle {name} is not confirmed", found["id"])
    state = done["delivery"]["state"]
    progress.step(state, progress.elapsed)
    click.echo(f"bundle {name} is {state}")
    return 0


@bundle.command()
@bundle_argument
@to_option
@output_option
@api_command
def describe(session: Session, bundle_name: str, consumer: str | None, output: str) -> int:
    """One resource bundle: its objects, what came back about each, and if it is not applied, why.

    \b
    Examples:
      regionctl bundle describe maestro-payload-test
      regionctl bundle describe maestro-payload-test --to mc01 -o yaml
    """
    found = _find(session, bundle_name, consumer)
    if output in ("json", "yaml"):
        print_value(found, output)
    else:
        _describe(found)
    return 0


def _describe(found: Document) -> None:
    from regional.cli.described import conditions, dated, facts, moment_of, section

    status = found.get("status") or {}
    delivery = found.get("delivery") or {}
    annotations = (found.get("metadata") or {}).get("annotations") or {}
    applied = _condition(found, "Applied")
    why = str(delivery.get("reason", ""))
    facts(
        [
            ("Name", name_of(found)),
            ("ID", found["id"]),
            ("For", found["consumer_name"]),
            ("From", str(found.get("source", ""))),
            ("Version", f"{found['version']}" + (f" (status is of {status['ObservedVersion']})" if status else "")),
            ("Applied", applied or "no status has come back"),
            ("Why not", why if applied != "True" or delivery.get("state") != "applied" else ""),
            ("Created", dated(found["created_at"])),
            ("Deleting", f"since {moment_of(found['deleted_at'])}" if found.get("deleted_at") else ""),
            ("Request", str(annotations.get(REQUEST_ID, ""))),
        ]
    )
    conditions(status.get("conditions") or [])
    section("Objects")
    reported = {
        (meta.get("kind"), meta.get("namespace", ""), meta.get("name")): entry
        for entry in status.get("resourceStatus") or []
        if (meta := entry.get("resourceMeta") or {})
    }
    for manifest in found.get("manifests") or []:
        meta = manifest.get("metadata") or {}
        entry = reported.get((manifest.get("kind"), meta.get("namespace", ""), meta.get("name")), {})
        where = f"{meta['namespace']}/" if meta.get("namespace") else ""
        said = printable(", ".join(f"{c['type']}={c['status']}" for c in entry.get("conditions") or []))
        click.echo(f"  {manifest.get('kind')} {where}{meta.get('name')}: {said or 'nothing came back yet'}")
        for failed in (c for c in entry.get("conditions") or [] if c["status"] == "False" and c.get("message")):
            click.echo(f"    {printable(failed['type'])}: {printable(failed['message'])}")
        for value in (entry.get("statusFeedback") or {}).get("values") or []:
            click.echo(f"    {printable(value['name'])} = {printable(_short(value.get('fieldValue') or {}))}")


def _short(value: Document) -> str:
    found = next((str(content) for kind, content in value.items() if kind != "type"), "")
    return found if len(found) <= 100 else found[:99] + "…"


@bundle.command()
@bundle_argument
@to_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@wait_options
@api_command
def delete(session: Session, bundle_name: str, consumer: str | None, yes: bool, wait: bool, timeout: float) -> int:
    """Delete a resource bundle; its agent removes the objects and then says so. Those of clusters are refused.

    A cluster's own bundle comes back as long as the cluster is there: delete the cluster instead.

    \b
    Example:
      regionctl bundle delete maestro-payload-test --yes --wait
    """
    from regional.gateway.client import ApiError

    found = _find(session, bundle_name, consumer)
    name = name_of(found)
    confirm(f"Delete bundle {name} and its objects on {found['consumer_name']}?", yes)
    progress = Progress()
    session.call("DELETE", f"{BUNDLES}/{found['id']}")
    if not wait:
        click.echo(f"bundle {name} is being deleted")
        return 0
    progress.step("accepted", progress.elapsed, found["id"])

    def look() -> Document | None:
        try:
            left = session.get(f"{BUNDLES}/{found['id']}")
        except ApiError as error:
            if error.status == 404:
                return found
            raise
        progress.waiting("gone", str((left.get("delivery") or {}).get("reason", "")))
        return None

    until_it(look, timeout, progress, f"bundle {name} is not gone after {timeout:g} s", found["id"])
    progress.step("gone", progress.elapsed)
    click.echo(f"bundle {name} is deleted")
    return 0


def until_it(
    look: Callable[[], Document | None], timeout: float, progress: Progress, late: str, bundle_id: str
) -> Document:
    why = f"regionctl bundle describe {bundle_id}"
    error = UserError(late, f"why: {why}", TIMED_OUT)
    return until(look, timeout, progress, late=error, stopped=f"stopped watching; look again: {why}")


def _find(session: Session, given: str, consumer: str | None) -> Document:
    from regional.gateway.client import ApiError

    if is_id(given):
        try:
            return dict(session.get(f"{BUNDLES}/{given}"))
        except ApiError as error:
            if error.status != 404:
                raise
            raise UserError(f"there is no resource bundle {given}", "regionctl bundle list") from None
    search = named(given) + (f" and consumer_name = '{_quoted(consumer)}'" if consumer else "")
    found = list(session.numbered_pages(BUNDLES, {"search": search}, most=100))
    if not found:
        raise UserError(
            f"there is no resource bundle {given!r}" + (f" for {consumer}" if consumer else ""), "regionctl bundle list"
        )
    if len(found) > 1:
        listed = ", ".join(f"{b['id']} for {b['consumer_name']}" for b in found[:5])
        raise UserError(f"{len(found)} bundles have the name {given}: {listed}", "say --to MC, or give the id")
    return found[0]


def named(given: str) -> str:
    """Maestro's search for `name_of`."""
    return f"(name = '{_quoted(given)}' or payload->'metadata'->>'name' = '{_quoted(given)}')"


def name_of(found: Document) -> str:
    """A bundle made without a name has its id for one; its ManifestWork's name says more."""
    inside = (found.get("metadata") or {}).get("name")
    return str(inside if inside and found.get("name") in (None, found["id"]) else found.get("name") or found["id"])


def _quoted(text: str) -> str:
    """For Maestro's search, whose strings stand in single quotes."""
    return text.replace("'", "''")


def _condition(found: Document, kind: str) -> str:
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")
