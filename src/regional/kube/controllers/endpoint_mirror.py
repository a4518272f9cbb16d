"""Endpoints written by hand, for a Service without a selector, shown as EndpointSlices to those who read only these."""

from __future__ import annotations

import hashlib

import msgspec

from regional.kube.objects import Obj, annotations_of, labels_of, name_of, namespace_of, owner_reference

MIRRORED_BY = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"


def is_mirrored(endpoints: Obj, controlled: str) -> bool:
    """Not those that a controller writes from pods, that serve as a lock, or that say so themselves."""
    labels = labels_of(endpoints)
    return controlled not in labels and labels.get(SKIP) != "true" and LEADER not in annotations_of(endpoints)


def mirror(endpoints: Obj, service_label: str, managed_label: str) -> list[Obj]:
    """One slice per subset and address family."""
    slices = []
    for subset in endpoints.get("subsets") or []:
        ports = [
            {"name": port.get("name", ""), "port": port["port"], "protocol": port.get("protocol", "TCP")}
            for port in subset.get("ports") or []
        ]
        shown = [(each, True) for each in subset.get("addresses") or []]
        shown += [(each, False) for each in subset.get("notReadyAddresses") or []]
        for family in ("IPv4", "IPv6"):
            members = [_endpoint(each, ready) for each, ready in shown if (":" in each["ip"]) == (family == "IPv6")]
            if members:
                slices.append(_slice(endpoints, family, ports, members, service_label, managed_label))
    return slices


def _slice(
    endpoints: Obj, family: str, ports: list[Obj], members: list[Obj], service_label: str, managed_label: str
) -> Obj:
    digest = hashlib.blake2b(msgspec.json.encode([family, ports]), digest_size=3).hexdigest()
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name_of(endpoints)}-{digest}",
            "namespace": namespace_of(endpoints),
            "labels": {**labels_of(endpoints), service_label: name_of(endpoints), managed_label: MIRRORED_BY},
            "ownerReferences": [owner_reference(endpoints)],
        },
        "addressType": family,
        "ports": ports,
        "endpoints": members,
    }


def _endpoint(address: Obj, ready: bool) -> Obj:
    endpoint: Obj = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    for name in ("hostname", "nodeName", "targetRef"):
        if address.get(name):
            endpoint[name] = address[name]
    return endpoint
