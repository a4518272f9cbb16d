"""Work sent by hand: a ManifestWork becomes a resource bundle for one management cluster; bundles are shown as Maestro
has them, without the secrets in them."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from starlette.responses import Response

from regional.platform_api import shapes
from regional.platform_api.errors import ApiError, invalid
from regional.platform_api.masking import masked
from regional.platform_api.operations import Call, Operation, Parameter, made, reply
from regional.platform_api.paging import NUMBERED
from regional.platform_api.schema import Fault

SOURCE = "rosa-regional-platform-api"
MANIFEST_BYTES = 500 * 1024  # an agent drops what is larger
_API_VERSION, _KIND = "work.open-cluster-management.io/v1", "ManifestWork"
_OWNER, _OWNER_KIND = "regional.io/resource-id", "regional.io/kind"  # on what CLM's adapters send
_BUNDLE: dict[str, Any] = {"type": "object"}


async def create(call: Call) -> Response:
    cluster_id, data = _request(call.body)
    metadata, spec = _manifest_work(data)
    name = metadata["name"]
    bundle = await call.region.maestro.create_bundle(
        cluster_id,
        spec["workload"]["manifests"],
        id=work_id(cluster_id, name),
        name=name,
        source=SOURCE,
        metadata=metadata | {"namespace": cluster_id},
        delete_option=spec.get("deleteOption"),
        manifest_configs=spec.get("manifestConfigs"),
        request_id=call.request_id,
    )
    shown = {
        "id": bundle["id"],
        "kind": _KIND,
        "href": f"/api/v0/work/{name}",
        "cluster_id": cluster_id,
        "name": name,
        "status": bundle.get("status") or {},
    }
    return made(shown)


def work_id(consumer: str, name: str) -> str:
    """As the Go client for Maestro computes it, so that the two never make one work twice."""
    return str(
        uuid.uuid5(uuid.NAMESPACE_OID, f"{SOURCE}-manifestworks.work.open-cluster-management.io-{consumer}-{name}")
    )


def _request(body: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(body, dict):
        raise ApiError(400, "invalid-request", "the body must be a JSON object with cluster_id and data")
    cluster_id, data = body.get("cluster_id"), body.get("data")
    if not cluster_id:
        raise ApiError(400, "missing-cluster-id", "cluster_id is required: the name of a management cluster")
    if not isinstance(cluster_id, str) or len(cluster_id) > 63:
        raise ApiError(400, "invalid-request", "cluster_id must be the name of a management cluster")
    if data is None:
        raise ApiError(400, "missing-data", "data is required: a ManifestWork")
    if not isinstance(data, dict):
        raise ApiError(400, "invalid-data", "data must be a JSON object")
    return cluster_id, data


def _manifest_work(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and spec of a ManifestWork that an agent will take."""
    if data.get("apiVersion") != _API_VERSION or data.get("kind") != _KIND:
        raise ApiError(400, "invalid-manifestwork-type", f"data must have apiVersion {_API_VERSION} and kind {_KIND}")
    metadata, spec = data.get("metadata"), data.get("spec")
    faults: list[Fault] = []
    if not isinstance(metadata, dict) or not _is_name(metadata.get("name")):
        faults.append(Fault("data.metadata.name", "data.metadata.name is required, of at most 253 characters"))
    workload = spec.get("workload") if isinstance(spec, dict) else None
    manifests = workload.get("manifests") if isinstance(workload, dict) else None
    if not isinstance(manifests, list) or not manifests:
        faults.append(Fault("data.spec.workload.manifests", "data.spec.workload.manifests must have a manifest"))
    else:
        faults += [fault for index, manifest in enumerate(manifests) for fault in _manifest(manifest, index)]
        if len(msgspec.json.encode(manifests)) > MANIFEST_BYTES:
            faults.append(Fault("data.spec.workload.manifests", f"manifests have more than {MANIFEST_BYTES} bytes"))
    if isinstance(spec, dict):
        for field, kind, words in (("deleteOption", dict, "an object"), ("manifestConfigs", list, "an array")):
            if spec.get(field) is not None and not isinstance(spec[field], kind):
                faults.append(Fault(f"data.spec.{field}", f"data.spec.{field} must be {words}"))
    if faults:
        raise invalid(faults[:50], "invalid-manifestwork")
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    return metadata, spec


