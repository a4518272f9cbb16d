"""Management clusters: consumers of Maestro, and places for clusters in CLM.

By its name alone a management cluster becomes a consumer that work can be sent to. Only when its region and account are
known too does CLM put clusters on it: a name that somebody typed is not yet a cluster that can host others.
"""

from __future__ import annotations

import uuid
from typing import Any

from starlette.responses import Response

from regional.clm.client import ClmError
from regional.maestro.client import MaestroError
from regional.platform_api import shapes, views
from regional.platform_api.errors import ApiError, invalid, not_found
from regional.platform_api.operations import Call, Operation, made, reply
from regional.platform_api.paging import NUMBERED
from regional.platform_api.schema import Fault

KIND = "ManagementCluster"
_FACTS = ("region", "accountId", "capacity")


async def create(call: Call) -> Response:
    """Both halves, or what is missing of them: a request that was killed in the middle is finished by the next."""
    body = call.body or {}
    name = body.get("name") or body.get("id") or str(uuid.uuid4())
    if body.get("name", name) != body.get("id", name):
        raise invalid([Fault("id", "id and name are two words for one thing: give one of them")])
    spec: dict[str, Any] = {fact: body[fact] for fact in _FACTS if fact in body}
    spec |= {"consumer": name, "accepting": "region" in body and "accountId" in body}
    consumer, found = await _consumer(call, name, body.get("labels"))
    registered, enrolled = await _enrol(call, name, spec, body.get("labels"))
    if found and not enrolled:
        raise ApiError(409, "already-exists", f"This Consumer already exists: {name}")
    return made(views.consumer(consumer, registered))


async def list_all(call: Call) -> Response:
    page, size = call.number("page", 1, 100_000), call.number("size", 100, 100)
    consumers = await call.region.maestro.consumers()
    known = {found["name"]: found async for found in call.clm_of_region.all(KIND)}
    shown = sorted(consumers, key=lambda found: (found.get("created_at", ""), found["id"]))
    part = shown[(page - 1) * size : page * size]
    items = [views.consumer(found, known.get(found["name"])) for found in part]
    return reply({"kind": "ConsumerList", "page": page, "size": len(items), "total": len(shown), "items": items})


async def get(call: Call) -> Response:
    """By id, or by the name that people know."""
    given = call.path["id"]
    for consumer in await call.region.maestro.consumers():
        if given in (consumer["id"], consumer["name"]):
            return reply(views.consumer(consumer, await call.clm_of_region.find(KIND, consumer["name"])))
    raise not_found("management cluster", given)


async def _consumer(call: Call, name: str, labels: dict[str, str] | None) -> tuple[dict[str, Any], bool]:
    """The consumer, and whether it was there already."""
    try:
        return await call.region.maestro.create_consumer(name, labels), False
    except MaestroError as error:
        if not error.conflict:
            raise
    for consumer in await call.region.maestro.consumers(search=f"name = '{name}'"):
        return consumer, True
    raise ApiError(502, "maestro-error", f"Maestro has a consumer {name} and does not show it")


async def _enrol(
    call: Call, name: str, spec: dict[str, Any], labels: dict[str, str] | None
) -> tuple[dict[str, Any], bool]:
    """The management cluster in CLM, and whether this call changed something about it. Its labels are kept there too:
    Maestro's database may be lost, and is then filled from CLM."""
    clm = call.clm_of_region
    try:
        return await clm.create(KIND, name, spec, labels=labels, request_id=call.request_id), True
    except ClmError as error:
        if not error.exists:
            raise
    found = await clm.find(KIND, name)
    if found is None:
        raise ApiError(409, "conflict", f"management cluster {name} is being removed: try again")
    if found["spec"].get("accepting") is True or not spec["accepting"]:
        return found, False
    # Known by name only until now.
    known = found["spec"] | spec
    return await clm.patch(KIND, found["id"], spec=known, labels=labels, request_id=call.request_id), True


OPERATIONS = (
    Operation(
        method="POST",
        path="/management_clusters",
        name="createManagementCluster",
        summary="Register a management cluster: a consumer by its name, a place for clusters with region and account.",
        run=create,
        who="privileged",
        body=shapes.CREATE_MANAGEMENT_CLUSTER,
        body_required=False,
        success=201,
        answer=shapes.CONSUMER,
        refusals=(409, 502),
    ),
    Operation(
        method="GET",
        path="/management_clusters",
        name="listManagementClusters",
        summary="Management clusters of the region.",
        run=list_all,
        who="privileged",
        query=NUMBERED,
        answer=shapes.listing("ConsumerList", shapes.CONSUMER, "page", "size", "total"),
        refusals=(502,),
    ),
    Operation(
        method="GET",
        path="/management_clusters/{id}",
        name="getManagementCluster",
        summary="One management cluster, by id or name.",
        run=get,
        who="privileged",
        answer=shapes.CONSUMER,
        refusals=(404, 502),
    ),
)
