"""A Management Cluster for these tests: a warm parent, an API, a node, and the operator installed from its chart.

All of them are processes of their own, as in a region, so that a test can kill any of them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from regional.core import paths
from regional.core.process import ProcessRef
from regional.core.spawn import SpawnRequest, read_state, spawn_sync
from regional.kube.client import ApiError, Client
from regional.kube.node.sweeping import kill_inside
from regional.kube.objects import Obj, condition_of, is_true, name_of, status_of, uid_of, version_of
from regional.local.addresses import API_PORT, KUBELET_PORT, Addresses
from regional.local.provisioner.cluster_directory import ClusterDirectory
from regional.local.tools import ensure_kubectl_and_helm

T = TypeVar("T")
HYPERSHIFT = "hypershift.openshift.io/v1beta1"
RELEASE = "quay.io/openshift-release-dev/ocp-release:4.21.3-multi"
NEXT_RELEASE = "quay.io/openshift-release-dev/ocp-release:4.22.0-multi"
CHART = paths.checkout() / "argocd" / "config" / "management-cluster" / "hypershift"
OPERATOR = ("hypershift", "hypershift")
_SERVE = "import sys; from regional.core.spawn import main; sys.exit(main(sys.argv[1:]))"


class ManagementCluster:
    def __init__(self, directory: Path) -> None:
        self.region = paths.RegionPaths("hypershift-test", directory)
        self.region.root.mkdir(parents=True)
        self.addresses = Addresses(self.region)
        self.block = self.addresses.block("mc01")
        self.files = ClusterDirectory(self.region.cluster("mc01"), "mc01", self.block)
        self.files.ensure()
        self.root = self.region.node("mc01")
        self.kubeconfig = self.files.admin_kubeconfig
        self.socket = directory / "warm.sock"
        self._logs = directory / "logs"
        self._logs.mkdir()
        self._warm: subprocess.Popen[bytes] | None = None
        self._services: dict[str, ProcessRef] = {}

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        with (self._logs / "warm").open("ab") as log:
            self._warm = subprocess.Popen(
                [sys.executable, "-c", _SERVE, "--socket", str(self.socket)],
                env={"PATH": os.defpath},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while not self._is_warm():
            assert time.monotonic() < deadline and self._warm.poll() is None, self.log_of("warm")[-4000:]
            time.sleep(0.02)
        self.start_api()
        self.start_node()
        self.install()

    def _is_warm(self) -> bool:
        with contextlib.suppress(OSError):
            spawn_sync(self.socket, SpawnRequest(["/bin/true"], {}))
            return True
        return False

    def log_of(self, service: str) -> str:
        return (self._logs / service).read_text()

    def _serve(self, role: str, port: int, **flags: str) -> None:
        """Until it listens. Started again if it ends, as a supervisor would: a killed predecessor's lock may linger."""
        argv = ["regionctl", "serve", role]
        for name, value in flags.items():
            argv += [f"--{name.replace('_', '-')}", value]
        environment = {"PATH": os.defpath}
        request = SpawnRequest(argv, environment, log=str(self._logs / role), title=role)
        deadline = time.monotonic() + 60
        self._services[role] = spawn_sync(self.socket, request)
        while not _listens(flags["address"], port):
            assert time.monotonic() < deadline, self.log_of(role)[-4000:]
            if not self._services[role].alive():
                self._services[role] = spawn_sync(self.socket, request)
            time.sleep(0.02)

    def start_api(self) -> None:
        self._serve(
            "kube-api",
            API_PORT,
            cluster="mc01",
            data=str(self.files.data),
            pki=str(self.files.certificates),
            address=self.block.api,
            service_cidr=self.block.service_cidr,
        )

    def start_node(self) -> None:
        self._serve(
            "kube-node",
            KUBELET_PORT,
            cluster="mc01",
            node_name=self.files.node_name,
            kubeconfig=str(self.files.node_kubeconfig),
            pki=str(self.files.certificates),
            root=str(self.root),
            address=self.block.node,
            pod_cidr=self.block.pod_cidr,
            spawner=str(self.socket),
            tools_path=os.defpath,
            image="regional/regional",
            restart_backoff="2.0",  # exit times have whole seconds: less than one could be over before it is seen
            restart_backoff_cap="2.0",
        )

    async def kill(self, role: str) -> None:
        process = self._services.pop(role)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()

    def install(self) -> None:
        """The chart, as GitOps would apply it."""
        rendered = subprocess.run(
            [ensure_kubectl_and_helm() / "helm", "template", "hypershift", str(CHART), "--namespace", OPERATOR[0]],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.kubectl("create", "namespace", OPERATOR[0])
        self.kubectl("apply", "--server-side", "-f", "-", text=rendered)
        self.kubectl("rollout", "status", "deployment/hypershift", "-n", OPERATOR[0], "--timeout=150s")

    def stop(self) -> None:
        for process in self._services.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        if self._warm is not None:
            self._warm.terminate()
            self._warm.wait()
        kill_inside([str(self.root)])
        for process in self._services.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.addresses.release_all()

    def kubectl(self, *words: str, kubeconfig: Path | None = None, text: str | None = None) -> str:
        program = ensure_kubectl_and_helm() / "kubectl"
        command = [str(program), "--kubeconfig", str(kubeconfig or self.kubeconfig), *words]
        cache = ["--cache-dir", str(self.region.root / "kubectl-cache")]
        done = subprocess.run([*command, *cache], capture_output=True, text=True, check=False, input=text, timeout=180)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    def pod_directories(self) -> list[str]:
        """By the pods' uids."""
        return sorted(place.name for place in (self.root / "pods").glob("*"))

    def volumes(self) -> list[str]:
        return sorted(place.name for place in (self.root / "volumes").glob("*"))


class Operated:
    """One test's view of the cluster: a client, and words for what these tests speak of."""

    def __init__(self, cluster: ManagementCluster, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.made: set[tuple[str, str]] = set()

    # -- what a test does --------------------------------------------------------------------------------------------

    async def namespace(self, name: str) -> None:
        await self._there({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def _there(self, obj: Obj) -> None:
        """Made, unless it is there already."""
        try:
            await self.client.create(obj)
        except ApiError as error:
            if not error.exists:
                raise

    async def create(self, name: str, namespace: str, *, keep: bool = False, **changes: Any) -> Obj:
        """A HostedCluster with its pull secret, in a namespace that is made for it. Removed when the test is over."""
        await self.namespace(namespace)
        if not keep:
            self.made.add((name, namespace))
        await self._there(pull_secret(namespace))
        return await self.client.create(hosted_cluster(name, namespace, **changes))

    async def clean_up(self) -> None:
        """Control planes of finished tests would only take memory from the next ones."""
        for name, namespace in self.made:
            with contextlib.suppress(ApiError):  # the test has failed on it already
                await self.client.delete(HYPERSHIFT, "HostedCluster", name, namespace, missing_ok=True)

    async def create_pool(self, name: str, namespace: str, cluster: str, replicas: int, **changes: Any) -> Obj:
        return await self.client.create(node_pool(name, namespace, cluster, replicas=replicas, **changes))

    async def delete(self, name: str, namespace: str) -> None:
        await self.client.delete(HYPERSHIFT, "HostedCluster", name, namespace)

    async def patch(self, kind: str, name: str, namespace: str, patch: Obj) -> Obj:
        return await self.client.patch(HYPERSHIFT, kind, name, namespace, patch)

    # -- what a test waits for ---------------------------------------------------------------------------------------

    async def hosted(self, name: str, namespace: str) -> Obj | None:
        return await self.client.get_or_none(HYPERSHIFT, "HostedCluster", name, namespace)

    async def told(self, kind: str, name: str, namespace: str, condition: str, status: str, reason: str = "") -> Obj:
        """The object, once a condition of it has this status (and reason)."""

        async def look() -> Obj | None:
            obj = await self.client.get_or_none(HYPERSHIFT, kind, name, namespace)
            found = condition_of(obj or {}, condition) or {}
            return (
                obj
                if found.get("status") == status and found.get("reason") in (reason, reason or found.get("reason"))
                else None
            )

        try:
            return await eventually(look)
        except AssertionError:
            raise AssertionError(
                f"{condition} is not {status} {reason}: {await self._state(kind, name, namespace)}"
            ) from None

    async def available(self, name: str, namespace: str) -> Obj:
        return await self.told("HostedCluster", name, namespace, "Available", "True")

    async def pool_ready(self, name: str, namespace: str, replicas: int) -> Obj:
        async def look() -> Obj | None:
            obj = await self.client.get_or_none(HYPERSHIFT, "NodePool", name, namespace)
            if obj is None or not is_true(obj, "Ready") or status_of(obj).get("replicas") != replicas:
                return None
            return obj

        return await eventually(look)

    async def gone(self, name: str, namespace: str) -> None:
        async def look() -> bool:
            return await self.hosted(name, namespace) is None

        try:
            await eventually(look)
        except AssertionError:
            raise AssertionError(f"still there: {await self._state('HostedCluster', name, namespace)}") from None

    async def _state(self, kind: str, name: str, namespace: str) -> str:
        """For whoever reads a failed test: the object, or why there is no API to ask."""
        try:
            return json.dumps(await self.client.get_or_none(HYPERSHIFT, kind, name, namespace), indent=1)
        except ApiError as error:
            return f"{error}\n{self.cluster.log_of('kube-api')[-3000:]}"

    async def settled(self, name: str, namespace: str) -> None:
        """All that there is to say of it has been said, and nobody has written to it for a while."""
        await self.told("HostedCluster", name, namespace, "Progressing", "False", "AsExpected")

        async def complete() -> bool:
            parts = await self.client.list(HYPERSHIFT, "ControlPlaneComponent", f"{namespace}-{name}")
            return bool(parts) and all(is_true(part, "RolloutComplete") for part in parts)

        await eventually(complete)
        before = ""
        while (now := version_of(await self.client.get(HYPERSHIFT, "HostedCluster", name, namespace))) != before:
            before = now
            await asyncio.sleep(3)

    # -- what a test looks at ----------------------------------------------------------------------------------------

    async def secret(self, name: str, namespace: str) -> dict[str, str]:
        live = await self.client.get("v1", "Secret", name, namespace)
        return {key: base64.b64decode(value).decode() for key, value in (live.get("data") or {}).items()}

    async def guest_kubeconfig(self, name: str, namespace: str) -> Path:
        text = (await self.secret(f"{name}-admin-kubeconfig", namespace))["kubeconfig"]
        file = self.cluster.region.root / f"{namespace}-{name}.kubeconfig"
        file.write_text(text)
        return file

    @contextlib.asynccontextmanager
    async def guest(self, name: str, namespace: str) -> Any:
        async with Client.from_kubeconfig(await self.guest_kubeconfig(name, namespace)) as client:
            yield client

    async def guest_kubectl(self, name: str, namespace: str, *words: str) -> str:
        kubeconfig = await self.guest_kubeconfig(name, namespace)
        return await asyncio.to_thread(self.cluster.kubectl, *words, kubeconfig=kubeconfig)

    async def nodes(self, name: str, namespace: str) -> list[str]:
        async with self.guest(name, namespace) as client:
            return sorted(name_of(node) for node in await client.list("v1", "Node"))

    async def api_pod(self, name: str, namespace: str) -> Obj:
        return await self.client.get("v1", "Pod", "kube-apiserver-0", f"{namespace}-{name}")

    async def api_process(self, name: str, namespace: str) -> ProcessRef:
        """Not at once: between two lives there is none."""
        pod = await self.api_pod(name, namespace)

        async def look() -> ProcessRef | None:
            return read_state(self._state_of(pod, "kube-apiserver"))

        return await eventually(look)

    def process_of(self, pod: Obj, container: str) -> ProcessRef:
        process = read_state(self._state_of(pod, container))
        assert process is not None
        return process

    def _state_of(self, pod: Obj, container: str) -> Path:
        return self.cluster.root / "pods" / uid_of(pod) / "containers" / container / "state.json"

    async def operator_pod(self) -> Obj:
        pods = await self.client.list("v1", "Pod", OPERATOR[0], labels={"app.kubernetes.io/name": OPERATOR[1]})
        return pods[0]

    async def operator_runs(self) -> None:
        """Its process is there, whatever it has got to: a restart takes a moment longer with each."""

        async def look() -> bool:
            process = read_state(self._state_of(await self.operator_pod(), "operator"))
            return process is not None and process.alive()

        await eventually(look)

    async def kill_operator(self) -> None:
        """kill -9; its node starts it again."""
        process = self.process_of(await self.operator_pod(), "operator")
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()

    async def log_lines(self) -> list[dict[str, Any]]:
        """What the operator has said, of all its lives."""
        directory = self.cluster.root / "pods" / uid_of(await self.operator_pod()) / "containers" / "operator"
        texts = [file.read_text() for file in sorted(directory.glob("*.log*"))]
        whole = [line for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in whole if line.startswith("{")]


def _listens(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False


def pull_secret(namespace: str) -> Obj:
    content = base64.b64encode(b'{"auths":{"quay.io":{"auth":"dTpw"}}}').decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pull-secret", "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": content},
    }


def hosted_cluster(name: str, namespace: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    strategy = {"type": "NodePort", "nodePort": {"address": "127.0.0.1"}}
    services = ("APIServer", "OAuthServer", "Konnectivity", "Ignition")
    return {
        "apiVersion": HYPERSHIFT,
        "kind": "HostedCluster",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "release": {"image": RELEASE},
            "pullSecret": {"name": "pull-secret"},
            "platform": {"type": "None"},
            "services": [{"service": service, "servicePublishingStrategy": strategy} for service in services],
        }
        | spec,
    }


def node_pool(name: str, namespace: str, cluster: str, **spec: Any) -> Obj:
    return {
        "apiVersion": HYPERSHIFT,
        "kind": "NodePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterName": cluster,
            "release": {"image": RELEASE},
            "platform": {"type": "None"},
            "management": {"upgradeType": "Replace"},
        }
        | spec,
    }


def from_yaml(text: str) -> Obj:
    loaded = yaml.safe_load(text)
    assert isinstance(loaded, dict)
    return loaded


async def eventually(look: Callable[[], Awaitable[T | None]], seconds: float = 120.0) -> T:
    """The first true answer. An API that does not answer counts as "not yet"."""
    deadline = time.monotonic() + seconds
    while True:
        found: T | None = None
        with contextlib.suppress(OSError, ApiError):
            found = await look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        await asyncio.sleep(0.02)


def remove(directory: Path) -> None:
    while directory.exists():  # the warm parent may still be noting how the last processes ended
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.01)
