"""`regionctl consumer`: management clusters as Maestro sees them, and whether what they were sent has arrived."""

from __future__ import annotations

import click

from regional.cli.bundle import print_not_applied
from regional.cli.customer import Completions, Document, Session, api_command
from regional.cli.output import age, last_seen, output_option, print_table, print_value

CONSUMERS = "/api/v0/management_clusters"


@click.group()
def consumer() -> None:
    """Consumers: the management clusters that Maestro sends bundles to. Needs an account that may run the region.

    \b
    Examples:
      regionctl consumer list
      regionctl consumer describe mc01      also what it has not applied, and why
    """


@consumer.command("list")
@output_option
@api_command
def list_command(session: Session, output: str) -> int:
    """Consumers: connected or not, last seen, what they have not confirmed and for how long.

    \b
    Examples:
      regionctl consumer list
      regionctl consumer list -o json | jq -r '.items[] | select(.connected | not) | .name'
    """
    found = list(session.numbered_pages(CONSUMERS))
    if output in ("json", "yaml"):
        print_value({"kind": "ConsumerList", "total": len(found), "items": found}, output)
        return 0
    if not found:
        click.echo("no consumers; a lost database is filled again by: regionctl maestro rebuild", err=True)
        return 0
    headers = ["NAME", "CONNECTED", "LAST SEEN", "PENDING", "OLDEST", "AGENT", "TROUBLE"]
    rows = [
        [f["name"], _connected(f), last_seen(f), str(f.get("pending", 0)), _oldest(f), _agent(f), _trouble(f)]
        for f in found
    ]
    if output == "wide":
        headers.insert(1, "ID")
        for row, document in zip(rows, found, strict=True):
            row.insert(1, document["id"])
    print_table(headers, rows)
    return 0


@consumer.command()
@click.argument("name", metavar="NAME|ID", shell_complete=Completions.management_clusters)
@output_option
@api_command
def describe(session: Session, name: str, output: str) -> int:
    """One consumer: its agent, whether it reaches its cluster, and each bundle that is not applied, with the reason.

    \b
    Example:
      regionctl consumer describe mc01
    """
    from urllib.parse import quote

    from regional.cli.described import dated, facts

    found = session.get(f"{CONSUMERS}/{quote(name, safe='')}")
    if output in ("json", "yaml"):
        print_value(found, output)
        return 0
    facts(
        [
            ("Name", found["name"]),
            ("ID", found["id"]),
            ("Connected", _connected(found)),
            ("Last seen", last_seen(found)),
            ("Agent", found.get("agent", "")),
            ("Agent version", found.get("agent_version", "")),
            ("Certificate", found.get("agent_certificate", "")),
            ("Trouble", _trouble(found)),
            ("Pending", str(found.get("pending", 0))),
            ("Oldest pending", _oldest(found)),
            ("Registered", dated(found.get("created_at", ""))),
        ]
    )
    print_not_applied(session, found["name"])
    return 0


def _connected(found: Document) -> str:
    if "connected" not in found:
        return "unknown"
    return "yes" if found["connected"] else "no"


def _oldest(found: Document) -> str:
    return age(found.get("oldest_pending_at", ""))


def _agent(found: Document) -> str:
    return str(found.get("agent_version") or found.get("agent") or "")


def _trouble(found: Document) -> str:
    said = str(found.get("cluster_unreachable", ""))
    return f"its agent cannot reach the cluster: {said}" if said else ""
