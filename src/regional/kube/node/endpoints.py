"""Who answers for a Service's port: pure functions from objects to addresses.

The proxy selects pods itself instead of reading EndpointSlices, because a real API server refuses loopback addresses in
them. Slices that people write by hand for Services without a selector are read.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from regional.kube.objects import Obj, is_deleting, is_true, labels_of, name_of, namespace_of, spec_of, status_of

Backend = tuple[str, int]
_SERVICE_LABEL = "kubernetes.io/service-name"


class Listener(msgspec.Struct, frozen=True):
    """One address that the proxy must answer on."""

    address: str
    port: int


class Door(msgspec.Struct):
    service: Obj
    backends: tuple[Backend, ...]


def doors(services: Iterable[Obj], pods: Iterable[Obj], slices: Iterable[Obj], api: Backend) -> dict[Listener, Door]:
    """Everything the proxy should be doing now. `api` answers for default/kubernetes."""
    by_namespace: dict[str, list[Obj]] = {}
    for pod in pods:
        over = status_of(pod).get("phase") in ("Succeeded", "Failed")
        if status_of(pod).get("podIP") and not over and not is_deleting(pod):
            by_namespace.setdefault(namespace_of(pod), []).append(pod)
    slices = list(slices)
    wanted: dict[Listener, Door] = {}
    for service in services:
        spec = spec_of(service)
        address = spec.get("clusterIP")
        if not address or address == "None" or spec.get("type") == "ExternalName":
            continue
        for port in spec.get("ports") or []:
            if (port.get("protocol") or "TCP") != "TCP":
                continue
            if (namespace_of(service), name_of(service)) == ("default", "kubernetes"):
                backends: tuple[Backend, ...] = (api,)
            elif spec.get("selector"):
                backends = _selected(service, port, by_namespace.get(namespace_of(service), []))
            else:
                backends = _sliced(service, port, slices)
            wanted[Listener(address, int(port["port"]))] = Door(service, backends)
    return wanted


def _selected(service: Obj, port: Obj, pods: Iterable[Obj]) -> tuple[Backend, ...]:
    selector = spec_of(service)["selector"]
    unready_too = bool(spec_of(service).get("publishNotReadyAddresses"))
    found = []
    for pod in pods:
        labels = labels_of(pod)
        if any(labels.get(key) != value for key, value in selector.items()):
            continue
        if not (unready_too or is_true(pod, "Ready")):
            continue
        number = target_port(pod, port)
        if number is not None:
            found.append((str(status_of(pod)["podIP"]), number))
    return tuple(sorted(found))


def target_port(pod: Obj, port: Obj) -> int | None:
    """A number, or the number that the pod's containers give to a name."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int) or str(target).isdigit():
        return int(target)
    for container in spec_of(pod).get("containers") or []:
        for offered in container.get("ports") or []:
            if offered.get("name") == target:
                return int(offered["containerPort"])
    return None


def _sliced(service: Obj, port: Obj, slices: Iterable[Obj]) -> tuple[Backend, ...]:
    found: set[Backend] = set()
    for entry in slices:
        mine = namespace_of(entry) == namespace_of(service)
        if not mine or labels_of(entry).get(_SERVICE_LABEL) != name_of(service):
            continue
        numbers = [p["port"] for p in entry.get("ports") or [] if (p.get("name") or "") == (port.get("name") or "")]
        for endpoint in entry.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready", True) is False:
                continue
            found |= {(address, int(number)) for address in endpoint.get("addresses") or [] for number in numbers}
    return tuple(sorted(found))
