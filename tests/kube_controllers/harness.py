"""A cluster for tests: the real API server in process, the real controllers, and a stand-in for a node's reports."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from regional.core.clock import Clock, SystemClock, rfc3339
from regional.core.reconcile import WorkQueue, run_workers
from regional.kube.apiserver.server import ApiServer
from regional.kube.client import Answer, ApiError, ApiUnreachable, Client, Informer, Stream
from regional.kube.client.local import LocalTransport
from regional.kube.client.transport import Query, Transport
from regional.kube.controllers import ControllerSettings, run_all
from regional.kube.messages import Request, Response
from regional.kube.objects import Key, Obj, copied, is_deleting, key_of, name_of, namespace_of, spec_of, status_of

NODE = "node-1"


def write_account_key(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "sa.key").write_bytes(private)
    (directory / "sa.pub").write_bytes(public)


class Api:
    """An API server that can be stopped and started again on the same data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        write_account_key(directory / "pki")
        (directory / "data").mkdir(parents=True, exist_ok=True)
        self.server: ApiServer | None = None

    async def start(self) -> None:
        self.server = ApiServer(
            self._directory / "data", self._directory / "pki", service_cidr="127.90.1.0/24", address="127.90.0.1"
        )
        await self.server.start()

    async def stop(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            await server.stop()

    async def handle(self, request: Request) -> Response:
        if self.server is None:
            raise ApiUnreachable("the API is down")
        return await self.server.handle(request)

    def client(self, name: str = "test") -> Client:
        return Client(LocalTransport(self.handle), user_agent=name)


class Faults:
    """A bad connection: requests lost before or after they took effect, streams cut in the middle."""

    def __init__(self, inner: Transport, seed: int, *, lost: float = 0.15, cut: float = 0.05) -> None:
        self._inner, self._random, self._lost, self._cut = inner, random.Random(seed), lost, cut
        self.on = True

    def _happens(self, probability: float) -> bool:
        return self.on and self._random.random() < probability

    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        if self._happens(self._lost):
            raise ApiUnreachable("lost on the way there")
        answer = await self._inner.request(method, path, query, headers, body)
        if self._happens(self._lost):
            raise ApiUnreachable("lost on the way back")
        return answer

    async def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> Stream:
        if self._happens(self._lost):
            raise ApiUnreachable("lost on the way there")
        return _CutStream(await self._inner.stream(method, path, query, headers), self)

    def cuts(self) -> bool:
        return self._happens(self._cut)

    async def close(self) -> None:
        await self._inner.close()


class _CutStream:
    def __init__(self, inner: Stream, faults: Faults) -> None:
        self.status, self.headers, self._inner, self._faults = inner.status, inner.headers, inner, faults

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            if self._faults.cuts():
                yield chunk[: len(chunk) // 2]
                raise ApiUnreachable("cut")
            yield chunk

    async def close(self) -> None:
        await self._inner.close()


class Kubelet:
    """Plays the node's part towards the API: pods bound to it become Ready, deleted ones end."""

    def __init__(self, client: Client, *, node: str = NODE) -> None:
        self._client, self._node = client, node
        self.pods = Informer(client, "v1", "Pod", fields=f"spec.nodeName={node}", handler=self._changed)
        self._queue: WorkQueue[Key] = WorkQueue()
        self._task: asyncio.Task[None] | None = None
        self.healthy: Callable[[Obj], bool] = lambda pod: True
        self.finish: Callable[[Obj], str] = lambda pod: ""
        self.lets_go: Callable[[Obj], bool] = lambda pod: True
        self._address = 0

    async def start(self) -> None:
        node: Obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._node, "labels": {"kubernetes.io/hostname": self._node}},
        }
        if await self._client.get_or_none("v1", "Node", self._node) is None:
            await self._client.create(node)
            await report_node(self._client, self._node, **self.ready_status())
        # With its retries: a report that finds the API down must not be lost, as no kubelet loses one.
        self._task = asyncio.create_task(run_workers("kubelet", self._queue, self._look))
        self.pods.start()
        await self.pods.synced()

    @staticmethod
    def ready_status() -> Obj:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        return {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [ready]}

    async def stop(self) -> None:
        await self.pods.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def recheck(self) -> None:
        for key in self.pods.objects:
            self._queue.add(key)

    def _changed(self, kind: str, pod: Obj) -> None:
        if kind != "DELETED":
            self._queue.add(key_of(pod))

    async def _look(self, key: Key) -> None:
        pod = self.pods.get(*key)
        if pod is not None:
            await self._serve(pod)

    async def _serve(self, pod: Obj) -> None:
        if is_deleting(pod):
            if not self.lets_go(pod):
                return
            await self._client.delete("v1", "Pod", name_of(pod), namespace_of(pod), grace=0, missing_ok=True)
            return
        if status_of(pod).get("phase") in ("Succeeded", "Failed"):
            return  # a pod that has ended does not run again
        phase = self.finish(pod) or "Running"
        ready = phase == "Running" and self.healthy(pod)
        status = status_of(pod)
        current: Obj = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), {})
        if status.get("phase") == phase and current.get("status") == ("True" if ready else "False"):
            return
        self._address += 1
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        others = [c for c in status.get("conditions") or [] if c["type"] != "Ready"]
        wanted = dict(pod)
        wanted["status"] = status | {
            "phase": phase,
            "podIP": status.get("podIP") or f"127.90.2.{self._address % 250 + 1}",
            "conditions": [*others, condition],
        }
        await self._client.update_status(wanted)


