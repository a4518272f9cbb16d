"""What the parts of a node share: its settings, its view of the cluster, its clock and its events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec

from regional.core.clock import Clock
from regional.kube.client import Client, Informer, without_managed_fields
from regional.kube.events import EventRecorder
from regional.kube.node.api_door import api_for_pods
from regional.kube.node.claims import ClaimDirectories
from regional.kube.node.containers import Container
from regional.kube.node.environment import Lookup
from regional.kube.node.hosts import hosts_file, service_hosts
from regional.kube.node.layout import NodeDirectory, write_whole
from regional.kube.node.pod_addresses import PodAddresses
from regional.kube.node.sweeping import Sweeper
from regional.kube.node.volumes import SecretsStore, Tokens
from regional.kube.objects import Obj

COMPONENT = "kubelet"


class NodeSettings(msgspec.Struct):
    cluster: str
    node_name: str
    kubeconfig: str
    pki: str
    root: str
    address: str
    pod_cidr: str
    spawner: str
    tools_path: str = "/usr/local/bin:/usr/bin:/bin"
    aws_endpoint: str = ""
    aws_credentials: str = ""
    image: str = "regional/regional"
    port: int = 10250
    restart_backoff: float = 10.0
    restart_backoff_cap: float = 300.0
    log_limit_bytes: int = 10_000_000
    log_pieces: int = 2  # of that size, kept beside the current one
    log_level: str = "info"


class Cluster:
    """Copies of the objects a node looks at all the time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        keep = without_managed_fields
        self.pods = Informer(client, "v1", "Pod", keep=keep)
        self.services = Informer(client, "v1", "Service", keep=keep)
        self.config_maps = Informer(client, "v1", "ConfigMap", keep=keep)
        self.secrets = Informer(client, "v1", "Secret", keep=keep)
        self.claims = Informer(client, "v1", "PersistentVolumeClaim", keep=keep)
        self.volumes = Informer(client, "v1", "PersistentVolume", keep=keep)
        self._sources = {
            "ConfigMap": self.config_maps,
            "Secret": self.secrets,
            "PersistentVolumeClaim": self.claims,
        }
        # Slices of Services with a selector are not read: the proxy selects pods itself (a real API server refuses
        # loopback addresses in slices, so there would be none).
        self.slices = Informer(
            client,
            "discovery.k8s.io/v1",
            "EndpointSlice",
            keep=keep,
            labels="endpointslice.kubernetes.io/managed-by!=endpointslice-controller.k8s.io",
        )

    @property
    def informers(self) -> tuple[Informer, ...]:
        return (self.pods, self.services, *self.sources, self.volumes, self.slices)

    @property
    def sources(self) -> tuple[Informer, ...]:
        """What pods are made of, besides themselves."""
        return tuple(self._sources.values())

    async def start(self) -> None:
        for informer in self.informers:
            informer.start()
        await asyncio.gather(*(informer.synced() for informer in self.informers))

    async def stop(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self.informers))

    async def lookup_for(self, namespace: str, wanted: Iterable[tuple[str, str]]) -> Lookup:
        """ConfigMaps, Secrets and claims by (kind, name). What the cache lacks is asked for: it may lag."""
        found: dict[tuple[str, str], Obj] = {}
        for kind, name in wanted:
            cached = self._sources[kind].get(namespace, name)
            obj = cached or await self._client.get_or_none("v1", kind, name, namespace)
            if obj is not None:
                found[kind, name] = obj
        return lambda kind, name: found.get((kind, name))


class NodeContext:
    def __init__(
        self,
        settings: NodeSettings,
        client: Client,
        cluster: Cluster,
        tokens: Tokens,
        store: SecretsStore,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.client = client
        self.cluster = cluster
        self.tokens = tokens
        self.store = store
        self.clock = clock
        self.directory = NodeDirectory(Path(settings.root))
        self.directory.prepare()
        self.addresses = PodAddresses(settings.pod_cidr, self.directory)
        self.sweeper = Sweeper()
        self.claims = ClaimDirectories(Path(settings.root))
        self._events = events
        self._own_hosts = ""

    @property
    def spawner(self) -> Path:
        return Path(self.settings.spawner)

    def api_for_pods(self) -> tuple[str, int] | None:
        service = self.cluster.services.get("default", "kubernetes")
        return None if service is None else api_for_pods(service, self.settings.kubeconfig)

    def hosts_for(self, pod: Obj, address: str) -> str:
        return hosts_file(pod, address, self.cluster.services, self.cluster.pods)

    def write_own_hosts(self) -> None:
        """The Services' names for what stands beside the cluster, as a VPC's private zone has its load balancers'."""
        text = service_hosts(self.cluster.services)
        if text != self._own_hosts:
            write_whole(self.directory.hosts, text.encode(), 0o644)
            self._own_hosts = text

    def tell(self, about: Obj, reason: str, message: str, field: str = "") -> None:
        self._events.normal(COMPONENT, about, reason, message, field)

    def warn(self, about: Obj, reason: str, message: str, field: str = "") -> None:
        self._events.warning(COMPONENT, about, reason, message, field)


def container_field(container: Container) -> str:
    """Which part of the pod an event is about."""
    return f"spec.{'initContainers' if container.init else 'containers'}{{{container.name}}}"
