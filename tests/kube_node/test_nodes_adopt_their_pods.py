"""A node process may die at any moment: its pods go on, and its successor knows them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from regional.core.spawn import read_state
from regional.kube.node.context import Cluster
from regional.kube.node.layout import ContainerDirectory
from regional.kube.objects import annotations_of, status_of
from tests.kube_node.harness import NodeCluster, Warm, ask, eventually, pod, readiness


async def test_after_kill_9_running_pods_are_adopted_and_changes_caught_up_with(
    region_directory: Path, shared_warm: Warm
) -> None:
    async with NodeCluster(region_directory, shared_warm).running(node=False) as cluster:
        cluster.start_node_process()
        for name in ("stays", "leaves", "vanishes", "dies"):
            await cluster.client.create(pod(name, "http", "8000", readinessProbe=readiness()))
        pods = {name: await cluster.ready(name) for name in ("stays", "leaves", "vanishes", "dies")}
        processes = {name: cluster.process_of(found) for name, found in pods.items()}

        cluster.kill_node_process()
        assert all(process.alive() for process in processes.values())
        await cluster.client.delete("v1", "Pod", "leaves", "default")
        await cluster.client.delete("v1", "Pod", "vanishes", "default", grace=0)
        processes["dies"].signal(signal.SIGKILL)
        await cluster.client.create(pod("new", "http", "8000", readinessProbe=readiness()))

        cluster.start_node_process()
        new = await cluster.ready("new")
        await cluster.restarted("dies", 1)
        await cluster.gone("leaves")
        await eventually(lambda: not processes["vanishes"].alive() and not processes["leaves"].alive())
        stays = await cluster.ready("stays")
        assert cluster.process_of(stays) == processes["stays"]
        assert status_of(stays)["containerStatuses"][0]["restartCount"] == 0
        assert status_of(stays)["podIP"] == status_of(pods["stays"])["podIP"]
        assert status_of(new)["podIP"] != status_of(stays)["podIP"]
        assert await ask(status_of(stays)["podIP"]) == "stays"


async def test_an_adopted_pod_is_never_unready_in_between(region_directory: Path, shared_warm: Warm) -> None:
    async with NodeCluster(region_directory, shared_warm).running() as cluster:
        await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness(initialDelaySeconds=1)))
        before = await cluster.ready("web")
        await cluster.stop_node()
        cluster.start_node()
        await cluster.client.create(pod("probe", "http", "8000"))
        await cluster.ready("probe")
        after = await cluster.ready("web")
        assert cluster.process_of(after) == cluster.process_of(before)

        def transition(found: dict[str, object]) -> object:
            return next(c["lastTransitionTime"] for c in status_of(found)["conditions"] if c["type"] == "Ready")

        assert transition(after) == transition(before)


async def test_a_request_lost_with_the_node_is_asked_again_and_gives_one_process(
    region_directory: Path, shared_warm: Warm
) -> None:
    """The record is on disk before the request: a successor finds an attempt without a state file, and repeats it."""
    async with NodeCluster(region_directory, shared_warm).running() as cluster:
        await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
        web = await cluster.ready("web")
        container = cluster.root / "pods" / web["metadata"]["uid"] / "containers/main"
        await cluster.stop_node()
        process = cluster.process_of(web)
        process.signal(signal.SIGKILL)
        await eventually(lambda: (container / "0.exit").exists())  # or it might be written after we took it away
        (container / "0.state").unlink()
        (container / "0.exit").unlink()
        cluster.start_node()
        again = await eventually(lambda: read_state(container / "0.state"))
        assert again != process
        await eventually(lambda: ask(status_of(web)["podIP"]))
        assert cluster.process_of(await cluster.ready("web")) == again


async def test_a_node_that_stops_takes_up_no_pod_again(
    region_directory: Path, shared_warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it still hears then is its successor's business: two that care for one pod would start it twice."""
    async with NodeCluster(region_directory, shared_warm).running() as cluster:
        await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
        await cluster.ready("web")
        stop = Cluster.stop

        async def stop_late(known: Cluster) -> None:
            """The last thing that a node does: it does not follow its pods any more, and does not yet ignore them."""
            patch = {"metadata": {"annotations": {"late": "news"}}}
            await cluster.client.patch("v1", "Pod", "web", "default", patch)
            await eventually(lambda: annotations_of(known.pods.get("default", "web") or {}).get("late"))
            await stop(known)

        monkeypatch.setattr(Cluster, "stop", stop_late)
        await cluster.stop_node()
        assert not [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("pod ")]


async def test_what_ends_while_no_node_is_there_is_no_crash(region_directory: Path, shared_warm: Warm) -> None:
    """`down` and `up` end and start every pod; a back-off that grew with each would soon keep a region down."""
    async with NodeCluster(region_directory, shared_warm).running() as cluster:
        await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
        for count in range(5):
            web = await cluster.ready("web")
            assert status_of(web)["containerStatuses"][0]["restartCount"] == count
            container = cluster.root / "pods" / web["metadata"]["uid"] / "containers/main"
            record = ContainerDirectory(container).load()
            assert record is not None and record.restarts_in_a_row == 0
            await cluster.stop_node()
            process = cluster.process_of(web)
            process.signal(signal.SIGTERM)
            await process.wait()
            cluster.start_node()
            await cluster.restarted("web", count + 1)
