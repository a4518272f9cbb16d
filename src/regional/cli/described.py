"""`describe` for people: facts, the timeline with what comes next, conditions, pools, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from regional.cli.output import age, print_table, printable
from regional.cli.waiting import STEPS

Document = dict[str, Any]

_SHOWN_CHANGES = 12


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, value in pairs if value) + 2
    for name, value in pairs:
        if value:
            first, *rest = value.splitlines()
            click.echo(f"{name + ':':<{width}} {printable(first)}")
            for line in rest:
                click.echo(f"{'':<{width}} {printable(line)}")


def section(title: str) -> None:
    click.echo(f"\n{title}")


def cluster(document: Document, pools: list[Document], history: list[Document]) -> None:
    status = document["status"]
    endpoint = status.get("controlPlaneEndpoint")
    facts(
        [
            ("Name", document["name"]),
            ("ID", document["id"]),
            ("Phase", status["phase"]),
            ("Waits for", str(status.get("message", ""))),
            ("Placed on", (status.get("placementRef") or {}).get("managementCluster", "")),
            ("Version", status.get("version", "")),
            ("Endpoint", f"https://{endpoint['host']}:{endpoint['port']}" if endpoint else ""),
            *common(document),
        ]
    )
    timeline(document)
    conditions(status["conditions"])
    section("Node pools")
    if pools:
        rows = [(p["name"], wanted(p), p["status"]["phase"], age(p["created_at"]), _message(p)) for p in pools]
        print_table(("  NAME", "REPLICAS", "PHASE", "AGE", "MESSAGE"), [("  " + r[0], *r[1:]) for r in rows])
    else:
        click.echo(f"  none; make one: regionctl nodepool create --cluster {document['name']} --name workers")
    changes(history)


def node_pool(document: Document, cluster_name: str) -> None:
    status = document["status"]
    replicas = status.get("replicas")
    facts(
        [
            ("Name", document["name"]),
            ("ID", document["id"]),
            ("Cluster", f"{cluster_name} ({document['cluster_id']})"),
            ("Phase", status["phase"]),
            ("Waits for", str(status.get("message", ""))),
            ("Nodes", f"{wanted(document)} wanted" + (f", {replicas} available" if replicas is not None else "")),
            ("Version", status.get("version", "")),
            *common(document),
        ]
    )
    timeline(document)
    conditions(status["conditions"])


def common(document: Document) -> list[tuple[str, str]]:
    labels = ", ".join(f"{key}={value}" for key, value in (document.get("labels") or {}).items())
    synced = any(c["type"] == "Synced" and c["status"] == "True" for c in document["status"]["conditions"])
    seen = "carried out" if synced else "not carried out yet"
    return [
        ("Account", document["target_project_id"]),
        ("Created", dated(document["created_at"])),
        ("By", document.get("created_by", "")),
        ("Deleting", f"since {moment_of(document['deleted_at'])}" if document.get("deleted_at") else ""),
        ("Generation", f"{document['generation']} ({seen})"),
        ("Labels", labels),
        ("Spec", "\n".join(flat(document["spec"])) or "all defaults"),
    ]


def moment_of(text: str) -> str:
    return text[:19].replace("T", " ") + " UTC" if text.endswith(("Z", "+00:00")) else text


def dated(text: str) -> str:
    """`2026-11-16 08:00:00 UTC (4m ago)`."""
    return f"{moment_of(text)} ({age(text)} ago)"


def flat(value: Any, path: str = "") -> list[str]:
    """`release.version = 4.20.1`: the words that --set takes."""
    if isinstance(value, dict) and value:
        return [line for name, below in value.items() for line in flat(below, f"{path}.{name}" if path else name)]
    return [f"{path} = {_plain(value)}"] if path else []


def _plain(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def wanted(pool: Document) -> str:
    spec = pool["spec"]
    scaling = spec.get("autoScaling")
    return f"{scaling['min']}-{scaling['max']}" if scaling else str(spec.get("replicas", ""))


def timeline(document: Document) -> None:
    """Every step with its time since the first; the first step that is missing says what it waits for."""
    section("Timeline")
    entries = document["status"].get("timeline") or []
    if not entries:
        return
    begin = datetime.fromisoformat(entries[0]["time"])
    for entry in sorted(entries, key=lambda found: datetime.fromisoformat(found["time"])):
        moment = datetime.fromisoformat(entry["time"])
        seconds = (moment - begin).total_seconds()
        click.echo(f"  {_offset(seconds):>10}  {entry['step']:<18}  {moment:%Y-%m-%d %H:%M:%S}")
    waits = next_step(document)
    if waits:
        click.echo(f"  {'…':>10}  {waits:<18}  {printable(_message(document))}".rstrip())


def next_step(document: Document) -> str:
    status = document["status"]
    if document.get("deleted_at"):
        return "gone"
    taken = {entry["step"] for entry in status.get("timeline") or []}
    steps = STEPS[document["kind"]]
    if "Ready" in taken:
        return ""
    latest = max((index for index, step in enumerate(steps) if step in taken), default=-1)
    return steps[latest + 1] if latest + 1 < len(steps) else ""


def _offset(seconds: float) -> str:
    return (
        f"+{seconds:.2f} s"
        if seconds < 120
        else f"+{seconds / 60:.1f} min"
        if seconds < 7200
        else f"+{seconds / 3600:.1f} h"
    )


def conditions(found: list[Document]) -> None:
    if not found:
        return
    section("Conditions")
    rows = [
        ("  " + c["type"], c["status"], c.get("reason", ""), age(c.get("lastTransitionTime", "")), c.get("message", ""))
        for c in found
    ]
    print_table(("  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def changes(history: list[Document]) -> None:
    """Newest last, as one reads a story. Status reports of the region itself are left to `-o json`."""
    shown = [entry for entry in history if entry["change"] != "status"][:_SHOWN_CHANGES]
    if not shown:
        return
    section("Changes (follow one: regionctl trace REQUEST)")
    rows = [
        ("  " + moment_of(e["time"]), e["change"], str(e["generation"]), e["request_id"], e["actor"])
        for e in reversed(shown)
    ]
    print_table(("  TIME", "CHANGE", "GENERATION", "REQUEST", "BY"), rows)


def _message(document: Document) -> str:
    return str(document["status"].get("message", ""))