class CountedTime(SystemClock):
    """Silence is measured in what a test counts, so that a machine that stands still for a while condemns nobody."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.api = Api(directory)
        self.client = self.api.client()
        self.kubelet = Kubelet(self.api.client("kubelet"))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, kubelet: bool = True) -> None:
        await self.api.start()
        if kubelet:
            await self.kubelet.start()

    async def control(
        self, client: Client | None = None, clock: Clock | None = None, **settings: Any
    ) -> asyncio.Task[None]:
        """Start the controllers; cancel the task to stop them.

        The stand-in for a node renews no Lease: unless a test is about that, it is not called lost on a slow machine.
        """
        ready = asyncio.Event()
        chosen = ControllerSettings(**({"root_ca": "CA", "node_grace_seconds": 3600.0} | settings))
        client = client or self.api.client("kube-controller-manager")
        task = asyncio.create_task(run_all(client, chosen, clock=clock, ready=ready))
        self._tasks.append(task)
        await asyncio.wait({task, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        return task

    async def stop(self) -> None:
        await end(*self._tasks)
        await self.kubelet.stop()
        await self.api.stop()

    async def namespace(self, name: str) -> str:
        await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if self._tasks:
            await self.furnished(name)
        return name

    async def furnished(self, namespace: str) -> None:
        """No pod is admitted before the namespace has its account."""

        async def check() -> bool:
            return await self.client.get_or_none("v1", "ServiceAccount", "default", namespace) is not None

        await eventually(check, f"service account of {namespace}")

    async def pods(self, namespace: str, **labels: str) -> list[Obj]:
        found = await self.client.list("v1", "Pod", namespace, labels=labels or None)
        return [pod for pod in found if not is_deleting(pod)]


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(check: Callable[[], Awaitable[Any]], what: str = "", seconds: float = 60.0) -> Any:
    """The first truthy answer of `check`; what is not there, or was written by others meanwhile, counts as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        last: BaseException | None = None
        try:
            result = await check()
            if result:
                return result
        except (AssertionError, LookupError, ValueError, ApiError) as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {what or check}") from last
        await asyncio.sleep(0.01)


async def report_node(client: Client, name: str, **status: Any) -> None:
    """As a node does it: whoever writes it at the same time (its taints) does not keep the report from being made."""

    async def written() -> bool:
        node = copied(await client.get("v1", "Node", name))
        node["status"] = status_of(node) | status
        await client.update_status(node)
        return True

    await eventually(written, f"report of {name}")


def deployment(name: str, namespace: str, *, replicas: int = 1, image: str = "app:1", **spec: Any) -> Obj:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            **spec,
        },
    }


def rolled_out(obj: Obj) -> bool:
    """What `kubectl rollout status` waits for."""
    spec, status = spec_of(obj), status_of(obj)
    replicas = spec["replicas"]
    return bool(
        obj["metadata"]["generation"] <= status.get("observedGeneration", 0)
        and status.get("updatedReplicas", 0) == replicas
        and status.get("replicas", 0) == replicas
        and status.get("availableReplicas", 0) == replicas
    )


def now() -> str:
    from datetime import UTC, datetime

    return rfc3339(datetime.now(UTC))
