"""The `scale` subresource: one small view over everything that has replicas, built-in or custom."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.kube.apiserver import incoming
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.entries import Entry, Obj
from regional.kube.apiserver.errors import Cause, bad_request, conflict, invalid, other_object
from regional.kube.apiserver.media import patch_type
from regional.kube.apiserver.reads import Reader
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.writes import NO_NAME, Writer
from regional.kube.messages import Response
from regional.kube.schema.registry import BODY_KINDS, Kind
from regional.kube.schema.types import schema_of

SCALE = next(kind for kind in BODY_KINDS if kind.kind == "Scale")
# Custom kinds' scales are printed by what a CRD would say of them.
_CUSTOM_SCALE = msgspec.structs.replace(
    SCALE,
    custom={
        "additionalPrinterColumns": [
            {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Available", "type": "integer", "jsonPath": ".status.replicas"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]
    },
)


def _paths(kind: Kind) -> tuple[str, str, str]:
    """Where spec replicas, status replicas and the selector are."""
    if kind.custom is None:
        return "spec.replicas", "status.replicas", "spec.selector"
    declared = kind.custom["subresources"]["scale"]
    return tuple(  # type: ignore[return-value]
        str(declared.get(key) or "").removeprefix(".")
        for key in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    )


def _at(obj: Obj, path: str) -> Any:
    value: Any = obj
    for part in path.split(".") if path else ():
        value = value.get(part) if isinstance(value, dict) else None
    return value if path else None


def _put(obj: Obj, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


def _selector_text(selector: Any) -> str:
    if not isinstance(selector, dict):
        return str(selector or "")
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or ():
        key, values = each.get("key"), ",".join(sorted(each.get("values") or ()))
        terms.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": f"{key}"}.get(
                each.get("operator"), f"!{key}"
            )
        )
    return ",".join(terms)


def scale_of(kind: Kind, obj: Obj) -> Obj:
    desired, current, selector = _paths(kind)
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec_replicas = _at(obj, desired)
    scale: Obj = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": spec_replicas} if spec_replicas else {},
        "status": {"replicas": _at(obj, current) or 0},
    }
    if text := _selector_text(_at(obj, selector)):
        scale["status"]["selector"] = text
    return scale


def _replicas(call: Call, wanted: Obj, obj: Obj) -> int:
    metadata, spec = wanted.get("metadata") or {}, wanted.get("spec") or {}
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise bad_request("metadata and spec of a Scale are objects")
    _check_identity(call, metadata, obj)
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas of a Scale is an integer")
    if replicas >= 0:
        return replicas
    if call.kind.custom is not None:
        text = f"Invalid value: {replicas}: should be a non-negative integer"
        where = "." + _paths(call.kind)[0].lstrip(".")
        raise invalid(call.kind, call.target.name, [Cause("FieldValueInvalid", text, where)])
    text = f"Invalid value: {replicas}: must be greater than or equal to 0"
    raise invalid(SCALE, call.target.name, [Cause("FieldValueInvalid", text, "spec.replicas")])


def _check_identity(call: Call, metadata: Obj, obj: Obj) -> None:
    """A Scale is that of one object, and of one version of it if it says so."""
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not name:
        raise bad_request(f"the name of the object ({call.target.name} based on URL) was undeterminable: {NO_NAME}")
    if name != call.target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.target.name})")
    if namespace and namespace != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    uid, found = metadata.get("uid"), obj["metadata"]["uid"]
    if uid and uid != found:
        raise other_object(call.kind, call.namespace, call.target.name, uid, found)
    revision = metadata.get("resourceVersion")
    if revision and revision != obj["metadata"]["resourceVersion"]:
        raise conflict(call.kind, call.target.name)


class Scaler:
    def __init__(self, reader: Reader, writer: Writer, renderer: Renderer) -> None:
        self._reader = reader
        self._writer = writer
        self._renderer = renderer

    async def get(self, call: Call) -> Response:
        return self._answer(call, self._reader.entry(call))

    async def update(self, call: Call) -> Response:
        call.check_options("UpdateOptions")
        sent = incoming.decode_object(msgspec.structs.replace(call, kind=SCALE), schema_of(SCALE))
        return self._answer(call, await self._set(call, lambda _: sent))

    async def patch(self, call: Call) -> Response:
        call.check_options("PatchOptions")
        how = patch_type(call.request, call.kind)
        schema = schema_of(SCALE)
        if how == "apply":
            return self._answer(call, await self._apply(call))
        patch = incoming.decode_patch(call, how)
        return self._answer(call, await self._set(call, lambda scale: incoming.patched(how, scale, patch, schema)))

    async def _set(self, call: Call, change: Any) -> Entry:
        def alter(obj: Obj) -> None:
            _put(obj, _paths(call.kind)[0], _replicas(call, change(scale_of(call.kind, obj)), obj))

        return await self._writer.mutate(call, alter, tracked_as="scale")

    async def _apply(self, call: Call) -> Entry:
        """The number alone is applied, to the object: whoever else owns it there is in the way."""
        applied = incoming.decode_applied(msgspec.structs.replace(call, kind=SCALE), schema_of(SCALE))
        force = call.request.flag("force")

        def alter(obj: Obj) -> None:
            config: Obj = {"apiVersion": call.kind.api_version, "kind": call.kind.kind, "metadata": {}}
            if "replicas" in (applied.get("spec") or {}):
                _put(config, _paths(call.kind)[0], _replicas(call, applied, obj))
            result = self._writer.applied_part(call, obj, config, "scale", force=force)
            obj.clear()
            obj.update(result)

        return await self._writer.mutate(call, alter, managed=True)

    def _answer(self, call: Call, entry: Entry) -> Response:
        scale = scale_of(call.kind, self._renderer.obj(call.kind, entry))
        printed = SCALE if call.kind.custom is None else _CUSTOM_SCALE
        return self._renderer.view(printed, scale, call.wanted, call.request.parameter("includeObject"))
