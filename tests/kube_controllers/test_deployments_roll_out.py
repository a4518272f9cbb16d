"""A Deployment's pods follow its template and its size, within its bounds, and it says how far it is."""

from __future__ import annotations

import asyncio
import contextlib

from regional.kube.client import Informer
from regional.kube.controllers.history import REVISION
from regional.kube.objects import Obj, annotations_of, condition_of, is_deleting, name_of, spec_of, status_of
from tests.kube_controllers.harness import Cluster, deployment, eventually, rolled_out


async def get(cluster: Cluster, name: str, namespace: str) -> Obj:
    return await cluster.client.get("apps/v1", "Deployment", name, namespace)


async def finished(cluster: Cluster, name: str, namespace: str) -> Obj:
    async def check() -> Obj | None:
        obj = await get(cluster, name, namespace)
        return obj if rolled_out(obj) else None

    found: Obj = await eventually(check, f"rollout of {name}")
    return found


async def replicasets(cluster: Cluster, namespace: str) -> list[Obj]:
    found = await cluster.client.list("apps/v1", "ReplicaSet", namespace)
    return sorted(found, key=lambda rs: int(annotations_of(rs).get(REVISION, "0")))


async def set_image(cluster: Cluster, name: str, namespace: str, image: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    await cluster.client.patch("apps/v1", "Deployment", name, namespace, patch, type="strategic")


async def scale(cluster: Cluster, name: str, namespace: str, replicas: int) -> None:
    await cluster.client.patch("apps/v1", "Deployment", name, namespace, {"spec": {"replicas": replicas}})


async def images(cluster: Cluster, namespace: str) -> list[str]:
    return sorted(spec_of(pod)["containers"][0]["image"] for pod in await cluster.pods(namespace))


async def test_a_new_deployment_becomes_available(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, replicas=3))
    done = await finished(cluster, "web", namespace)
    assert len(await cluster.pods(namespace)) == 3
    assert (condition_of(done, "Available") or {})["status"] == "True"
    assert (condition_of(done, "Progressing") or {})["reason"] == "NewReplicaSetAvailable"
    assert annotations_of(done)[REVISION] == "1"


async def test_scaling_to_nothing_and_back(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, replicas=2))
    await finished(cluster, "web", namespace)
    await scale(cluster, "web", namespace, 0)

    async def empty() -> bool:
        return not await cluster.client.list("v1", "Pod", namespace)

    await eventually(empty)
    await scale(cluster, "web", namespace, 4)
    await finished(cluster, "web", namespace)
    assert len(await replicasets(cluster, namespace)) == 1


async def test_an_update_stays_within_surge_and_unavailability(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    await cluster.client.create(deployment("web", namespace, replicas=4, strategy=strategy))
    await finished(cluster, "web", namespace)
    most, fewest = 0, 99
    pods, sets = (
        Informer(cluster.client, "v1", "Pod", namespace),
        Informer(cluster.client, "apps/v1", "ReplicaSet", namespace),
    )

    def count_wanted(_type: str, _set: Obj) -> None:
        """As the real controller counts: what a ReplicaSet was told to give up, it may still be about to delete."""
        nonlocal most
        most = max(most, sum(spec_of(replicaset)["replicas"] for replicaset in sets))

    def count_running(_type: str, _pod: Obj) -> None:
        nonlocal fewest
        live = [pod for pod in pods if not is_deleting(pod)]
        fewest = min(fewest, sum(1 for pod in live if status_of(pod).get("phase") == "Running"))

    for informer, handler in ((pods, count_running), (sets, count_wanted)):
        informer.start()
        await informer.synced()
        informer.add_handler(handler)
    await set_image(cluster, "web", namespace, "app:2")
    await finished(cluster, "web", namespace)
    await pods.stop()
    await sets.stop()
    assert await images(cluster, namespace) == ["app:2"] * 4
    assert most == 5
    assert fewest >= 3


async def test_a_broken_release_does_not_take_the_old_one_down(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, replicas=4, progressDeadlineSeconds=1))
    await finished(cluster, "web", namespace)
    cluster.kubelet.healthy = lambda pod: spec_of(pod)["containers"][0]["image"] != "app:bad"
    await set_image(cluster, "web", namespace, "app:bad")

    async def stuck() -> bool:
        progressing = condition_of(await get(cluster, "web", namespace), "Progressing") or {}
        return progressing.get("reason") == "ProgressDeadlineExceeded"

    await eventually(stuck)
    assert (await images(cluster, namespace)).count("app:1") >= 3
    await set_image(cluster, "web", namespace, "app:3")
    await finished(cluster, "web", namespace)
    assert await images(cluster, namespace) == ["app:3"] * 4


