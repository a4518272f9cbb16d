"""Whether a pod may run on a node, and if not, why: the words of FailedScheduling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from regional.kube.objects import (
    Obj,
    is_true,
    labels_of,
    matches,
    metadata_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
)

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3),
    "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip
COUNTED = ("cpu", "memory", "ephemeral-storage")


def facts(node: Obj) -> tuple[Any, ...]:
    """The part of a node that decides placement; heartbeats change everything else."""
    spec, status = spec_of(node), status_of(node)
    return (
        labels_of(node),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
        is_true(node, "Ready"),
        metadata_of(node).get("deletionTimestamp"),
    )


def refusal(pod: Obj, node: Obj) -> str | None:
    """Why this node's nature forbids this pod, or None."""
    spec = spec_of(pod)
    tolerations = spec.get("tolerations") or []
    if spec_of(node).get("unschedulable") and not tolerates(
        tolerations, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    for taint in spec_of(node).get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            shown = f"{{{taint.get('key')}: {taint.get('value', '')}}}"
            return f"node(s) had untolerated taint {shown}"
    selector = spec.get("nodeSelector") or {}
    if not selector.items() <= labels_of(node).items() or not _affine(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def tolerates(tolerations: Iterable[Obj], taint: Obj) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
        if not key:
            if operator == "Exists":
                return True
        elif key == taint.get("key") and (
            operator == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
        ):
            return True
    return False


def _affine(spec: Obj, node: Obj) -> bool:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not required:
        return True
    return any(_term(term, node) for term in required.get("nodeSelectorTerms") or [])


def _term(term: Obj, node: Obj) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_holds(expression, labels_of(node)) for expression in expressions) and all(
        _holds(field, {"metadata.name": name_of(node)}) for field in fields
    )


def _holds(expression: Obj, labels: dict[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or []
    value = labels.get(key)
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not values or not value.lstrip("-").isdigit():
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False


def quantity(text: str | int | float | None) -> Decimal:
    """`500m`, `2Gi`, `1e3`; what is not a quantity counts as nothing."""
    if text is None:
        return Decimal(0)
    written = str(text).strip()
    try:
        return Decimal(written)
    except ArithmeticError:
        pass
    for length in (2, 1):
        factor = _SUFFIXES.get(written[-length:])
        if factor is not None and len(written) > length:
            try:
                return Decimal(written[:-length]) * factor
            except ArithmeticError:
                return Decimal(0)
    return Decimal(0)


def requests_of(pod: Obj) -> dict[str, Decimal]:
    """What the pod asks for: its containers and sidecars together, or the greediest moment of its start.

    A sidecar (an init container that restarts always) runs on beside all that come after it.
    """
    spec = spec_of(pod)
    names = resource_names(spec)
    total = {name: Decimal(0) for name in names}
    for container in spec.get("containers") or []:
        for name in names:
            total[name] += _request(container, name)
    beside = {name: Decimal(0) for name in names}
    peak = {name: Decimal(0) for name in names}
    for container in spec.get("initContainers") or []:
        sidecar = container.get("restartPolicy") == "Always"
        for name in names:
            amount = _request(container, name)
            peak[name] = max(peak[name], beside[name] + amount)
            if sidecar:
                beside[name] += amount
    overhead = spec.get("overhead") or {}
    return {name: max(total[name] + beside[name], peak[name]) + quantity(overhead.get(name)) for name in names}


def resource_names(spec: Obj) -> set[str]:
    """cpu, memory and disk, and whatever else the pod's containers name."""
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    return {*COUNTED, *(name for each in containers for name in (each.get("resources") or {}).get("requests") or {})}


def _request(container: Obj, name: str) -> Decimal:
    return quantity(((container.get("resources") or {}).get("requests") or {}).get(name))


def shortages(pod: Obj, node: Obj, tenants: Iterable[Obj]) -> list[str]:
    """Which resources of the node would not suffice with this pod on it."""
    allocatable = status_of(node).get("allocatable") or {}
    wanted = {name: amount for name, amount in requests_of(pod).items() if amount}
    used = {name: Decimal(0) for name in wanted}
    count = 0
    for tenant in tenants:
        count += 1
        for name, amount in requests_of(tenant).items() if wanted else ():
            if name in used:
                used[name] += amount
    found = []
    if "pods" in allocatable and count + 1 > quantity(allocatable["pods"]):
        found.append("Too many pods")
    for name, amount in wanted.items():
        # A node that does not tell of cpu, memory or disk has enough of it; of anything else it has none.
        known = name in allocatable or name not in COUNTED
        if known and used[name] + amount > quantity(allocatable.get(name)):
            found.append(f"Insufficient {name}")
    return found


def crowds(
    pod: Obj, among: Iterable[Obj], nodes: Iterable[Obj], tenants: Callable[[Obj], Iterable[Obj]]
) -> dict[str, int]:
    """For each node, how many like this pod are in the same place already, by its topologySpreadConstraints.

    A preference only, also where the pod asks for more: with one node to a cluster nothing else could be kept.
    """
    counted = {name_of(node): 0 for node in among}
    for constraint in spec_of(pod).get("topologySpreadConstraints") or []:
        key, selector = constraint.get("topologyKey", ""), constraint.get("labelSelector")
        by_place: Counter[str] = Counter()
        for node in nodes:
            by_place[labels_of(node).get(key, "")] += sum(
                1
                for tenant in tenants(node)
                if namespace_of(tenant) == namespace_of(pod) and selector and matches(selector, labels_of(tenant))
            )
        for node in among:
            counted[name_of(node)] += by_place[labels_of(node).get(key, "")]
    return counted


def occupied_ports(pod: Obj) -> set[tuple[str, int]]:
    return {
        (port.get("protocol") or "TCP", int(port["hostPort"]))
        for container in spec_of(pod).get("containers") or []
        for port in container.get("ports") or []
        if port.get("hostPort")
    }
