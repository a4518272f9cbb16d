"""Maestro's database can be lost: consumers come back from the management clusters that CLM knows, bundles from CLM.

Nothing is kept about a rebuild. How far it is follows at any time from what CLM wants and what Maestro has, so that it
can be asked for again, broken off and gone on with.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from regional.maestro.client import MaestroError
from regional.platform_api import shapes
from regional.platform_api.operations import Call, Operation, Parameter, reply

_RESOURCE, _GENERATION = "regional.io/resource-id", "hyperfleet.io/generation"  # on what CLM's adapters send
_FIELDS = "id,consumer_name,version,metadata.labels,metadata.annotations,delivery"
MOST_TOLD = 100
_ANSWER: dict[str, Any] = {"type": "object"}

Document = dict[str, Any]


async def start(call: Call) -> Response:
    """First the consumers, and the question to their agents; with `bundles` CLM is asked to send everything again."""
    if (call.body or {}).get("step") == "bundles":
        return reply({"step": "bundles", "resources": await call.region.clm.reconcile(request_id=call.request_id)}, 202)
    known = {consumer["name"] for consumer in await call.region.maestro.consumers()}
    wanted = {
        (found["spec"].get("consumer") or found["name"]): found.get("labels")
        async for found in call.clm_of_region.all("ManagementCluster")
        if not found.get("deleted_time")
    }
    made = [name for name in sorted(wanted) if name not in known and await _made(call, name, wanted[name])]
    await call.region.maestro.ask_agents()
    return reply({"step": "consumers", "consumers": sorted(known | set(wanted)), "made": made}, 202)


async def _made(call: Call, name: str, labels: dict[str, str] | None) -> bool:
    try:
        await call.region.maestro.create_consumer(name, labels)
    except MaestroError as error:
        if not error.conflict:  # somebody else rebuilds, too
            raise
        return False
    return True


async def progress(call: Call) -> Response:
    wanted = await _wanted(call)
    bundles = {
        (bundle.get("metadata") or {}).get("labels", {}).get(_RESOURCE): bundle for bundle in await _bundles(call)
    }
    current, confirmed, applied = 0, 0, 0
    waiting: list[Document] = []
    for resource in wanted:
        bundle = bundles.get(resource["id"])
        reason = _missing(resource, bundle)
        state = ((bundle or {}).get("delivery") or {}).get("state")
        current += not reason
        confirmed += not reason and state in ("applied", "delivered")
        applied += not reason and state == "applied"
        if reason or state == "pending":
            told = resource | {"reason": reason or str((bundle or {})["delivery"].get("reason", ""))}
            waiting.append(told | ({"bundle": bundle["id"]} if bundle else {}))
    unknown = (await call.region.maestro.agent_works())["total"]
    counts = {"wanted": len(wanted), "current": current, "confirmed": confirmed, "applied": applied}
    return reply({"kind": "Rebuild", **counts, "unknown": unknown, "waiting": waiting[:MOST_TOLD]})


async def _wanted(call: Call) -> list[Document]:
    """Whatever has a place and is to stay."""
    placed: dict[str, str] = {}
    wanted = []
    async for cluster in call.clm_of_region.all("Cluster"):
        consumer = (cluster.get("placement") or {}).get("consumer", "")
        if consumer and not cluster.get("deleted_time"):
            placed[cluster["id"]] = consumer
            wanted.append(_told(cluster, consumer))
    async for pool in call.clm_of_region.all("NodePool"):
        consumer = placed.get((pool.get("owner_references") or {}).get("id", ""), "")
        if consumer and not pool.get("deleted_time"):
            wanted.append(_told(pool, consumer))
    return wanted


def _told(resource: Document, consumer: str) -> Document:
    told = {field: resource[field] for field in ("id", "kind", "name", "generation")}
    return told | {"consumer_name": consumer}


async def _bundles(call: Call) -> list[Document]:
    found: list[Document] = []
    page = 1
    while True:
        part = await call.region.maestro.list_bundles(
            search="source = 'clm'", page=page, size=400, order_by="created_at asc", fields=_FIELDS
        )
        found += part["items"]
        if page * 400 >= part["total"]:
            return found
        page += 1


def _missing(resource: Document, bundle: Document | None) -> str:
    """Why the bundle is not what CLM wants; "" if it is."""
    if bundle is None:
        return "CLM has not sent it yet"
    generation = ((bundle.get("metadata") or {}).get("annotations") or {}).get(_GENERATION, "")
    if generation != str(resource["generation"]):
        return f"it is of generation {generation or 'unknown'}, CLM wants {resource['generation']}"
    return ""


async def unknown(call: Call) -> Response:
    return reply(await call.region.maestro.agent_works(consumer_name=call.query.get("consumer_name", "")))


OPERATIONS = (
    Operation(
        method="POST",
        path="/maestro/rebuild",
        name="rebuildMaestro",
        summary="Bring back into Maestro what its database has lost: first its consumers, then, asked again, bundles.",
        run=start,
        who="privileged",
        body=shapes.record({"step": {"type": "string", "enum": ["consumers", "bundles"]}}),
        body_required=False,
        success=202,
        answer=_ANSWER,
        refusals=(502,),
    ),
    Operation(
        method="GET",
        path="/maestro/rebuild",
        name="getMaestroRebuild",
        summary="How much of what CLM wants is in Maestro, confirmed by agents and applied; and what is waited for.",
        run=progress,
        who="privileged",
        answer=_ANSWER,
        refusals=(502,),
    ),
    Operation(
        method="GET",
        path="/maestro/unknown",
        name="listUnknownWorks",
        summary="Works that agents have and Maestro does not know, or only in an older version. They are left alone.",
        run=unknown,
        who="privileged",
        query=(Parameter("consumer_name", "Only of this management cluster."),),
        answer=_ANSWER,
        refusals=(502,),
    ),
)
