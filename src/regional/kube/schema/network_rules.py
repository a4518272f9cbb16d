"""What Services and their kin must satisfy beyond their types. The texts are the API's."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from regional.kube.objects import Obj, spec_of
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import duplicate, invalid, one_of, required
from regional.kube.schema.names import dns_label

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_PORT_RANGE = "must be between 1 and 65535, inclusive"


def service(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = spec_of(obj)
    kind = spec.get("type")
    yield from one_of("spec.type", kind, ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))
    ports = spec.get("ports") or []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    yield from _service_ports(ports)
    yield from one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    if old is not None and "ExternalName" not in (kind, spec_of(old).get("type")):
        before = spec_of(old).get("clusterIPs") or []
        after = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
        if before and after[:1] != before[:1]:
            yield invalid("spec.clusterIPs[0]", after, "may not change once set")


def _service_ports(ports: list[Obj]) -> Iterator[FieldError]:
    names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        where = f"spec.ports[{index}]"
        number, name = port.get("port"), port.get("name")
        if not isinstance(number, int) or not 1 <= number <= 65535:
            yield invalid(f"{where}.port", number or 0, _PORT_RANGE)
        if len(ports) > 1 and not name:
            yield required(f"{where}.name")
        if name:
            for text in dns_label(name):
                yield invalid(f"{where}.name", name, text)
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        yield from one_of(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)
        target = port.get("targetPort")
        if isinstance(target, int) and not 1 <= target <= 65535:
            yield invalid(f"{where}.targetPort", target, _PORT_RANGE)
        identity = (number, port.get("protocol"))
        if identity in seen:
            yield duplicate(where, {"port": number, "protocol": port.get("protocol")})
        seen.add(identity)


def ingress(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = spec_of(obj)
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", None, "either `defaultBackend` or `rules` must be specified")
    for index, rule in enumerate(spec.get("rules") or ()):
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            if not path.get("pathType"):
                yield required(f"spec.rules[{index}].http.paths[{number}].pathType", "pathType must be specified")


def network_policy(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    for index, kind in enumerate(spec_of(obj).get("policyTypes") or ()):
        yield from one_of(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))


def endpoint_slice(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    if not obj.get("addressType"):
        yield required("addressType")
    else:
        yield from one_of("addressType", obj["addressType"], ("FQDN", "IPv4", "IPv6"))
    for index, port in enumerate(obj.get("ports") or ()):
        yield from one_of(f"ports[{index}].protocol", port.get("protocol"), _PROTOCOLS)
    if obj.get("addressType") in ("IPv4", "IPv6"):
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            for number, address in enumerate(endpoint.get("addresses") or ()):
                if not _is_address(address):
                    yield invalid(f"endpoints[{index}].addresses[{number}]", address, _NO_ADDRESS)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def endpoints(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    for index, subset in enumerate(obj.get("subsets") or ()):
        where, ports = f"subsets[{index}]", subset.get("ports") or []
        for group in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(group) or ()):
                if not _is_address(address.get("ip") or ""):
                    for text in (_NO_ADDRESS, "must be a valid IP address"):
                        yield invalid(f"{where}.{group}[{number}].ip", address.get("ip") or "", text)
        for number, port in enumerate(ports):
            if len(ports) > 1 and not port.get("name"):
                yield required(f"{where}.ports[{number}].name")
            if not 1 <= (port.get("port") or 0) <= 65535:
                yield invalid(f"{where}.ports[{number}].port", port.get("port") or 0, _PORT_RANGE)
            yield from one_of(f"{where}.ports[{number}].protocol", port.get("protocol"), _PROTOCOLS)
