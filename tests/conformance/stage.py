"""A namespace in which a test plays the nodes: pods become what the test says, and nothing else moves them.

The controllers are the server's own. So the same play on kube-controller-manager and on ours must end the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from regional.core.clock import rfc3339
from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import Obj, condition_of, copied, is_deleting, key_of, name_of, spec_of, status_of

PATIENCE = 90.0
NODE = "stage"

Part = Callable[[Obj], str]
"""What a pod shall be: ready, running (not ready), pending, succeeded, or failed:<exit code>."""


class Stage:
    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.part: Part = lambda pod: "ready"
        self.lets_go: Callable[[Obj], bool] = lambda pod: True
        self._address = 0
        self._pods = Informer(
            client, "v1", "Pod", namespace, handler=lambda _, pod: self._queue.put_nowait(key_of(pod))
        )
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._play())
        self._pods.start()
        await self._pods.synced()

    async def close(self) -> None:
        await self._pods.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def cast(self, part: Part) -> None:
        """From now on pods are what this says, those of before too."""
        self.part = part
        self.again()

    def again(self) -> None:
        for key in self._pods.objects:
            self._queue.put_nowait(key)

    # -- the nodes' part -----------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        while True:
            key = await self._queue.get()
            pod = self._pods.get(*key)
            if pod is None:
                continue
            try:
                await self._act(pod)
            except ApiError:
                await asyncio.sleep(0.02)
                self._queue.put_nowait(key)

    async def _act(self, pod: Obj) -> None:
        if is_deleting(pod):
            if self.lets_go(pod):
                await self.client.delete("v1", "Pod", name_of(pod), self.namespace, grace=0, missing_ok=True)
            return
        if status_of(pod).get("phase") in ("Succeeded", "Failed"):
            return
        wanted, _, code = self.part(pod).partition(":")
        if wanted == "pending":
            return
        if not spec_of(pod).get("nodeName"):
            await self._bind(pod)
            return
        status = self._status(pod, wanted, int(code or 0))
        seen = ("phase", "podIP", "conditions", "containerStatuses")
        if any(status.get(field) != status_of(pod).get(field) for field in seen):
            changed = copied(pod)
            changed["status"] = status
            self._pods.observe(await self.client.update_status(changed))

    async def _bind(self, pod: Obj) -> None:
        """As a scheduler would; where there is one it may have been quicker, and the next look will show it."""
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)}, "target": target}
        await self.client.create_in("v1", "Pod", name_of(pod), self.namespace, "binding", binding)

    def _status(self, pod: Obj, wanted: str, code: int) -> Obj:
        ended = wanted in ("succeeded", "failed")
        phase = {"succeeded": "Succeeded", "failed": "Failed"}.get(wanted, "Running")
        status = copied(status_of(pod)) | {"phase": phase}
        if not status.get("podIP"):
            self._address += 1
            status["podIP"] = f"10.9.{self._address // 250}.{1 + self._address % 250}"
            status["podIPs"] = [{"ip": status["podIP"]}]
        ready = "True" if wanted == "ready" else "False"
        present = condition_of(pod, "Ready") or {}
        now = rfc3339(datetime.now(UTC))
        if present.get("status") != ready:
            others = [c for c in status.get("conditions") or [] if c["type"] != "Ready"]
            status["conditions"] = [*others, {"type": "Ready", "status": ready, "lastTransitionTime": now}]
        if ended:
            terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now}
            status["containerStatuses"] = [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": terminated | {"startedAt": now}},
                }
                for container in spec_of(pod)["containers"]
            ]
        return status

    # -- the test's part -----------------------------------------------------------------------------------------------

    async def create(self, obj: Obj) -> Obj:
        obj = copied(obj)
        obj["metadata"]["namespace"] = self.namespace
        return await self.client.create(obj)

    async def get(self, api_version: str, kind: str, name: str) -> Obj:
        return await self.client.get(api_version, kind, name, self.namespace)

    async def patch(self, api_version: str, kind: str, name: str, patch: Obj, **options: Any) -> Obj:
        return await self.client.patch(api_version, kind, name, self.namespace, patch, **options)

    async def pods(self, **labels: str) -> list[Obj]:
        return sorted(await self.client.list("v1", "Pod", self.namespace, labels=labels or None), key=name_of)

    async def until(self, check: Callable[[], Awaitable[Any]], what: str = "") -> Any:
        return await eventually(check, what)


async def eventually(check: Callable[[], Awaitable[Any]], what: str = "", patience: float = PATIENCE) -> Any:
    """The first truthy answer. Every wait of these tests is for a condition, with a limit no machine should need."""
    deadline = time.monotonic() + patience
    while True:
        answer = await check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never came true: {what or check}"
        await asyncio.sleep(0.05)


class NodeKeeper:
    """Nodes that report Ready and renew their Leases for as long as the tests run."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.names: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def add(self, name: str, *, labels: dict[str, str] | None = None, **status: Any) -> None:
        made: Obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | (labels or {})},
        }

        async def reported() -> bool:
            """Whatever is in the way for a moment: others who write, or no namespace for Leases yet."""
            try:
                node = await self._client.get_or_none("v1", "Node", name) or await self._client.create(made)
                node["status"] = status_of(node) | ready_node_status() | status
                await self._client.update_status(node)
                await self._renew(name)
            except ApiError:
                return False
            return True

        await eventually(reported)
        self.names.add(name)
        if self._task is None:
            self._task = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(3)
            for name in sorted(self.names):
                with contextlib.suppress(ApiError):
                    await self._renew(name)

    async def _renew(self, name: str) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment}
        metadata = {"name": name, "namespace": "kube-node-lease"}
        lease: Obj = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            await self._client.patch(lease["apiVersion"], "Lease", name, "kube-node-lease", {"spec": spec})
        except ApiError as error:
            if not error.not_found:
                raise
            await self._client.create(lease)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def ready_node_status() -> Obj:
    now = rfc3339(datetime.now(UTC))
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "played",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"capacity": room, "allocatable": room, "conditions": [ready]}
