"""The operator's view of its Management Cluster: copies of what it looks at, and who must look when one changes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

from regional.core.clock import Clock
from regional.core.pki import KeyPair
from regional.hypershift.guest.connection import Access
from regional.hypershift.names import (
    API_PORT,
    API_VERSION,
    CONTROL_PLANE_LABEL,
    KUBE_APISERVER,
    MANAGED_SELECTOR,
    cluster_of,
    control_plane_namespace,
)
from regional.kube.client import Client, Informer, without_managed_fields
from regional.kube.objects import Key, Obj, condition_of, is_true, key_of, namespace_of, spec_of, status_of, version_of

Enqueue = Callable[[Key], None]


class World:
    def __init__(self, client: Client, clock: Clock) -> None:
        def watch(api_version: str, kind: str, labels: str = "") -> Informer:
            return Informer(client, api_version, kind, labels=labels or None, keep=without_managed_fields, clock=clock)

        self.hosted = watch(API_VERSION, "HostedCluster")
        self.pools = watch(API_VERSION, "NodePool")
        self.control_planes = watch(API_VERSION, "HostedControlPlane")
        self.components = watch(API_VERSION, "ControlPlaneComponent")
        self.namespaces = watch("v1", "Namespace", f"{CONTROL_PLANE_LABEL}=true")
        self.accounts = watch("v1", "ServiceAccount", MANAGED_SELECTOR)
        self.services = watch("v1", "Service", MANAGED_SELECTOR)
        self.secrets = watch("v1", "Secret", MANAGED_SELECTOR)
        self.config_maps = watch("v1", "ConfigMap", MANAGED_SELECTOR)
        self.stateful_sets = watch("apps/v1", "StatefulSet", MANAGED_SELECTOR)
        self.pods = watch("v1", "Pod", MANAGED_SELECTOR)
        self._own_words: dict[Key, str] = {}
        self.pools.index("cluster", lambda pool: (f"{namespace_of(pool)}/{spec_of(pool).get('clusterName', '')}",))

    @property
    def informers(self) -> tuple[Informer, ...]:
        own = (self.hosted, self.pools, self.control_planes, self.components)
        return (*own, self.namespaces, *self._parts)

    @property
    def _parts(self) -> tuple[Informer, ...]:
        plain = (self.accounts, self.services, self.secrets, self.config_maps)
        return (*plain, self.stateful_sets, self.pods)

    async def start(self) -> None:
        for informer in self.informers:
            informer.start()
        await asyncio.gather(*(informer.synced() for informer in self.informers))

    async def stop(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self.informers))

    # -- asking ----------------------------------------------------------------------------------------------------

    def pools_of(self, hosted: Key) -> list[Obj]:
        return self.pools.indexed("cluster", "/".join(hosted))

    def cluster_of_pool(self, pool: Obj) -> Obj | None:
        return self.hosted.get(namespace_of(pool), str(spec_of(pool).get("clusterName", "")))

    def pod_of(self, hosted: Obj) -> Obj | None:
        return self.pods.get(control_plane_namespace(hosted), f"{KUBE_APISERVER}-0")

    def address_of(self, hosted: Obj) -> str:
        service = self.services.get(control_plane_namespace(hosted), KUBE_APISERVER)
        return str(spec_of(service).get("clusterIP") or "") if service is not None else ""

    def access_to(self, hosted: Obj) -> Access | None:
        """How to reach the guest's API, once there are an address and keys."""
        namespace, address = control_plane_namespace(hosted), self.address_of(hosted)
        root, client = self.secrets.get(namespace, "root-ca"), self.secrets.get(namespace, "hcco-client")
        if not address or root is None or client is None:
            return None
        try:
            pair = KeyPair(_text(client, "tls.crt"), _text(client, "tls.key"))
            return Access(f"https://{address}:{API_PORT}", _text(root, "ca.crt"), pair)
        except KeyError:
            return None

    def said_of_hosted(self, answer: Obj) -> None:
        """The answer to a write of our own, in the midst of a pass: no reason for another one."""
        self._own_words[key_of(answer)] = version_of(answer)
        self.hosted.observe(answer)
        self._own_words.pop(key_of(answer), None)

    # -- listening -------------------------------------------------------------------------------------------------

    def on_hosted(self, enqueue: Enqueue, later: Enqueue) -> None:
        """Whatever may change the next step of a HostedCluster. Its own status is not among that.

        `later` takes what only changes the words in which a wait is told: a pod on its way up has many of those.
        """

        def itself(kind: str, obj: Obj, old: Obj | None) -> None:
            own = self._own_words.pop(key_of(obj), "")
            if own != version_of(obj) and (kind != "MODIFIED" or old is None or _asked(obj) != _asked(old)):
                enqueue(key_of(obj))

        def pool(kind: str, obj: Obj, old: Obj | None) -> None:
            if kind != "MODIFIED" or old is None or _offered(obj) != _offered(old):
                enqueue((namespace_of(obj), str(spec_of(obj).get("clusterName", ""))))

        def part(kind: str, obj: Obj, old: Obj | None) -> None:
            key = cluster_of(obj)
            if key is None or (kind == "MODIFIED" and old is not None and _working(obj) == _working(old)):
                return
            if kind == "DELETED" or (kind == "MODIFIED" and old is not None and _serving(obj) != _serving(old)):
                enqueue(key)
            elif kind == "MODIFIED":
                later(key)

        self.hosted.add_listener(itself)
        self.pools.add_listener(pool)
        for informer in (self.control_planes, self.components, self.namespaces, *self._parts):
            informer.add_listener(part)

    def on_pools(self, enqueue: Enqueue) -> None:
        def itself(kind: str, obj: Obj, old: Obj | None) -> None:
            if kind != "MODIFIED" or old is None or _asked(obj) != _asked(old):
                enqueue(key_of(obj))

        def hosted(kind: str, obj: Obj, old: Obj | None) -> None:
            if kind != "MODIFIED" or old is None or _for_pools(obj) != _for_pools(old):
                for pool in self.pools_of(key_of(obj)):
                    enqueue(key_of(pool))

        self.pools.add_listener(itself)
        self.hosted.add_listener(hosted)


