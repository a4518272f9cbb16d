"""How Kubernetes' programs are started for one cluster: its keys, addresses and data as their flags."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from regional.core.pki import KeyPair
from regional.kube.keys import API_NAMES, KeyFiles
from regional.kube.real.programs import Programs

ETCD_PORT = 2379
ISSUER = "https://kubernetes.default.svc.cluster.local"

# The node proxies Services to pods that it selects itself: the API refuses their loopback addresses in endpoints.
# Claims get directories of the node from our own volume controller; its part of a cloud's disks is not there.
NOT_ON_PROCESSES = (
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "node-ipam-controller",
)


class ControlPlane(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster's control plane. `directory` holds (or gets) pki/, etcd/ and kubeconfigs."""

    name: str
    directory: Path
    address: str
    port: int = 6443
    etcd_port: int = ETCD_PORT
    service_cidr: str = "127.0.64.0/24"
    fsync: bool = True
    controllers: bool = True
    without: tuple[str, ...] = ()  # controllers that stay off
    issuer: str = ISSUER
    extra_api_flags: tuple[str, ...] = ()

    @property
    def endpoint(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def data(self) -> Path:
        return self.directory / "etcd"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def manager_kubeconfig(self) -> Path:
        return self.pki / "controller-manager.kubeconfig"

    @property
    def scheduler_kubeconfig(self) -> Path:
        return self.pki / "scheduler.kubeconfig"

    def ensure_keys(self) -> None:
        """All that is missing; what the cluster has of its own (`ca`, `apiserver`, …) is taken as it is."""
        for directory in (self.directory, self.pki, self.pki / "etcd", self.data):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o700)
        keys = KeyFiles(self.pki, self.name)
        authority = keys.authority("ca", f"{self.name}-ca")
        service = str(next(ipaddress.ip_network(self.service_cidr).hosts()))
        keys.server("apiserver", authority, "kube-apiserver", names=API_NAMES, addresses=[self.address, service])
        keys.client("kubelet-client", authority, "kube-apiserver-kubelet-client", ["system:masters"])
        keys.token_key()
        keys.kubeconfig(self.admin_kubeconfig, self.endpoint, authority, "admin", ["system:masters"])
        self._part_kubeconfig(keys, authority, self.manager_kubeconfig, "system:kube-controller-manager")
        self._part_kubeconfig(keys, authority, self.scheduler_kubeconfig, "system:kube-scheduler")
        inner = KeyFiles(self.pki / "etcd", self.name)
        inner_authority = inner.authority("ca", f"{self.name}-etcd-ca")
        inner.server("server", inner_authority, "etcd", names=["localhost"], addresses=[self.address], client=True)
        inner.client("client", inner_authority, "kube-apiserver-etcd-client")

    def _part_kubeconfig(self, keys: KeyFiles, authority: KeyPair, file: Path, user: str) -> None:
        # Controllers share one client here instead of a service account each: the group stands for all their roles.
        keys.kubeconfig(file, self.endpoint, authority, user, ["system:masters"])


class Process(msgspec.Struct, frozen=True):
    name: str  # api, etcd, controllers, scheduler
    argv: list[str]
    address: str
    ready: str  # as a ServiceSpec's
    env: dict[str, str] = {}
    needs: tuple[str, ...] = ()


_FRUGAL = {"GOGC": "50"}  # 157 instead of 210 MiB at rest


def processes(plane: ControlPlane, programs: Programs) -> list[Process]:
    """What has to run, in order; each is begun when the one before answers."""
    etcd = f"{plane.address}:{plane.etcd_port}"
    ready = f"{plane.endpoint}/readyz"
    api_flags = _api_flags(plane)
    manager, scheduler = _manager_flags(plane), _scheduler_flags(plane)
    if programs.one:
        parts = [["etcd", str(plane.data), f"https://{etcd}", str(plane.pki / "etcd"), *_sync(plane, "--no-fsync")]]
        parts.append(["kube-apiserver", *api_flags])
        if plane.controllers:
            parts.append(["wait", ready, str(plane.pki / "ca.crt")])
            parts.append(["kube-controller-manager", *manager])
            parts.append(["kube-scheduler", *scheduler])
        argv = [programs.one, "all", *parts[0]]
        for part in parts[1:]:
            argv += ["--", *part]
        return [Process("api", argv, f"{plane.address}:{plane.port}", ready, _FRUGAL)]
    found = [
        Process("etcd", [programs.etcd, *_etcd_flags(plane, etcd)], etcd, f"tcp:{etcd}"),
        Process(
            "api",
            [programs.apiserver, *api_flags],
            f"{plane.address}:{plane.port}",
            ready,
            _FRUGAL,
            ("etcd",),
        ),
    ]
    if plane.controllers and programs.controller_manager:
        found.append(Process("controllers", [programs.controller_manager, *manager], "", "", _FRUGAL, ("api",)))
    if plane.controllers and programs.scheduler:
        found.append(Process("scheduler", [programs.scheduler, *scheduler], "", "", _FRUGAL, ("api",)))
    return found


def _sync(plane: ControlPlane, flag: str) -> list[str]:
    return [] if plane.fsync else [flag]


def _etcd_flags(plane: ControlPlane, address: str) -> list[str]:
    keys = plane.pki / "etcd"
    return [
        f"--data-dir={plane.data}",
        f"--listen-client-urls=https://{address}",
        f"--advertise-client-urls=https://{address}",
        f"--listen-peer-urls=http://{plane.address}:{plane.etcd_port + 1}",
        "--log-level=warn",
        "--client-cert-auth",
        f"--cert-file={keys / 'server.crt'}",
        f"--key-file={keys / 'server.key'}",
        f"--trusted-ca-file={keys / 'ca.crt'}",
        *_sync(plane, "--unsafe-no-fsync"),
    ]


def _api_flags(plane: ControlPlane) -> list[str]:
    keys = plane.pki
    return [
        f"--etcd-servers=https://{plane.address}:{plane.etcd_port}",
        f"--etcd-cafile={keys / 'etcd' / 'ca.crt'}",
        f"--etcd-certfile={keys / 'etcd' / 'client.crt'}",
        f"--etcd-keyfile={keys / 'etcd' / 'client.key'}",
        f"--bind-address={plane.address}",
        f"--advertise-address={plane.address}",
        f"--secure-port={plane.port}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={plane.issuer}",
        f"--service-account-key-file={keys / 'sa.pub'}",
        f"--service-account-signing-key-file={keys / 'sa.key'}",
        f"--service-cluster-ip-range={plane.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        "--profiling=false",
        *plane.extra_api_flags,
    ]


def _manager_flags(plane: ControlPlane) -> list[str]:
    keys = plane.pki
    return [
        f"--kubeconfig={plane.manager_kubeconfig}",
        f"--root-ca-file={keys / 'ca.crt'}",
        f"--service-account-private-key-file={keys / 'sa.key'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
        f"--controllers={','.join(['*', *(f'-{name}' for name in plane.without)])}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _scheduler_flags(plane: ControlPlane) -> list[str]:
    return [f"--kubeconfig={plane.scheduler_kubeconfig}", "--leader-elect=false", "--secure-port=0"]
