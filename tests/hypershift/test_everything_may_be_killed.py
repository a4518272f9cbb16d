"""kill -9 of the operator, of a guest's API, of the node, of the Management Cluster's API: all of it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from regional.core.process import ProcessRef
from regional.kube.objects import condition_of, is_true, name_of, spec_of, status_of, uid_of, version_of
from tests.hypershift.harness import HYPERSHIFT, Operated, eventually, hosted_cluster, pull_secret
from tests.maestro.harness import running


async def test_a_killed_guest_api_comes_back_with_its_data_under_its_address(mc: Operated) -> None:
    await mc.create("durable", "durable")
    before = await mc.available("durable", "durable")
    await mc.create_pool("workers", "durable", "durable", 2)
    await mc.pool_ready("workers", "durable", 2)
    await mc.guest_kubectl("durable", "durable", "create", "configmap", "mine", "--from-literal=a=b")
    nodes = await mc.nodes("durable", "durable")
    kubeconfig = await mc.secret("durable-admin-kubeconfig", "durable")
    killed = await mc.api_process("durable", "durable")
    os.kill(killed.pid, signal.SIGKILL)

    async def restarted() -> ProcessRef | None:
        pod = await mc.api_pod("durable", "durable")
        count = sum(c["restartCount"] for c in status_of(pod)["containerStatuses"])
        return await mc.api_process("durable", "durable") if count and is_true(pod, "Ready") else None

    assert await eventually(restarted) != killed
    after = await mc.available("durable", "durable")
    assert status_of(after)["controlPlaneEndpoint"] == status_of(before)["controlPlaneEndpoint"]
    assert await mc.secret("durable-admin-kubeconfig", "durable") == kubeconfig
    assert "b" in await mc.guest_kubectl("durable", "durable", "get", "configmap", "mine", "-o", "jsonpath={.data.a}")
    assert await mc.nodes("durable", "durable") == nodes


async def test_an_api_that_is_down_is_told_and_the_recovery_too(mc: Operated) -> None:
    await mc.create("down", "down")
    await mc.available("down", "down")

    async def keep_down() -> None:
        """Each life of it, until somebody has looked."""
        while True:
            process = await mc.api_process("down", "down")
            if process.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await asyncio.sleep(0.02)

    async with running(keep_down()):
        hosted = await mc.told(
            "HostedCluster", "down", "down", "KubeAPIServerAvailable", "False", "WaitingForAvailable"
        )
    assert (condition_of(hosted, "EtcdAvailable") or {})["reason"] == "EtcdWaitingForQuorum"
    assert not is_true(hosted, "Available")
    assert is_true(hosted, "Degraded")
    hosted = await mc.available("down", "down")
    assert is_true(hosted, "KubeAPIServerAvailable")


async def test_an_operator_killed_while_it_makes_clusters_makes_each_once(mc: Operated) -> None:
    await mc.namespace("half")
    await mc.client.create(pull_secret("half"))
    names = [f"c{number}" for number in range(4)]
    await asyncio.gather(*(mc.client.create(hosted_cluster(name, "half")) for name in names))
    await asyncio.gather(*(mc.create_pool(f"{name}-pool", "half", name, 2) for name in names))
    authorities: dict[str, str] = {}

    async def remember() -> None:
        for secret in await mc.client.list("v1", "Secret"):
            if name_of(secret) == "root-ca":
                authorities.setdefault(secret["metadata"]["namespace"], secret["data"]["ca.crt"])

    for pause in (0.05, 0.15, 0.3, 0.6):
        await asyncio.sleep(pause)
        await remember()
        await mc.operator_runs()
        await mc.kill_operator()
    await asyncio.gather(*(mc.available(name, "half") for name in names))
    await asyncio.gather(*(mc.pool_ready(f"{name}-pool", "half", 2) for name in names))
    for name in names:
        assert len(await mc.nodes(name, "half")) == 2
        root = await mc.client.get("v1", "Secret", "root-ca", f"half-{name}")
        assert authorities.get(f"half-{name}", root["data"]["ca.crt"]) == root["data"]["ca.crt"]
        pods = await mc.client.list("v1", "Pod", f"half-{name}")
        assert [name_of(pod) for pod in pods] == ["kube-apiserver-0"]
    spans = [line for line in await mc.log_lines() if line.get("span") and line.get("hostedcluster", "")[:5] == "half/"]
    assert {line["hostedcluster"] for line in spans} == {f"half/{name}" for name in names}


async def test_an_operator_killed_while_it_deletes_finishes_the_deletion(mc: Operated) -> None:
    await mc.namespace("bury")
    await mc.client.create(pull_secret("bury"))
    names = [f"c{number}" for number in range(3)]
    await asyncio.gather(*(mc.client.create(hosted_cluster(name, "bury")) for name in names))
    await asyncio.gather(*(mc.available(name, "bury") for name in names))
    await asyncio.gather(*(mc.delete(name, "bury") for name in names))
    for pause in (0.02, 0.1):
        await asyncio.sleep(pause)
        await mc.operator_runs()
        await mc.kill_operator()
    await asyncio.gather(*(mc.gone(name, "bury") for name in names))
    for name in names:
        assert await mc.client.get_or_none("v1", "Namespace", f"bury-{name}") is None


async def test_a_killed_node_adopts_its_control_planes(mc: Operated) -> None:
    await mc.create("kept", "kept")
    await mc.available("kept", "kept")
    process, pod = await mc.api_process("kept", "kept"), await mc.api_pod("kept", "kept")
    await mc.cluster.kill("kube-node")
    assert process.alive()
    mc.cluster.start_node()
    # The Service's door is the node's: it opens again with it.
    await eventually(lambda: _answers(mc, "kept", "kept"))
    assert await mc.api_process("kept", "kept") == process
    assert uid_of(await mc.api_pod("kept", "kept")) == uid_of(pod)
    await mc.available("kept", "kept")
    await mc.create("after", "kept")
    await mc.available("after", "kept")


async def _answers(mc: Operated, name: str, namespace: str) -> bool:
    async with mc.guest(name, namespace) as client:
        return bool(await client.list("v1", "Namespace"))


async def test_a_killed_api_of_the_management_cluster_loses_nothing(mc: Operated) -> None:
    await mc.create("before", "mc-api")
    await mc.cluster.kill("kube-api")
    mc.cluster.start_api()
    await mc.available("before", "mc-api")
    await mc.create("after", "mc-api")
    await mc.available("after", "mc-api")


async def test_a_lost_service_comes_back_where_kubeconfigs_look_for_it(mc: Operated) -> None:
    await mc.create("place", "place")
    hosted = await mc.available("place", "place")
    before = status_of(hosted)["controlPlaneEndpoint"]["host"]
    await mc.client.delete("v1", "Service", "kube-apiserver", "place-place")

    async def back() -> bool:
        service = await mc.client.get("v1", "Service", "kube-apiserver", "place-place")
        return bool(spec_of(service)["clusterIP"] == before)

    await eventually(back)
    await eventually(lambda: _answers(mc, "place", "place"))


async def test_what_is_taken_out_of_a_guest_is_put_back(mc: Operated) -> None:
    await mc.create("home", "home")
    await mc.available("home", "home")
    await mc.guest_kubectl("home", "home", "delete", "clusterversion", "version")
    await mc.kill_operator()  # a new one looks at everything anew

    async def furnished() -> bool:
        async with mc.guest("home", "home") as client:
            return await client.get_or_none("config.openshift.io/v1", "ClusterVersion", "version") is not None

    await eventually(furnished)
    assert await mc.client.get(HYPERSHIFT, "HostedControlPlane", "home", "home-home")


async def test_a_control_plane_that_somebody_deletes_is_told_and_made_again(mc: Operated) -> None:
    await mc.create("razed", "razed")
    await mc.available("razed", "razed")
    old = await mc.api_process("razed", "razed")
    namespace = await mc.client.get_or_none("v1", "Namespace", "razed-razed")
    assert namespace is not None
    before = await mc.available("razed", "razed")
    await mc.client.delete("v1", "Namespace", "razed-razed")
    # By each change since then, so that a short one is not missed.
    changes = mc.client.watch(HYPERSHIFT, "HostedCluster", "razed", resource_version=version_of(before))
    async with asyncio.timeout(120), contextlib.aclosing(changes):
        while is_true((await anext(changes))[1], "Available"):
            pass

    async def made_again() -> bool:
        found = await mc.client.get_or_none("v1", "Namespace", "razed-razed")
        return found is not None and uid_of(found) != uid_of(namespace)

    await eventually(made_again, 60)
    await mc.available("razed", "razed")
    assert not old.alive()
    assert "default" in await mc.guest_kubectl("razed", "razed", "get", "namespaces")
