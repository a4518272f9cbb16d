"""Node pools of the calling account's clusters."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from regional.clm.client import ClmError
from regional.platform_api import shapes, views
from regional.platform_api.errors import ApiError, invalid, not_found
from regional.platform_api.merging import write_spec
from regional.platform_api.operations import Call, Operation, Parameter, is_identifier, made, reply
from regional.platform_api.paging import PAGING, is_name, page_of
from regional.platform_api.reported import reported
from regional.platform_api.schema import Fault, faults_of

KIND = "NodePool"
DEFAULT_REPLICAS = 2


async def create(call: Call) -> Response:
    body = call.body
    spec = dict(body.get("spec") or {})
    if "replicas" not in spec and "autoScaling" not in spec:
        spec["replicas"] = DEFAULT_REPLICAS
    _check(spec)
    if not is_identifier(body["cluster_id"]):
        raise not_found("cluster", body["cluster_id"])
    try:
        resource = await call.clm.create(
            KIND,
            body["name"],
            spec,
            labels=body.get("labels"),
            parent_id=body["cluster_id"],
            request_id=call.request_id,
        )
    except ClmError as error:
        if error.not_found:
            raise not_found("cluster", body["cluster_id"]) from None
        raise
    return made(views.node_pool(resource))


async def list_all(call: Call) -> Response:
    cluster_id = call.query.get("clusterId") or call.query.get("cluster_id") or ""
    if cluster_id and not is_identifier(cluster_id):
        raise not_found("cluster", cluster_id)
    found = await page_of(call, KIND, cluster_id)
    items = [views.node_pool(resource) for resource in found.items]
    return reply({"kind": "NodePoolList", "items": items} | found.counters())


async def get(call: Call) -> Response:
    resource, report, _ = await reported(call, KIND, await _identifier(call))
    return reply(views.node_pool(resource, report))


async def update(call: Call) -> Response:
    return reply(views.node_pool(await write_spec(call, KIND, await _identifier(call), _check)))


async def delete(call: Call) -> Response:
    pool_id = await _identifier(call)
    await call.clm.delete(KIND, pool_id, request_id=call.request_id)
    return reply({"message": "the node pool is being deleted", "nodepool_id": pool_id}, 202)


async def statuses(call: Call) -> Response:
    resource, report, reports = await reported(call, KIND, await _identifier(call))
    shown = {
        "nodepool_id": resource["id"],
        "status": views.status(resource, report),
        "controller_statuses": reports,
    }
    return reply(shown)


async def _identifier(call: Call) -> str:
    """A pool's name serves too, where only one of the account's pools has it. One that is being deleted has given its
    name up: it goes by it only while no other does."""
    given = call.path["id"]
    if call.has_identifier:
        return given
    for state in ("is null", "is not null") if is_name(given) else ():
        found = await call.clm.list(KIND, search=f"name = '{given}' and deleted_time {state}", size=2)
        if len(found["items"]) > 1:
            raise ApiError(409, "ambiguous-name", f"several node pools have the name {given}: use the id")
        if found["items"]:
            return str(found["items"][0]["id"])
    raise not_found("node pool", given)


def _check(spec: dict[str, Any]) -> None:
    faults = faults_of(spec, shapes.NODE_POOL_SPEC, "spec")
    if "replicas" in spec and "autoScaling" in spec:
        faults.append(Fault("spec.replicas", "spec.replicas and spec.autoScaling exclude each other"))
    scaling = spec.get("autoScaling")
    if not faults and scaling and scaling["min"] > scaling["max"]:
        faults.append(Fault("spec.autoScaling.min", "spec.autoScaling.min is greater than spec.autoScaling.max"))
    if faults:
        raise invalid(faults)


OPERATIONS = (
    Operation(
        method="GET",
        path="/nodepools",
        name="listNodePools",
        summary="Node pools of this account, newest first.",
        run=list_all,
        query=(
            *PAGING,
            Parameter("clusterId", "Only those of this cluster."),
            Parameter("cluster_id", "The same."),
            Parameter("name", "Only those of this name."),
        ),
        answer=shapes.listing("NodePoolList", shapes.NODE_POOL, "total", "limit", "offset"),
        refusals=(404,),
    ),
    Operation(
        method="POST",
        path="/nodepools",
        name="createNodePool",
        summary="A new node pool; two replicas unless its spec says otherwise.",
        run=create,
        body=shapes.CREATE_NODE_POOL,
        success=201,
        answer=shapes.NODE_POOL,
        refusals=(404, 409),
    ),
    Operation(
        method="GET",
        path="/nodepools/{id}",
        name="getNodePool",
        summary="One node pool with its status, by id or name.",
        run=get,
        answer=shapes.NODE_POOL,
        refusals=(404, 409),
    ),
    *(
        Operation(
            method=method,  # type: ignore[arg-type]
            path="/nodepools/{id}",
            name=name,
            summary="Merge `spec` into the node pool's spec (RFC 7396), for example to scale it.",
            run=update,
            body=shapes.PATCH,
            answer=shapes.NODE_POOL,
            refusals=(404, 409),
        )
        for method, name in (("PATCH", "patchNodePool"), ("PUT", "putNodePool"))
    ),
    Operation(
        method="DELETE",
        path="/nodepools/{id}",
        name="deleteNodePool",
        summary="Delete a node pool and its nodes.",
        run=delete,
        success=202,
        answer=shapes.record({"message": {"type": "string"}, "nodepool_id": {"type": "string"}}),
        refusals=(404, 409),
    ),
    *(
        Operation(
            method="GET",
            path=f"/nodepools/{{id}}/{word}",
            name=name,
            summary="The node pool's status, and what each controller last reported.",
            run=statuses,
            answer=shapes.record(
                {
                    "nodepool_id": {"type": "string"},
                    "status": shapes.STATUS,
                    "controller_statuses": {"type": "array", "items": {"type": "object"}},
                }
            ),
            refusals=(404, 409),
        )
        for word, name in (("status", "getNodePoolStatus"), ("statuses", "getNodePoolStatuses"))
    ),
)
