"""Service: which pods stand behind a name, as EndpointSlices and, for older readers, as Endpoints."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from regional.kube.client import ApiError, Informer
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.endpoint_mirror import MIRRORED_BY, is_mirrored, mirror
from regional.kube.controllers.pods import is_finished, is_ready
from regional.kube.objects import (
    Key,
    Obj,
    copied,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    spec_of,
    status_of,
    uid_of,
)

log = logging.getLogger(__name__)
SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGED_BY = "endpointslice-controller.k8s.io"
ENDPOINTS_LABEL = "endpoints.kubernetes.io/managed-by"
ENDPOINTS_BY = "endpoint-controller"
PER_SLICE = 1000


class EndpointsController(Controller):
    name = "endpoints"
    workers = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.services = context.informers.of("v1", "Service")
        self.pods = context.informers.of("v1", "Pod")
        self.slices = context.informers.of("discovery.k8s.io/v1", "EndpointSlice")
        self.endpoints = context.informers.of("v1", "Endpoints")
        self.slices.index("service", _service_of)
        self.services.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.slices.add_handler(self._slice_changed)
        self.endpoints.add_handler(self._endpoints_changed)
        self.pods.add_listener(self._pod_changed)
        self._refused = False

    def keys(self) -> Iterable[Key]:
        return list(self.services.objects)

    def _slice_changed(self, _kind: str, obj: Obj) -> None:
        if labels_of(obj).get(MANAGED_LABEL) in (MANAGED_BY, MIRRORED_BY):
            self.queue.add((namespace_of(obj), labels_of(obj).get(SERVICE_LABEL, "")))

    def _endpoints_changed(self, _kind: str, obj: Obj) -> None:
        self.queue.add(key_of(obj))

    def _pod_changed(self, _kind: str, pod: Obj, old: Obj | None) -> None:
        if old is not None and _standing(pod) == _standing(old) and _kind != "DELETED":
            return
        for service in self.services.in_namespace(namespace_of(pod)):
            selector = spec_of(service).get("selector")
            if selector and any(
                selector.items() <= labels_of(version).items() for version in (pod, old) if version is not None
            ):
                self.queue.add(key_of(service))

    async def reconcile(self, key: Key) -> float | None:
        service = self.services.get(*key)
        if service is None or is_deleting(service):
            await self._remove(key)
            return None
        spec = spec_of(service)
        if spec.get("type") == "ExternalName":
            return None
        if not spec.get("selector"):
            await self._mirror(key)
            return None
        selector: dict[str, str] = spec["selector"]
        pods = sorted(
            (
                pod
                for pod in self.pods.in_namespace(key[0])
                if selector.items() <= labels_of(pod).items() and status_of(pod).get("podIP") and not is_finished(pod)
            ),
            key=name_of,
        )
        groups = _by_ports(service, pods)
        try:
            await self._write_slices(service, groups)
            await self._write_endpoints(service, groups)
        except ApiError as error:
            if error.status != 422 or "loopback" not in error.message:
                raise
            # A real API server does not take loopback addresses here; our proxy finds the pods by itself.
            if not self._refused:
                self._refused = True
                log.warning("the API server refuses loopback endpoints", extra={"reason": error.message[:300]})
        return None

    async def _mirror(self, key: Key) -> None:
        endpoints = self.endpoints.get(*key)
        if endpoints is None or is_deleting(endpoints):
            return  # its slices are its own and go with it
        shown = mirror(endpoints, SERVICE_LABEL, MANAGED_LABEL) if is_mirrored(endpoints, ENDPOINTS_LABEL) else []
        await self._settle(key, MIRRORED_BY, {name_of(document): document for document in shown})

    async def _remove(self, key: Key) -> None:
        """Slices go with their owner by garbage collection; Endpoints have none."""
        present = self.endpoints.get(*key)
        if present is not None and labels_of(present).get(ENDPOINTS_LABEL) == ENDPOINTS_BY:
            await self.context.delete_child(self.endpoints, present)

    async def _write_slices(self, service: Obj, groups: list[tuple[list[Obj], list[Obj]]]) -> None:
        wanted = {}
        for ports, pods in groups:
            for start in range(0, len(pods), PER_SLICE):
                document = _slice(service, ports, pods[start : start + PER_SLICE], start // PER_SLICE)
                wanted[name_of(document)] = document
        if not groups:
            # Named as the slice of the first pod most likely will be, so that it is filled and not replaced.
            empty = _slice(service, _fixed_ports(service), [], 0) | {"ports": []}
            wanted[name_of(empty)] = empty
        await self._settle(key_of(service), MANAGED_BY, wanted)

    async def _settle(self, key: Key, manager: str, wanted: dict[str, Obj]) -> None:
        present = {
            name_of(obj): obj
            for obj in self.slices.indexed("service", "/".join(key))
            if labels_of(obj).get(MANAGED_LABEL) == manager and not is_deleting(obj)
        }
        for name, document in wanted.items():
            await self._ensure(self.slices, present.get(name), document)
        for name, obj in present.items():
            if name not in wanted:
                await self.context.delete_child(self.slices, obj)

    async def _write_endpoints(self, service: Obj, groups: list[tuple[list[Obj], list[Obj]]]) -> None:
        present = self.endpoints.get(*key_of(service))
        await self._ensure(self.endpoints, present, _endpoints(service, groups))

    async def _ensure(self, informer: Informer, present: Obj | None, document: Obj) -> None:
        if present is None:
            informer.observe(await self.client.create(document))
            return
        wanted = copied(present)
        wanted["metadata"]["labels"] = document["metadata"]["labels"]
        for field in ("endpoints", "ports", "subsets"):
            if document.get(field):
                wanted[field] = document[field]
            elif field in wanted and field in document:
                # Absent and null and [] are the same to readers; keep the spelling that is there.
                wanted[field] = wanted[field] and []
        if wanted != present:
            informer.observe(await self.client.update(wanted))


def _standing(pod: Obj) -> tuple[Any, ...]:
    status = status_of(pod)
    return (labels_of(pod), status.get("podIP"), is_ready(pod), is_deleting(pod), is_finished(pod))


def _service_of(obj: Obj) -> Iterable[str]:
    service = labels_of(obj).get(SERVICE_LABEL)
    return (f"{namespace_of(obj)}/{service}",) if service else ()


def _by_ports(service: Obj, pods: list[Obj]) -> list[tuple[list[Obj], list[Obj]]]:
    """Pods may give a named target port different numbers, and one slice has one set of numbers."""
    groups: dict[str, tuple[list[Obj], list[Obj]]] = {}
    for pod in pods:
        ports = [
            port for declared in spec_of(service).get("ports") or [] if (port := _resolved(declared, pod)) is not None
        ]
        groups.setdefault(msgspec.json.encode(ports).decode(), (ports, []))[1].append(pod)
    return [groups[text] for text in sorted(groups)]


def _resolved(declared: Obj, pod: Obj) -> Obj | None:
    target = declared.get("targetPort", declared.get("port"))
    protocol = declared.get("protocol", "TCP")
    number: int | None = target if isinstance(target, int) else None
    if number is None:
        for container in spec_of(pod).get("containers") or []:
            for port in container.get("ports") or []:
                if port.get("name") == target and port.get("protocol", "TCP") == protocol:
                    number = port.get("containerPort")
    if number is None:
        return None
    resolved: Obj = {"name": declared.get("name", ""), "port": number, "protocol": protocol}
    if declared.get("appProtocol"):
        resolved["appProtocol"] = declared["appProtocol"]
    return resolved


def _fixed_ports(service: Obj) -> list[Obj]:
    """The ports as far as they are known without a pod."""
    return [port for declared in spec_of(service).get("ports") or [] if (port := _resolved(declared, {})) is not None]


def _shown_labels(service: Obj) -> dict[str, str]:
    headless = spec_of(service).get("clusterIP") == "None"
    return {**labels_of(service), **({"service.kubernetes.io/headless": ""} if headless else {})}


def _slice(service: Obj, ports: list[Obj], pods: list[Obj], part: int) -> Obj:
    # A name that follows from the content's shape makes a repeated create harmless.
    digest = hashlib.blake2b(msgspec.json.encode([ports, part]), digest_size=3).hexdigest()
    labels = {**_shown_labels(service), SERVICE_LABEL: name_of(service), MANAGED_LABEL: MANAGED_BY}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name_of(service)}-{digest}",
            "namespace": namespace_of(service),
            "labels": labels,
            "ownerReferences": [owner_reference(service)],
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [_endpoint(service, pod) for pod in pods],
    }


def _endpoint(service: Obj, pod: Obj) -> Obj:
    publish_all = bool(spec_of(service).get("publishNotReadyAddresses"))
    serving, terminating = is_ready(pod), is_deleting(pod)
    endpoint: Obj = {
        "addresses": [status_of(pod)["podIP"]],
        "conditions": {
            "ready": publish_all or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {"kind": "Pod", "name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
    }
    if spec_of(pod).get("nodeName"):
        endpoint["nodeName"] = spec_of(pod)["nodeName"]
    if spec_of(pod).get("hostname") and spec_of(pod).get("subdomain") == name_of(service):
        endpoint["hostname"] = spec_of(pod)["hostname"]
    return endpoint


def _endpoints(service: Obj, groups: list[tuple[list[Obj], list[Obj]]]) -> Obj:
    subsets = []
    for ports, pods in groups:
        subset: Obj = {}
        for pod in pods:
            endpoint = _endpoint(service, pod)
            if endpoint["conditions"]["terminating"] and not endpoint["conditions"]["ready"]:
                continue
            address: Obj = {"ip": endpoint["addresses"][0], "targetRef": endpoint["targetRef"]}
            if "nodeName" in endpoint:
                address["nodeName"] = endpoint["nodeName"]
            if "hostname" in endpoint:
                address["hostname"] = endpoint["hostname"]
            list_name = "addresses" if endpoint["conditions"]["ready"] else "notReadyAddresses"
            subset.setdefault(list_name, []).append(address)
        if subset:
            subsets.append(subset | {"ports": [{k: v for k, v in port.items() if v != ""} for port in ports]})
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": name_of(service),
            "namespace": namespace_of(service),
            "labels": {**_shown_labels(service), ENDPOINTS_LABEL: ENDPOINTS_BY},
        },
        "subsets": subsets,
    }
