"""All pods of this node: a worker for each object bound here, and an end for processes without one."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from regional.core.spawn import read_state
from regional.kube.node.context import NodeContext
from regional.kube.node.hosts import published
from regional.kube.node.layout import PodDirectory
from regional.kube.node.pod import PodWorker
from regional.kube.objects import Obj, key_of, namespace_of, spec_of, uid_of

log = logging.getLogger(__name__)
_ORPHAN_GRACE = 2.0


class Pods:
    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._finished: set[str] = set()  # objects that linger (finalizers) after their processes are gone
        self._hosts_due: asyncio.TimerHandle | None = None
        self._leaving = False

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """After the cluster's caches are filled: adopt, clean up, then follow. Until cancelled."""
        cluster = self._node.cluster
        bound = {uid_of(pod) for pod in cluster.pods if self._is_mine(pod)}
        orphans = [directory for directory in self._node.directory.pods() if directory.uid not in bound]
        cluster.pods.add_listener(self._pod_changed)
        cluster.services.add_handler(lambda _kind, _obj: self._names_changed())
        for informer in cluster.sources:
            informer.add_handler(self._source_changed)
        for pod in cluster.pods:
            self._pod_changed("ADDED", pod, None)
        self._names_changed()  # what was renamed while no node process was there to see it
        try:
            await asyncio.gather(*(self._remove_orphan(directory) for directory in orphans))
            await asyncio.Event().wait()
        finally:
            # The caches are filled to the very end, and what they tell from now on is our successor's business.
            self._leaving = True
            if self._hosts_due is not None:
                self._hosts_due.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _remove_orphan(self, directory: PodDirectory) -> None:
        """Processes whose object was deleted while no node process was there to see it."""
        record = directory.load()
        name = f"{record.namespace}/{record.name}" if record else directory.uid
        found = [read_state(state) for c in directory.containers() for state in c.path.glob("*.state")]
        living = [process for process in found if process is not None and process.alive()]
        log.info("orphan removed", extra={"pod": name, "processes": len(living)})
        await asyncio.gather(*(process.stop(_ORPHAN_GRACE) for process in living))
        await self._node.sweeper.sweep(str(directory.path))
        directory.remove()
        self._node.addresses.release(directory.uid)

    # -- following ---------------------------------------------------------------------------------------------------

    def _is_mine(self, pod: Obj) -> bool:
        return bool(spec_of(pod).get("nodeName") == self._node.settings.node_name)

    def _pod_changed(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if self._leaving:
            return
        if self._has_headless() and (old is None or kind == "DELETED" or published(old) != published(pod)):
            self._names_changed()
        if not self._is_mine(pod):
            return
        uid = uid_of(pod)
        worker = self._workers.get(uid)
        if kind == "DELETED":
            self._finished.discard(uid)
            if worker is not None:
                worker.removed()
        elif worker is not None:
            worker.update(pod)
        elif uid not in self._finished:
            worker = self._workers[uid] = PodWorker(self._node, pod)
            self._tasks[uid] = asyncio.create_task(self._work(worker), name=f"pod {worker.name}")

    async def _work(self, worker: PodWorker) -> None:
        try:
            await worker.run()
            lingering = self._node.cluster.pods.get(*key_of(worker.pod))
            if lingering is not None and uid_of(lingering) == worker.uid:
                self._finished.add(worker.uid)
        finally:
            self._workers.pop(worker.uid, None)
            self._tasks.pop(worker.uid, None)

    def _source_changed(self, _kind: str, obj: Obj) -> None:
        key = (str(obj.get("kind")), obj["metadata"]["name"])
        for worker in self._workers.values():
            if key in worker.references and namespace_of(worker.pod) == namespace_of(obj):
                worker.wake()

    # -- names -------------------------------------------------------------------------------------------------------

    def _has_headless(self) -> bool:
        return any(spec_of(service).get("clusterIP") == "None" for service in self._node.cluster.services)

    def _names_changed(self) -> None:
        """A burst of changes is one rewrite."""
        if self._hosts_due is None and not self._leaving:
            self._hosts_due = asyncio.get_running_loop().call_later(0.01, self._rewrite_hosts)

    def _rewrite_hosts(self) -> None:
        self._hosts_due = None
        with contextlib.suppress(OSError):
            self._node.write_own_hosts()
        for worker in self._workers.values():
            if worker.address:
                with contextlib.suppress(OSError):
                    worker.write_hosts(self._node.hosts_for(worker.pod, worker.address))

    def worker_of(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._node.cluster.pods.get(namespace, name)
        return self._workers.get(uid_of(pod)) if pod is not None else None

    def workers(self) -> list[PodWorker]:
        return list(self._workers.values())
