"""Role `kube-node`: a node of one cluster.

SIGTERM ends this process and leaves its pods running, as a restarted kubelet does: the next node process adopts them.
Whoever takes the whole region down stops the pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from regional.core.clock import SystemClock
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.problems import UserError
from regional.core.settings import load
from regional.core.web import stop_event
from regional.kube.client import Client
from regional.kube.events import EventRecorder
from regional.kube.node.api_door import api_address
from regional.kube.node.claims import VolumeRemover
from regional.kube.node.context import Cluster, NodeContext, NodeSettings
from regional.kube.node.kubelet import Kubelet
from regional.kube.node.pods import Pods
from regional.kube.node.proxy import ServiceProxy
from regional.kube.node.registration import Registration
from regional.kube.node.secrets_store import AwsSecretsStore
from regional.kube.node.tokens import ApiTokens

log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    settings = load(NodeSettings, argv)
    setup_logging("kube-node", settings.log_level)
    return run(serve(settings))


async def serve(settings: NodeSettings, stop: asyncio.Event | None = None) -> int:
    """Runs until `stop` is set (by default: SIGTERM or SIGINT)."""
    stop = stop or stop_event()
    with _sole_node(Path(settings.root)):
        client = Client.from_kubeconfig(settings.kubeconfig, user_agent="kubelet")
        clock = SystemClock()
        cluster = Cluster(client)
        credentials = Path(settings.aws_credentials) if settings.aws_credentials else None
        store = AwsSecretsStore(client, settings.aws_endpoint, credentials)
        events = EventRecorder(client, clock)
        node = NodeContext(settings, client, cluster, ApiTokens(client, clock), store, events, clock)
        pods = Pods(node)
        kubelet = Kubelet(node, pods)
        try:
            async with _background(events.run(), Registration(client, settings, clock).run()):
                if await _first(cluster.start(), stop):
                    return 0
                proxy = ServiceProxy(node, api_address(settings.kubeconfig))
                remover = VolumeRemover(client, cluster.volumes, node.claims)
                parts = (proxy.run(), pods.run(), kubelet.keep_logs_small(), remover.run())
                async with _background(*parts), kubelet.listening():
                    log.info("node is up", extra={"node": settings.node_name, "address": settings.address})
                    await stop.wait()
        except OSError as error:
            raise UserError(
                f"node {settings.node_name} cannot listen on {settings.address}:{settings.port}: {error}",
                hint="is another node process using this address?",
            ) from error
        finally:
            await cluster.stop()
            await store.close()
            await client.close()
    return 0


async def _first(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Wait for `work`, or for the order to stop: True if that came first."""
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(work), asyncio.create_task(stop.wait())]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    if tasks[0] in done:
        tasks[0].result()
    return stop.is_set()


@contextlib.asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run beside the block. If one of them ends, all of the node ends: the supervisor starts it anew."""
    owner = asyncio.current_task()
    failed: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed.append(error)
            if owner is not None:
                owner.cancel()

    tasks = [asyncio.create_task(each) for each in work]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    except asyncio.CancelledError:
        if failed:
            raise RuntimeError(f"a part of the node failed: {failed[0]!r}") from failed[0]
        raise
    finally:
        for task in tasks:
            task.remove_done_callback(ended)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _sole_node(root: Path) -> Any:
    """Two node processes over the same pods would start everything twice."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another node process works on {root}", hint="stop it first") from error
        yield
