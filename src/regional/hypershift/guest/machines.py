"""What a simulated machine looks like: its size, its address, its Node object. Pure functions.

Nothing runs on these nodes. They say so with a label (`regional.io/simulated`), in their runtime's name and in the
message of their Ready condition.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Collection
from datetime import datetime

import msgspec

from regional.core.clock import rfc3339
from regional.hypershift.names import (
    CURRENT_CONFIG_VERSION,
    NODE_POOL,
    PREFIX,
    RELEASE_VERSION,
    REQUEST_ID,
    SIMULATED,
)
from regional.hypershift.releases import Release
from regional.kube.objects import Obj

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MACHINE_NETWORK = "10.0.0.0/16"
_GIB_PER_CPU = {"c": 2, "m": 4, "r": 8}
_SIZE = re.compile(r"^(\d*)x?large$")
_DEFAULT = (4, 16)


class Template(msgspec.Struct, frozen=True):
    """What all new nodes of a pool have in common."""

    pool: str
    pool_uid: str
    digest: str
    release: Release
    labels: dict[str, str]
    taints: list[Obj]
    architecture: str
    instance_type: str
    zone: str
    region: str
    machine_network: str
    control_plane: str
    request_id: str = ""


def node_name(template: Template, number: int) -> str:
    """The same for the same place in the pool: an operator that was killed in mid-scaling makes no twins."""
    seed = hashlib.sha256(f"{template.pool_uid}/{template.digest}/{number}".encode()).digest()
    suffix = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in seed[:5])
    return f"{template.pool[:40]}-{template.digest}-{suffix}"


def address(name: str, network: str, taken: Collection[str]) -> str:
    """Where the name puts it in the machine network, or the next free place."""
    block = ipaddress.ip_network(network or _MACHINE_NETWORK, strict=False)
    size = min(block.num_addresses - 2, 1 << 24)
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % max(1, size)
    for step in range(size):
        candidate = str(block[1 + (first + step) % size])
        if candidate not in taken:
            return candidate
    return str(block[1])


def size(instance_type: str) -> tuple[int, int]:
    """CPUs and GiB, by the usual meaning of instance type names (`m6a.2xlarge`)."""
    family, _, word = instance_type.partition(".")
    found = _SIZE.match(word)
    if found is None:
        return _DEFAULT
    cpus = 2 if word == "large" else 4 * int(found[1] or 1)
    return cpus, cpus * _GIB_PER_CPU.get(family[:1], 4)


def node(template: Template, name: str, internal_address: str, now: datetime) -> Obj:
    labels = {
        "beta.kubernetes.io/arch": template.architecture,
        "kubernetes.io/arch": template.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/worker": "",
        "node.kubernetes.io/instance-type": template.instance_type or "simulated",
        "topology.kubernetes.io/region": template.region,
        "topology.kubernetes.io/zone": template.zone,
        **template.labels,
        NODE_POOL: template.pool,
        SIMULATED: "true",
    }
    annotations = {
        "cluster.x-k8s.io/machine": name,
        "cluster.x-k8s.io/cluster-namespace": template.control_plane,
        CURRENT_CONFIG_VERSION: template.digest,
        RELEASE_VERSION: template.release.version,
        f"{PREFIX}labelsSynced": "true",
        **({REQUEST_ID: template.request_id} if template.request_id else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {key: value for key, value in labels.items() if value or key.endswith("/worker")},
            "annotations": annotations,
        },
        "spec": {"providerID": f"simulated://{template.control_plane}/{name}"}
        | ({"taints": template.taints} if template.taints else {}),
        "status": status(template, name, internal_address, now),
    }


def status(template: Template, name: str, internal_address: str, now: datetime) -> Obj:
    cpus, gib = size(template.instance_type)
    capacity = {"cpu": str(cpus), "memory": f"{gib}Gi", "pods": "250", "ephemeral-storage": "120Gi"}
    return {
        "addresses": [
            {"type": "InternalIP", "address": internal_address},
            {"type": "Hostname", "address": name},
            {"type": "InternalDNS", "address": name},
        ],
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions(now),
        "nodeInfo": {
            "architecture": template.architecture,
            "bootID": "",
            "containerRuntimeVersion": "simulated://1",
            "kernelVersion": "simulated",
            "kubeProxyVersion": template.release.kubernetes,
            "kubeletVersion": template.release.kubernetes,
            "machineID": name,
            "operatingSystem": "linux",
            "osImage": f"Simulated node of release {template.release.version}",
            "systemUUID": name,
        },
    }


def conditions(now: datetime) -> list[Obj]:
    stamp = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(now)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "this node is simulated"}
    return [
        *(
            {"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", "message": "simulated"} | stamp
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ),
        ready | stamp,
    ]
