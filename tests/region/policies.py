"""What the network policies of a live cluster say about one connection, as a network plugin would judge it."""

from __future__ import annotations

import ipaddress
from typing import Any

Obj = dict[str, Any]


class Policies:
    def __init__(self, listed: Obj) -> None:
        """`listed`: its network policies, services, namespaces and pods, as `kubectl get` prints them."""
        self._of: dict[str, list[Obj]] = {}
        for item in listed["items"]:
            self._of.setdefault(item["kind"], []).append(item)
        self._namespaces = {
            found["metadata"]["name"]: found["metadata"].get("labels", {}) for found in self._of["Namespace"]
        }

    def let_out(self, pod: str, address: str, port: int) -> bool:
        """`pod` is `<namespace>/<name>`. A pod that no policy is about may go anywhere."""
        namespace, name = pod.split("/")
        labels = next(_labels(found) for found in self._of["Pod"] if _name(found) == (namespace, name))
        about = [
            policy["spec"]
            for policy in self._of["NetworkPolicy"]
            if policy["metadata"]["namespace"] == namespace and _fits(policy["spec"]["podSelector"], labels)
        ]
        rules = [rule for spec in about for rule in spec.get("egress", [])]
        return not about or any(self._allows(rule, address, port) for rule in rules)

    def _allows(self, rule: Obj, address: str, port: int) -> bool:
        ports = {entry["port"] for entry in rule["ports"] if entry["protocol"] == "TCP"}
        return port in ports and any(self._is(peer, address) for peer in rule["to"])

    def _is(self, peer: Obj, address: str) -> bool:
        if "ipBlock" in peer:
            return ipaddress.ip_address(address) in ipaddress.ip_network(peer["ipBlock"]["cidr"])
        return any(
            _fits(peer["namespaceSelector"], self._namespaces[namespace]) and _fits(peer["podSelector"], labels)
            for namespace, labels in self._behind(address)
        )

    def _behind(self, address: str) -> list[tuple[str, dict[str, str]]]:
        """Namespace and labels of the pods that have the address, or that a Service of the address selects."""
        for service in self._of["Service"]:
            if service["spec"].get("clusterIP") == address:
                selector = {"matchLabels": service["spec"].get("selector") or {"no": "pods"}}
                namespace = service["metadata"]["namespace"]
                return [
                    (namespace, _labels(pod))
                    for pod in self._of["Pod"]
                    if pod["metadata"]["namespace"] == namespace and _fits(selector, _labels(pod))
                ]
        return [
            (pod["metadata"]["namespace"], _labels(pod))
            for pod in self._of["Pod"]
            if pod.get("status", {}).get("podIP") == address
        ]


def _name(found: Obj) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def _labels(found: Obj) -> dict[str, str]:
    labels: dict[str, str] = found["metadata"].get("labels", {})
    return labels


def _fits(selector: Obj, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()
