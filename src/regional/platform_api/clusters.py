"""Clusters of the calling account: made, listed, changed, deleted; their status, history and kubeconfig."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from starlette.responses import Response

from regional.platform_api import shapes, views
from regional.platform_api.errors import ApiError, invalid
from regional.platform_api.merging import merge, write_spec
from regional.platform_api.operations import Call, Operation, Parameter, made, reply
from regional.platform_api.paging import NUMBERED, PAGING, page_of
from regional.platform_api.reported import reported
from regional.platform_api.schema import faults_of

KIND = "Cluster"


async def create(call: Call) -> Response:
    body = call.body
    spec = merge({"platform": {"type": "None"}}, body.get("spec") or {})
    resource = await call.clm.create(KIND, body["name"], spec, labels=body.get("labels"), request_id=call.request_id)
    return made(views.cluster(resource))


async def list_all(call: Call) -> Response:
    found = await page_of(call, KIND)
    items = [views.cluster(resource) for resource in found.items]
    return reply({"kind": "ClusterList", "items": items} | found.counters())


async def get(call: Call) -> Response:
    resource, report, _ = await reported(call, KIND, call.identifier("cluster"))
    return reply(views.cluster(resource, report))


async def update(call: Call) -> Response:
    def check(spec: dict[str, Any]) -> None:
        if faults := faults_of(spec, shapes.CLUSTER_SPEC, "spec"):
            raise invalid(faults)

    return reply(views.cluster(await write_spec(call, KIND, call.identifier("cluster"), check)))


async def delete(call: Call) -> Response:
    cluster_id = call.identifier("cluster")
    found = await call.clm.get(KIND, cluster_id)
    if found["spec"].get("deleteProtection") is True and not found.get("deleted_time"):
        raise ApiError(409, "delete-protected", "the cluster has spec.deleteProtection: set it to false first")
    await call.clm.delete(KIND, cluster_id, request_id=call.request_id)
    return reply({"message": "the cluster is being deleted", "cluster_id": cluster_id}, 202)


async def statuses(call: Call) -> Response:
    resource, report, reports = await reported(call, KIND, call.identifier("cluster"))
    shown = {
        "cluster_id": resource["id"],
        "status": views.status(resource, report),
        "controller_statuses": reports,
    }
    return reply(shown)


async def history(call: Call) -> Response:
    cluster_id = call.identifier("cluster")
    page, size = call.number("page", 1, 100_000), call.number("size", 100, 100)
    found = await call.clm.history(KIND, cluster_id, page=page, size=size)
    return reply({"kind": "HistoryList"} | {name: found[name] for name in ("items", "page", "size", "total")})


async def kubeconfig(call: Call) -> Response:
    cluster_id = call.identifier("cluster")
    resource = await call.clm.get(KIND, cluster_id)
    report = await call.clm.status_of(KIND, cluster_id, views.ADAPTER)
    encoded = ((report or {}).get("data") or {}).get("kubeconfig")
    try:
        text = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except binascii.Error:
        text = b""
    if not text or resource.get("deleted_time"):
        message = views.status(resource, report).get("message") or "its control plane has not reported one yet"
        raise ApiError(409, "kubeconfig-not-ready", f"the cluster has no kubeconfig now: {message}")
    return Response(text, 200, {"Cache-Control": "no-store"}, "application/yaml")


OPERATIONS = (
    Operation(
        method="GET",
        path="/clusters",
        name="listClusters",
        summary="Clusters of this account, newest first.",
        run=list_all,
        query=(*PAGING, Parameter("name", "Only the cluster of this name.")),
        answer=shapes.listing("ClusterList", shapes.CLUSTER, "total", "limit", "offset"),
    ),
    Operation(
        method="POST",
        path="/clusters",
        name="createCluster",
        summary="A new cluster. It is placed on a management cluster in the same step; its status tells the rest.",
        run=create,
        body=shapes.CREATE_CLUSTER,
        success=201,
        answer=shapes.CLUSTER,
        refusals=(409,),
    ),
    Operation(
        method="GET",
        path="/clusters/{id}",
        name="getCluster",
        summary="One cluster with its status and timeline.",
        run=get,
        answer=shapes.CLUSTER,
        refusals=(404,),
    ),
    *(
        Operation(
            method=method,  # type: ignore[arg-type]
            path="/clusters/{id}",
            name=name,
            summary="Merge `spec` into the cluster's spec (RFC 7396: null takes a field away).",
            run=update,
            body=shapes.PATCH,
            answer=shapes.CLUSTER,
            refusals=(404, 409),
        )
        for method, name in (("PATCH", "patchCluster"), ("PUT", "putCluster"))
    ),
    Operation(
        method="DELETE",
        path="/clusters/{id}",
        name="deleteCluster",
        summary="Delete a cluster with its node pools. It is gone when GET answers 404.",
        run=delete,
        success=202,
        answer=shapes.record({"message": {"type": "string"}, "cluster_id": {"type": "string"}}),
        refusals=(404, 409),
    ),
    *(
        Operation(
            method="GET",
            path=f"/clusters/{{id}}/{word}",
            name=name,
            summary="The cluster's status, and what each controller last reported.",
            run=statuses,
            answer=shapes.record(
                {
                    "cluster_id": {"type": "string"},
                    "status": shapes.STATUS,
                    "controller_statuses": {"type": "array", "items": {"type": "object"}},
                }
            ),
            refusals=(404,),
        )
        for word, name in (("statuses", "getClusterStatuses"), ("status", "getClusterStatus"))
    ),
    Operation(
        method="GET",
        path="/clusters/{id}/history",
        name="getClusterHistory",
        summary="Every change of the cluster, newest first, with the request that made it; also of one that is gone.",
        run=history,
        query=NUMBERED,
        answer=shapes.listing("HistoryList", {"type": "object"}, "page", "size", "total"),
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path="/clusters/{id}/kubeconfig",
        name="getClusterKubeconfig",
        summary="The administrator's kubeconfig of a cluster that is up. A secret: keep it.",
        run=kubeconfig,
        answer={"type": "string"},
        media="application/yaml",
        refusals=(404, 409),
    ),
)