def _asked(obj: Obj) -> tuple[Any, ...]:
    """Everything but the status."""
    metadata = obj["metadata"]
    kept = ("generation", "annotations", "labels", "finalizers", "deletionTimestamp", "ownerReferences", "uid")
    return tuple(metadata.get(name) for name in kept)


def _offered(pool: Obj) -> tuple[Any, ...]:
    return (status_of(pool).get("replicas"), pool["metadata"].get("deletionTimestamp"))


def _working(obj: Obj) -> tuple[Any, ...]:
    """What of a part of a control plane matters to the whole: its content, and for workloads how they are doing."""
    status = status_of(obj)
    if obj.get("kind") == "Pod":
        states = [(c.get("restartCount"), c["state"].get("waiting")) for c in status.get("containerStatuses") or []]
        return (is_true(obj, "Ready"), condition_of(obj, "PodScheduled"), states, obj["metadata"]["uid"])
    if obj.get("kind") == "StatefulSet":
        told = ("observedGeneration", "updateRevision")
        return tuple(status.get(name) for name in told) + _asked(obj)
    return (*_asked(obj), obj.get("data"))


def _serving(obj: Obj) -> tuple[Any, ...]:
    """As `_working`, without what a workload goes through before it serves."""
    if obj.get("kind") == "Pod":
        return (is_true(obj, "Ready"), obj["metadata"]["uid"])
    if obj.get("kind") == "StatefulSet":
        return _asked(obj)
    return _working(obj)


def _for_pools(hosted: Obj) -> tuple[Any, ...]:
    status = status_of(hosted)
    available = condition_of(hosted, "KubeAPIServerAvailable") or {}
    history = (status.get("version") or {}).get("history") or []
    versions = [(entry.get("state"), entry.get("version")) for entry in history[:2]]
    return (*_asked(hosted), status.get("kubeconfig"), available.get("status"), versions)


def _text(secret: Obj, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()
