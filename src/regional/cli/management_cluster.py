"""`regionctl management-cluster`: where control planes run, and which of them have room."""

from __future__ import annotations

import click

from regional.cli.customer import Completions, Document, Session, api_command
from regional.cli.given import label_option, labels_of
from regional.cli.output import age, last_seen, output_option, print_table, print_value
from regional.cli.rotation import rotate_certificate

MANAGEMENT_CLUSTERS = "/api/v0/management_clusters"


@click.group("management-cluster")
def management_cluster() -> None:
    """Management clusters: where control planes run. Needs an account that may run the region.

    \b
    Examples:
      regionctl management-cluster list
      regionctl management-cluster describe mc01
      regionctl management-cluster register management-01 --label cluster_type=management
      regionctl mc rotate-certificate mc01
    """


management_cluster.add_command(rotate_certificate)


@management_cluster.command("list")
@output_option
@api_command
def list_command(session: Session, output: str) -> int:
    """Management clusters of the region, and whether their agents are heard of."""
    found = list(session.numbered_pages(MANAGEMENT_CLUSTERS))
    if output in ("json", "yaml"):
        print_value({"kind": "ConsumerList", "total": len(found), "items": found}, output)
        return 0
    if not found:
        click.echo(
            "no management clusters; provisioning registers them, or: regionctl management-cluster register NAME"
        )
        return 0
    wide = output == "wide"
    headers = ["NAME", "TAKES CLUSTERS", "CAPACITY", "LAST SEEN", "AGE"]
    rows = [
        [f["name"], "yes" if f.get("accepting") else "no", _capacity(f), last_seen(f), age(f.get("created_at", ""))]
        for f in found
    ]
    if wide:
        headers += ["ID", "REGION", "ACCOUNT", "LABELS"]
        for row, document in zip(rows, found, strict=True):
            row += [document["id"], document.get("region", ""), document.get("accountId", ""), _labels(document)]
    print_table(headers, rows)
    return 0


@management_cluster.command()
@click.argument("name", metavar="NAME|ID", shell_complete=Completions.management_clusters)
@output_option
@api_command
def describe(session: Session, name: str, output: str) -> int:
    """One management cluster: what is known of it, and the bundles that it has not applied.

    \b
    Example:
      regionctl management-cluster describe mc01
    """
    from urllib.parse import quote

    from regional.cli.bundle import print_not_applied
    from regional.cli.described import dated, facts

    found = session.get(f"{MANAGEMENT_CLUSTERS}/{quote(name, safe='')}")
    if output in ("json", "yaml"):
        print_value(found, output)
        return 0
    facts(
        [
            ("Name", found["name"]),
            ("ID", found["id"]),
            ("Takes clusters", "yes" if found.get("accepting") else "no: it was registered by its name only"),
            ("Capacity", _capacity(found)),
            ("Region", found.get("region", "")),
            ("Account", found.get("accountId", "")),
            ("Agent", found.get("agent", "")),
            ("Last seen", last_seen(found)),
            ("Labels", _labels(found)),
            ("Registered", dated(found.get("created_at", ""))),
        ]
    )
    print_not_applied(session, found["name"])
    return 0


@management_cluster.command()
@click.argument("name")
@label_option
@click.option("--region", "aws_region", help="Its cloud region; with --account it takes customers' clusters.")
@click.option("--account", help="Its account, 12 digits; with --region it takes customers' clusters.")
@click.option("--capacity", type=click.IntRange(0), help="How many clusters it may host.")
@output_option
@api_command
def register(
    session: Session,
    name: str,
    labels: tuple[str, ...],
    aws_region: str | None,
    account: str | None,
    capacity: int | None,
    output: str,
) -> int:
    """Register management cluster NAME. Provisioning does it by itself; this is for one that was made by hand.

    By its name alone it can be sent work. With --region and --account it is a place for customers' clusters too.

    \b
    Examples:
      regionctl management-cluster register management-01 --label cluster_type=management
      regionctl management-cluster register mc03 --region us-west-2 --account 123456789012 --capacity 50
    """
    body: Document = {"name": name, "region": aws_region, "accountId": account, "capacity": capacity}
    body = {field: value for field, value in body.items() if value is not None}
    if made_labels := labels_of(None, labels):
        body["labels"] = made_labels
    made = session.call("POST", MANAGEMENT_CLUSTERS, body).json()
    if output in ("json", "yaml"):
        print_value(made, output)
    else:
        click.echo(f"management cluster {made['name']} registered: {made['id']}")
    return 0


def _capacity(found: Document) -> str:
    return str(found["capacity"]) if "capacity" in found else ("default" if found.get("accepting") else "")


def _labels(found: Document) -> str:
    return ",".join(f"{key}={value}" for key, value in (found.get("labels") or {}).items())
