"""A ReplicaSet has exactly its pods: none twice when answers get lost, orphans taken in, strangers let go."""

from __future__ import annotations

import asyncio

import pytest

from regional.kube.client import Client, Informer
from regional.kube.client.local import LocalTransport
from regional.kube.objects import Obj, labels_of, name_of, owner_of, status_of, uid_of
from tests.kube_controllers.harness import Cluster, Faults, deployment, eventually


def replicaset(name: str, namespace: str, replicas: int) -> Obj:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def loose_pod(name: str, namespace: str, **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }


async def ready(cluster: Cluster, name: str, namespace: str, count: int) -> None:
    async def check() -> bool:
        status = status_of(await cluster.client.get("apps/v1", "ReplicaSet", name, namespace))
        return bool(status.get("readyReplicas", 0) == status.get("replicas", 0) == count)

    await eventually(check, f"{name} has {count} ready pods")


@pytest.mark.parametrize("seed", range(4))
async def test_lost_answers_make_no_second_pod(quiet: Cluster, seed: int) -> None:
    namespace = await quiet.namespace("t")
    faults = Faults(LocalTransport(quiet.api.handle), seed, lost=0.2, cut=0.1)
    made: set[str] = set()
    deleted: set[str] = set()
    pods = Informer(quiet.client, "v1", "Pod", namespace)
    pods.add_handler(lambda kind, pod: (deleted if kind == "DELETED" else made).add(uid_of(pod)))
    pods.start()
    await pods.synced()
    await quiet.control(Client(faults, user_agent="kube-controller-manager"), resync_seconds=1.0)
    for number in range(3):
        await quiet.client.create(replicaset(f"rs{number}", namespace, 4))
    for number in range(3):
        await ready(quiet, f"rs{number}", namespace, 4)
    faults.on = False
    await asyncio.sleep(0.1)
    await pods.stop()
    assert len(made) == 12
    assert not deleted


async def test_a_lost_pod_is_replaced(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(replicaset("rs", namespace, 2))
    await ready(cluster, "rs", namespace, 2)
    gone = (await cluster.pods(namespace))[0]
    await cluster.client.delete("v1", "Pod", name_of(gone), namespace)

    async def replaced() -> bool:
        names = {name_of(pod) for pod in await cluster.pods(namespace)}
        return len(names) == 2 and name_of(gone) not in names

    await eventually(replaced)


async def test_orphans_with_the_right_labels_are_adopted(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(loose_pod("stray", namespace, app="rs"))
    await cluster.client.create(replicaset("rs", namespace, 2))
    await ready(cluster, "rs", namespace, 2)
    pods = {name_of(pod): pod for pod in await cluster.pods(namespace)}
    assert len(pods) == 2
    assert (owner_of(pods["stray"]) or {})["name"] == "rs"


async def test_a_relabelled_pod_is_let_go_and_replaced(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(replicaset("rs", namespace, 1))
    await ready(cluster, "rs", namespace, 1)
    pod = (await cluster.pods(namespace))[0]
    await cluster.client.patch("v1", "Pod", name_of(pod), namespace, {"metadata": {"labels": {"app": "debug"}}})

    async def separated() -> bool:
        pods = await cluster.pods(namespace)
        return len(pods) == 2 and any(owner_of(p) is None and labels_of(p)["app"] == "debug" for p in pods)

    await eventually(separated)


async def test_pods_that_do_not_work_are_given_up_first(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(replicaset("rs", namespace, 4))
    await ready(cluster, "rs", namespace, 4)
    good = {name_of(pod) for pod in (await cluster.pods(namespace))[1:3]}
    cluster.kubelet.healthy = lambda pod: name_of(pod) in good
    cluster.kubelet.recheck()

    async def half() -> bool:
        status = status_of(await cluster.client.get("apps/v1", "ReplicaSet", "rs", namespace))
        return bool(status.get("readyReplicas", 0) == 2)

    await eventually(half)
    await cluster.client.patch("apps/v1", "ReplicaSet", "rs", namespace, {"spec": {"replicas": 2}})

    async def chosen() -> bool:
        return {name_of(pod) for pod in await cluster.pods(namespace)} == good

    await eventually(chosen)


async def test_a_refused_pod_is_explained_on_the_owner(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    broken = replicaset("rs", namespace, 1)
    broken["spec"]["template"]["spec"]["serviceAccountName"] = "absent"
    await cluster.client.create(broken)

    async def told() -> bool:
        obj = await cluster.client.get("apps/v1", "ReplicaSet", "rs", namespace)
        failures = [c for c in status_of(obj).get("conditions") or [] if c["type"] == "ReplicaFailure"]
        if not failures:
            # The server may admit a pod whose account is absent; then there is nothing to explain.
            return bool(await cluster.pods(namespace))
        return failures[0]["status"] == "True" and "absent" in failures[0]["message"]

    await eventually(told)


async def test_a_deployment_shows_its_pod_at_once(cluster: Cluster) -> None:
    """Created to pod object through two controllers; the informers' first lists are long done."""
    namespace = await cluster.namespace("t")
    seen = asyncio.Event()
    pods = Informer(cluster.client, "v1", "Pod", namespace, handler=lambda *_: seen.set())
    pods.start()
    await pods.synced()
    await cluster.client.create(deployment("web", namespace))
    await asyncio.wait_for(seen.wait(), 60)
    await pods.stop()