def _manifest(manifest: Any, index: int) -> list[Fault]:
    path = f"data.spec.workload.manifests[{index}]"
    if not isinstance(manifest, dict):
        return [Fault(path, f"{path} must be an object")]
    faults = [
        Fault(f"{path}.{field}", f"{path}.{field} is required")
        for field in ("apiVersion", "kind")
        if not isinstance(manifest.get(field), str) or not manifest[field]
    ]
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not _is_name(metadata.get("name")):
        faults.append(Fault(f"{path}.metadata.name", f"{path}.metadata.name is required"))
    return faults


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 253


async def list_bundles(call: Call) -> Response:
    query = call.query
    found = await call.region.maestro.list_bundles(
        search=query.get("search", ""),
        page=call.number("page", 1, 100_000),
        size=call.number("size", 100, 100),
        order_by=query.get("orderBy", ""),
        fields=query.get("fields", ""),
    )
    return reply(found | {"items": [masked(bundle) for bundle in found["items"]]})


async def get_bundle(call: Call) -> Response:
    return reply(masked(await call.region.maestro.get_bundle(call.identifier("resource bundle"))))


async def delete_bundle(call: Call) -> Response:
    bundle_id = call.identifier("resource bundle")
    bundle = await call.region.maestro.get_bundle(bundle_id)  # Maestro takes a delete of what is not there
    labels = (bundle.get("metadata") or {}).get("labels") or {}
    if labels.get(_OWNER) and bundle_id != work_id(bundle.get("consumer_name", ""), bundle.get("name", "")):
        # It would be made again at once, empty: a cluster without its data is worse than a refusal.
        owner = f"{labels.get(_OWNER_KIND, 'resource')} {labels[_OWNER]}"
        raise ApiError(409, "in-use", f"the resource bundle carries {owner}; delete that instead")
    await call.region.maestro.delete_bundle(bundle_id, request_id=call.request_id)
    return reply({"message": "the resource bundle is being deleted", "id": bundle_id}, 202)


async def history(call: Call) -> Response:
    entries = await call.region.maestro.bundle_history(
        call.identifier("resource bundle"), size=call.number("size", 100, 200)
    )
    return reply({"kind": "ResourceBundleHistory", "total": len(entries), "items": entries})


async def redeliver(call: Call) -> Response:
    bundle_id = call.identifier("resource bundle")
    return reply(masked(await call.region.maestro.redeliver_bundle(bundle_id, request_id=call.request_id)), 202)


OPERATIONS = (
    Operation(
        method="POST",
        path="/work",
        name="createWork",
        summary="Send a ManifestWork to a management cluster. The same work again is the same bundle.",
        run=create,
        who="privileged",
        body=shapes.CREATE_WORK,
        checked=False,  # each of its faults has a code of its own
        success=201,
        answer={"type": "object"},
        refusals=(404, 409, 502),
    ),
    Operation(
        method="GET",
        path="/resource_bundles",
        name="listResourceBundles",
        summary="Resource bundles of the region, with the status that came back over the broker.",
        run=list_bundles,
        who="privileged",
        query=(
            *NUMBERED,
            Parameter("search", "Maestro's search, such as: consumer_name = 'mc01'"),
            Parameter("orderBy", "Such as: created_at desc"),
            Parameter("fields", "Only these fields, separated by commas."),
        ),
        answer=_BUNDLE,
        refusals=(502,),
    ),
    Operation(
        method="GET",
        path="/resource_bundles/{id}",
        name="getResourceBundle",
        summary="One resource bundle, and why it is not applied if it is not.",
        run=get_bundle,
        who="privileged",
        answer=_BUNDLE,
        refusals=(404, 502),
    ),
    Operation(
        method="DELETE",
        path="/resource_bundles/{id}",
        name="deleteResourceBundle",
        summary="Ask for a resource bundle's removal; it is gone when its agent has said so.",
        run=delete_bundle,
        who="privileged",
        success=202,
        answer=_BUNDLE,
        refusals=(404, 502),
    ),
    Operation(
        method="GET",
        path="/resource_bundles/{id}/history",
        name="getResourceBundleHistory",
        summary="What became of a resource bundle, newest first; also of one that is gone.",
        run=history,
        who="privileged",
        query=(Parameter("size", "At most so many entries."),),
        answer=_BUNDLE,
        refusals=(404, 502),
    ),
    Operation(
        method="POST",
        path="/resource_bundles/{id}/redeliver",
        name="redeliverResourceBundle",
        summary="Send a resource bundle to its agent once more, above the agent's version if that is newer.",
        run=redeliver,
        who="privileged",
        success=202,
        answer=_BUNDLE,
        refusals=(404, 502),
    ),
)
