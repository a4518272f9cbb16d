"""What happened to a cluster and when, oldest first, and what it waits for now.

CLM's history has every change of the cluster and every change in what its adapter reported; Maestro knows where the
bundle is. Each is asked for what it knows itself, so the answer holds whichever of them is behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.responses import Response

from regional.clm.client import ClmError
from regional.maestro.client import MaestroError
from regional.platform_api import shapes, views
from regional.platform_api.operations import Call, Operation, reply
from regional.platform_api.paging import PAGING

Document = dict[str, Any]

KIND = "Cluster"
MOST_PAGES = 10  # of a hundred changes each: older ones are left off, and the answer says so
_PAGE = 100
_WORDS = {
    "created": "accepted",
    "waiting": "waiting for a place",
    "placed": "placed",
    "updated": "changed",
    "deleted": "deletion asked for",
    "emptied": "node pools gone",
    "removed": "gone",
}


async def timeline(call: Call) -> Response:
    cluster_id = call.identifier("cluster")
    limit, offset = call.number("limit", 50, 100), call.number("offset", 0, MOST_PAGES * _PAGE * 10, 0)
    (changes, complete), found = await asyncio.gather(_changes(call, cluster_id), _now(call, cluster_id))
    resource, report = found
    events = list(happened(changes))
    shown: Document = {"kind": "Timeline", "cluster_id": cluster_id, "phase": "Gone", "complete": complete}
    if resource is not None:
        status = views.status(resource, report)
        delivery = await _delivery(call, report)
        shown["phase"] = status["phase"]
        if waits := waits_for(status, delivery):
            shown["waits_for"] = waits
        if delivery:
            shown["delivery"] = delivery
    items = events[offset : offset + limit]
    return reply(shown | {"items": items, "total": len(events), "limit": limit, "offset": offset})


def happened(changes: Iterable[Document]) -> Iterator[Document]:
    """Events out of CLM's history; `changes` are oldest first."""
    ready = False
    for change in changes:
        document = change.get("document") or {}
        if change["change"] != "status":
            yield _event(change, _WORDS.get(change["change"]) or change["change"], "clm", _message(change, document))
        report = document.get("report") or {}
        for condition in report.get("conditions") or []:
            event = f"{condition['type']} {condition['status']}"
            yield _event(change, event, str(report.get("adapter", "")), str(condition.get("message") or ""))
        reconciled = next((c for c in document.get("conditions") or [] if c["type"] == "Reconciled"), None)
        if reconciled is not None and (reconciled["status"] == "True") != ready:
            ready = not ready
            yield _event(change, "Ready" if ready else "not Ready", "clm", "")


def waits_for(status: Document, delivery: Document | None) -> str:
    """The nearest reason: a bundle that has not arrived explains everything that is missing behind it."""
    message = str(status.get("message", ""))
    held = delivery is not None and delivery["state"] != "applied" and delivery["reason"]
    if not held or status["phase"] == "WaitingForPlacement" or not message:
        return message
    assert delivery is not None
    return message if delivery["reason"] in message else f"{message}: {delivery['reason']}"


async def _changes(call: Call, cluster_id: str) -> tuple[list[Document], bool]:
    """Oldest first, and whether these are all. Raises what CLM says of a cluster that never was this account's."""
    newest_first: list[Document] = []
    for page in range(1, MOST_PAGES + 1):
        found = await call.clm.history(KIND, cluster_id, page=page, size=_PAGE)
        newest_first += found["items"]
        if page * _PAGE >= found["total"]:
            break
    # A change that comes in between two pages pushes one entry over to the next.
    unique = {(entry["revision"], entry["change"], entry["time"]): entry for entry in newest_first}
    return list(reversed(unique.values())), len(newest_first) >= found["total"]


async def _now(call: Call, cluster_id: str) -> tuple[Document | None, Document | None]:
    """The cluster and its adapter's report; neither once it is gone."""
    resource = await call.clm.get_or_none(KIND, cluster_id, request_id=call.request_id)
    if resource is None:
        return None, None
    try:
        reports = await call.clm.statuses(KIND, cluster_id)
    except ClmError as error:
        if not error.not_found:
            raise
        return None, None  # gone meanwhile
    return resource, next((found for found in reports if found["adapter"] == views.ADAPTER), None)


async def _delivery(call: Call, report: Document | None) -> Document | None:
    """Where the cluster's bundle is on its way; None as long as it has none."""
    bundle_id = ((report or {}).get("data") or {}).get("bundle")
    if not isinstance(bundle_id, str) or not bundle_id:
        return None
    try:
        bundle = await call.region.maestro.get_bundle_or_none(bundle_id)
    except MaestroError:
        return {"bundle": bundle_id, "state": "unknown", "reason": "Maestro cannot say at the moment"}
    if bundle is None:
        return None
    told = bundle.get("delivery") or {}
    return {
        "bundle": bundle_id,
        "version": bundle["version"],
        "published_at": bundle["updated_at"],
        "state": str(told.get("state") or "unknown"),
        "reason": str(told.get("reason") or ""),
    }


def _event(change: Document, event: str, source: str, message: str) -> Document:
    return {
        "time": change["time"],
        "event": event,
        "source": source,
        "message": message,
        "generation": change["generation"],
        "actor": change["actor"],
        "request_id": change["request_id"],
    }


def _message(change: Document, document: Document) -> str:
    placement = document.get("placement") or {}
    if change["change"] == "placed":
        return f"on {placement.get('management_cluster', '')}"
    return str(placement.get("reason") or document.get("reason") or "")


_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_NUMBER = {"type": "integer"}
_EVENT = shapes.record(
    {
        **dict.fromkeys(("event", "source", "message", "actor", "request_id"), _TEXT),
        "time": _TIME,
        "generation": _NUMBER,
    },
    ("time", "event", "source"),
)
OPERATIONS = (
    Operation(
        method="GET",
        path="/clusters/{id}/timeline",
        name="getClusterTimeline",
        summary="What happened to the cluster, oldest first, and what it waits for; also of one that is gone.",
        run=timeline,
        query=PAGING,
        answer=shapes.record(
            {
                "kind": {"type": "string", "enum": ["Timeline"]},
                "cluster_id": _TEXT,
                "phase": {"type": "string", "enum": [*shapes.PHASES, "Gone"]},
                "waits_for": _TEXT,
                "complete": {"type": "boolean"},
                "delivery": shapes.record(
                    {
                        **dict.fromkeys(("bundle", "state", "reason"), _TEXT),
                        "version": _NUMBER,
                        "published_at": _TIME,
                    },
                    ("bundle", "state", "reason"),
                ),
                "items": {"type": "array", "items": _EVENT},
                **dict.fromkeys(("total", "limit", "offset"), _NUMBER),
            },
            ("kind", "cluster_id", "phase", "items", "total", "limit", "offset"),
        ),
        refusals=(404,),
    ),
)