async def test_going_back_takes_the_old_replicaset_and_a_new_number(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace))
    await finished(cluster, "web", namespace)
    first = (await replicasets(cluster, namespace))[0]
    await set_image(cluster, "web", namespace, "app:2")
    await finished(cluster, "web", namespace)
    await set_image(cluster, "web", namespace, "app:1")
    done = await finished(cluster, "web", namespace)
    sets = await replicasets(cluster, namespace)
    assert len(sets) == 2
    assert name_of(sets[-1]) == name_of(first)
    assert annotations_of(sets[-1])[REVISION] == "3"
    assert annotations_of(sets[-1])["deployment.kubernetes.io/revision-history"] == "1"

    async def numbered() -> bool:
        return annotations_of(await get(cluster, "web", namespace)).get(REVISION) == "3"

    await eventually(numbered)
    assert status_of(done)["updatedReplicas"] == 1


async def test_old_revisions_are_forgotten(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, revisionHistoryLimit=1))
    for number in range(2, 6):
        await finished(cluster, "web", namespace)
        await set_image(cluster, "web", namespace, f"app:{number}")
    await finished(cluster, "web", namespace)

    async def few() -> bool:
        return len(await replicasets(cluster, namespace)) == 2

    await eventually(few)


async def test_a_paused_deployment_scales_but_does_not_roll(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, replicas=2))
    await finished(cluster, "web", namespace)
    await cluster.client.patch("apps/v1", "Deployment", "web", namespace, {"spec": {"paused": True}})
    await set_image(cluster, "web", namespace, "app:2")
    await scale(cluster, "web", namespace, 3)

    async def scaled() -> bool:
        return await images(cluster, namespace) == ["app:1"] * 3

    await eventually(scaled)
    await cluster.client.patch("apps/v1", "Deployment", "web", namespace, {"spec": {"paused": False}})
    await finished(cluster, "web", namespace)
    assert await images(cluster, namespace) == ["app:2"] * 3


async def test_recreate_never_runs_two_versions(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, replicas=2, strategy={"type": "Recreate"}))
    await finished(cluster, "web", namespace)
    mixtures: list[set[str]] = []
    pods = Informer(cluster.client, "v1", "Pod", namespace)
    pods.add_handler(lambda *_: mixtures.append({spec_of(pod)["containers"][0]["image"] for pod in pods}))
    pods.start()
    await pods.synced()
    await set_image(cluster, "web", namespace, "app:2")
    await finished(cluster, "web", namespace)
    await pods.stop()
    assert {"app:1", "app:2"} not in mixtures


async def test_scaling_in_the_middle_of_a_rollout_ends_at_the_new_size(cluster: Cluster) -> None:
    namespace = await cluster.namespace("t")
    await cluster.client.create(deployment("web", namespace, replicas=4))
    await finished(cluster, "web", namespace)
    cluster.kubelet.healthy = lambda pod: spec_of(pod)["containers"][0]["image"] == "app:1"
    await set_image(cluster, "web", namespace, "app:2")

    async def mixed() -> bool:
        return "app:2" in await images(cluster, namespace)

    await eventually(mixed)
    await scale(cluster, "web", namespace, 7)

    async def larger() -> bool:
        return len(await cluster.pods(namespace)) >= 7

    await eventually(larger)
    cluster.kubelet.healthy = lambda pod: True
    cluster.kubelet.recheck()
    await finished(cluster, "web", namespace)
    assert await images(cluster, namespace) == ["app:2"] * 7


async def test_controllers_that_die_in_the_middle_are_picked_up(quiet: Cluster) -> None:
    namespace = await quiet.namespace("t")
    await quiet.client.create(deployment("web", namespace, replicas=5))
    for number in range(2, 6):
        task = await quiet.control()
        await asyncio.sleep(0.03)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await set_image(quiet, "web", namespace, f"app:{number}")
    await quiet.control()
    await finished(quiet, "web", namespace)
    assert await images(quiet, namespace) == ["app:5"] * 5
