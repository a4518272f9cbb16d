"""A cluster for node tests: the real API over TLS with its controllers, a real warm parent, and a node over both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from regional.core.paths import RegionPaths
from regional.core.process import ProcessRef
from regional.core.spawn import SpawnRequest, read_state, spawn_sync
from regional.kube.apiserver.front import listening
from regional.kube.apiserver.server import ApiServer
from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.kube.controllers import ControllerSettings, run_all
from regional.kube.node.context import NodeSettings
from regional.kube.node.main import serve
from regional.kube.node.sweeping import kill_inside
from regional.kube.objects import Obj, is_true, status_of, uid_of
from regional.local.addresses import Addresses
from regional.local.provisioner.cluster_directory import ClusterDirectory
from regional.local.tools import ensure_kubectl_and_helm

T = TypeVar("T")
IMAGE = "registry.example.com/regional/regional:1.2.3"
_HERE = Path(__file__).parent


class Warm:
    def __init__(self, directory: Path) -> None:
        self.socket = directory / "warm.sock"
        self._log = directory / "warm.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        modules = "regional.core.loop,regional.core.mounts,regional.kube.node.main"
        command = [
            sys.executable,
            "-c",
            "import sys; from regional.core.spawn import main; sys.exit(main(sys.argv[1:]))",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--socket", str(self.socket), "--entry", "entry:main", "--modules", modules],
                env={"PYTHONPATH": str(_HERE), "PATH": os.defpath},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                spawn_sync(self.socket, SpawnRequest(["/bin/true"], {}))
                return
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, "the warm parent did not come up"
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


class NodeCluster:
    def __init__(self, directory: Path, warm: Warm) -> None:
        self.warm = warm
        self.region = RegionPaths("node-test", directory)
        self.region.root.mkdir(parents=True)
        self.addresses = Addresses(self.region)
        self.block = self.addresses.block("rc")
        self.files = ClusterDirectory(self.region.cluster("rc"), "rc", self.block)
        self.files.ensure()
        self.root = self.region.node("rc")
        self.settings = NodeSettings(
            cluster="rc",
            node_name=self.files.node_name,
            kubeconfig=str(self.files.node_kubeconfig),
            pki=str(self.files.certificates),
            root=str(self.root),
            address=self.block.node,
            pod_cidr=self.block.pod_cidr,
            spawner=str(warm.socket),
            tools_path=os.defpath,
            restart_backoff=2.0,  # exit times have whole seconds: less than one could be over before it is seen
            restart_backoff_cap=4.0,
        )
        self.client: Client
        self._stop = asyncio.Event()
        self._node: asyncio.Task[int] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.asynccontextmanager
    async def running(self, *, node: bool = True) -> AsyncIterator[NodeCluster]:
        server = ApiServer(
            self.files.data, self.files.certificates, service_cidr=self.block.service_cidr, address=self.block.api
        )
        await server.start()
        self.client = Client(LocalTransport(server.handle))
        root_ca = (self.files.certificates / "ca.crt").read_text()
        controllers = asyncio.create_task(run_all(self.client, ControllerSettings(root_ca=root_ca)))
        try:
            async with listening(server, self.files.certificates):
                if node:
                    self.start_node()
                await eventually(lambda: self.client.get_or_none("v1", "ServiceAccount", "default", "default"))
                try:
                    yield self
                finally:
                    await self.stop_node()
                    self.kill_node_process()
        finally:
            controllers.cancel()
            await asyncio.gather(controllers, return_exceptions=True)
            await server.stop()
            kill_inside([str(self.root)])
            self.addresses.release_all()

    # -- the node, in this process or in one of its own ------------------------------------------------------------

    def start_node(self) -> None:
        self._stop = asyncio.Event()
        self._node = asyncio.create_task(serve(self.settings, self._stop))

    async def stop_node(self) -> None:
        if self._node is not None:
            self._stop.set()
            task, self._node = self._node, None
            await task

    def start_node_process(self) -> None:
        flags: list[str] = []
        for field in self.settings.__struct_fields__:
            flags += [f"--{field.replace('_', '-')}", str(getattr(self.settings, field))]
        with (self.region.root / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "entry.py"), "kubelike", *flags],
                env={"PATH": os.defpath},
                stdout=log,
                stderr=log,
            )

    def kill_node_process(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    # -- looking ---------------------------------------------------------------------------------------------------

    async def pod(self, name: str, namespace: str = "default") -> Obj | None:
        return await self.client.get_or_none("v1", "Pod", name, namespace)

    async def ready(self, name: str, namespace: str = "default") -> Obj:
        async def look() -> Obj | None:
            pod = await self.pod(name, namespace)
            return pod if pod is not None and is_true(pod, "Ready") else None

        return await eventually(look)

    async def unready(self, name: str) -> Obj:
        async def look() -> Obj | None:
            pod = await self.pod(name)
            return pod if pod is not None and not is_true(pod, "Ready") else None

        return await eventually(look)

    async def restarted(self, name: str, count: int) -> Obj:
        """Ready again, in the attempt of this number."""

        async def look() -> Obj | None:
            pod = await self.pod(name)
            if pod is None or not is_true(pod, "Ready"):
                return None
            return pod if status_of(pod)["containerStatuses"][0]["restartCount"] == count else None

        return await eventually(look)

    async def gone(self, name: str) -> None:
        async def look() -> bool:
            return await self.pod(name) is None

        await eventually(look)

    async def phase(self, name: str, phase: str) -> Obj:
        async def look() -> Obj | None:
            pod = await self.pod(name)
            return pod if pod is not None and status_of(pod).get("phase") == phase else None

        return await eventually(look)

    async def waiting(self, name: str, reason: str) -> Obj:
        """The waiting state of the first container, once it has this reason."""

        async def look() -> Obj | None:
            pod = await self.pod(name)
            for status in status_of(pod or {}).get("containerStatuses") or []:
                state: Obj = status["state"].get("waiting") or {}
                if state.get("reason") == reason:
                    return state
            return None

        return await eventually(look)

    async def event(self, reason: str, text: str = "") -> Obj:
        async def look() -> Obj | None:
            events = await self.client.list("v1", "Event", "default")
            return next((e for e in events if e["reason"] == reason and text in e["message"]), None)

        return await eventually(look)

    async def start_kubectl(self, *words: str, **env: str) -> asyncio.subprocess.Process:
        home = {"PATH": os.defpath, "HOME": str(self.region.root), "KUBECACHEDIR": str(self.region.root / "cache")}
        return await asyncio.create_subprocess_exec(
            *[str(ensure_kubectl_and_helm() / "kubectl"), "--kubeconfig", str(self.admin), *words],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=home | env,
        )

    async def kubectl(self, *words: str, text: str = "", **env: str) -> tuple[int, str, str]:
        """Exit code, output, errors of the real one."""
        process = await self.start_kubectl(*words, **env)
        output, errors = await asyncio.wait_for(process.communicate(text.encode()), 120)
        assert process.returncode is not None
        return process.returncode, output.decode(), errors.decode()

    @staticmethod
    def lives(number: int) -> bool:
        process = ProcessRef.of(number)
        return process is not None and process.alive()

    @property
    def admin(self) -> Path:
        return self.files.admin_kubeconfig

    def process_of(self, pod: Obj, container: str = "main") -> ProcessRef:
        process = read_state(self.root / "pods" / uid_of(pod) / "containers" / container / "state.json")
        assert process is not None
        return process

    async def ask(self, address: str, path: str = "/", port: int = 8000) -> str:
        return await ask(address, path, port)


def pod(name: str, *command: str, **spec: Any) -> Obj:
    """A pod of our image; keyword arguments beginning with `pod_` go to the pod's spec, others to the container."""
    container: Obj = {
        "name": "main",
        "image": IMAGE,
        "command": ["regionctl", *command],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    pod_spec: Obj = {"containers": [container], "terminationGracePeriodSeconds": 5}
    labels = spec.pop("labels", {"app": name})
    container["env"] += spec.pop("env", [])
    for key, value in spec.items():
        if key.startswith("pod_"):
            pod_spec[key.removeprefix("pod_")] = value
        else:
            container[key] = value
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def readiness(port: int = 8000, path: str = "/health", **more: Any) -> Obj:
    """Patient: on a busy machine an answer may take its time, and says the same then."""
    return {"httpGet": {"port": port, "path": path}, "periodSeconds": 1, "timeoutSeconds": 60} | more


def service(name: str, selector: dict[str, str] | None, port: int = 9000, target: int | str = 8000) -> Obj:
    spec: Obj = {"ports": [{"port": port, "targetPort": target}]}
    if selector is not None:
        spec["selector"] = selector
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def config_map(name: str, **data: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {key.replace("__", "."): value for key, value in data.items()},
    }


async def ask(address: str, path: str = "/", port: int = 8000) -> str:
    """The body of a GET; raises OSError if nobody answers."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        content = await reader.read()
    finally:
        writer.close()
    if not content:
        raise ConnectionResetError("closed without an answer")
    return content.partition(b"\r\n\r\n")[2].decode()


async def eventually(look: Callable[[], Awaitable[T | None]] | Callable[[], T | None], seconds: float = 120.0) -> T:
    """The first true answer. OSError counts as "not yet"."""
    deadline = time.monotonic() + seconds
    while True:
        found: Any = None
        with contextlib.suppress(OSError):
            answer: Any = look()
            found = await answer if asyncio.iscoroutine(answer) else answer
        if found:
            return found  # type: ignore[no-any-return]
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        await asyncio.sleep(0.02)
