"""A PersistentVolumeClaim gets a volume of its own, and neither goes before the other allows it."""

from __future__ import annotations

import pytest

from regional.kube.controllers.volumes import IN_USE
from regional.kube.disks import DRIVER, HOLDS_FILES
from regional.kube.objects import Obj, finalizers_of, is_deleting, spec_of, status_of, uid_of
from tests.kube_controllers.harness import Cluster, end, eventually


def claim(name: str = "data", **spec: object) -> Obj:
    wanted: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "t"},
        "spec": wanted | spec,
    }


def user_of(name: str) -> Obj:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": "t"},
        "spec": {"containers": [{"name": "main", "image": "app:1"}], "volumes": [volume]},
    }


async def bound(cluster: Cluster, name: str = "data") -> tuple[Obj, Obj]:
    async def look() -> tuple[Obj, Obj] | None:
        live = await cluster.client.get("v1", "PersistentVolumeClaim", name, "t")
        if status_of(live).get("phase") != "Bound":
            return None
        volume = await cluster.client.get("v1", "PersistentVolume", spec_of(live)["volumeName"])
        return (live, volume) if status_of(volume).get("phase") == "Bound" else None

    found: tuple[Obj, Obj] = await eventually(look)
    return found


async def let_go(cluster: Cluster, volume: Obj) -> None:
    """The node's part: files are removed, so the volume may go."""

    async def deleted() -> Obj | None:
        live = await cluster.client.get("v1", "PersistentVolume", volume["metadata"]["name"])
        return live if is_deleting(live) else None

    await eventually(deleted)
    patch = {"metadata": {"finalizers": None}}
    await cluster.client.patch("v1", "PersistentVolume", volume["metadata"]["name"], None, patch)


async def gone(cluster: Cluster, kind: str, name: str, namespace: str | None) -> None:
    async def look() -> bool:
        return await cluster.client.get_or_none("v1", kind, name, namespace) is None

    await eventually(look)


async def test_a_claim_is_bound_to_a_volume_of_its_own(cluster: Cluster) -> None:
    await cluster.namespace("t")
    for name in ("data", "more"):
        await cluster.client.create(claim(name))
    live, volume = await bound(cluster)
    _, other = await bound(cluster, "more")
    assert uid_of(volume) != uid_of(other)
    assert spec_of(volume)["csi"]["driver"] == DRIVER
    assert spec_of(volume)["claimRef"]["uid"] == uid_of(live)
    assert status_of(live)["capacity"] == {"storage": "1Gi"}
    assert IN_USE in finalizers_of(live) and HOLDS_FILES in finalizers_of(volume)


async def test_a_claim_in_use_stays_until_its_pod_is_gone_and_its_files_are(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(claim())
    _, volume = await bound(cluster)
    await cluster.client.create(user_of("data"))

    async def runs() -> bool:
        return status_of(await cluster.client.get("v1", "Pod", "user", "t")).get("phase") == "Running"

    await eventually(runs)
    await cluster.client.delete("v1", "PersistentVolumeClaim", "data", "t")
    live = await cluster.client.get("v1", "PersistentVolumeClaim", "data", "t")
    assert is_deleting(live)
    assert not is_deleting(await cluster.client.get("v1", "PersistentVolume", volume["metadata"]["name"]))
    await cluster.client.delete("v1", "Pod", "user", "t")
    await let_go(cluster, volume)
    await gone(cluster, "PersistentVolume", volume["metadata"]["name"], None)
    await gone(cluster, "PersistentVolumeClaim", "data", "t")


async def test_a_claim_made_anew_gets_another_volume(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(claim())
    _, first = await bound(cluster)
    await cluster.client.delete("v1", "PersistentVolumeClaim", "data", "t")
    await let_go(cluster, first)
    await gone(cluster, "PersistentVolumeClaim", "data", "t")
    await cluster.client.create(claim())
    _, second = await bound(cluster)
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_a_namespace_ends_only_after_its_files(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(claim())
    _, volume = await bound(cluster)
    await cluster.client.delete("v1", "Namespace", "t")

    async def deleted() -> bool:
        return is_deleting(await cluster.client.get("v1", "PersistentVolume", volume["metadata"]["name"]))

    await eventually(deleted)
    assert await cluster.client.get_or_none("v1", "Namespace", "t") is not None
    await let_go(cluster, volume)
    await gone(cluster, "Namespace", "t", None)


async def test_a_retained_volume_outlives_its_claim(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(claim())
    _, volume = await bound(cluster)
    name = volume["metadata"]["name"]
    patch = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
    await cluster.client.patch("v1", "PersistentVolume", name, None, patch)
    await cluster.client.delete("v1", "PersistentVolumeClaim", "data", "t")
    await gone(cluster, "PersistentVolumeClaim", "data", "t")

    async def released() -> bool:
        return status_of(await cluster.client.get("v1", "PersistentVolume", name)).get("phase") == "Released"

    await eventually(released)


async def test_a_volume_whose_claim_vanished_is_given_up(quiet: Cluster) -> None:
    """While no controller ran, somebody took the claim away past its finalizer."""
    await quiet.namespace("t")
    task = await quiet.control()
    await quiet.client.create(claim())
    _, volume = await bound(quiet)
    await end(task)
    await quiet.client.delete("v1", "PersistentVolumeClaim", "data", "t")
    await quiet.client.patch("v1", "PersistentVolumeClaim", "data", "t", {"metadata": {"finalizers": None}})
    await quiet.control()
    await let_go(quiet, volume)
    await gone(quiet, "PersistentVolume", volume["metadata"]["name"], None)


@pytest.mark.parametrize("chosen", [("accounts",), ("accounts", "volume")])
async def test_only_the_chosen_controllers_run_and_namespaces_end_in_any_case(
    quiet: Cluster, chosen: tuple[str, ...]
) -> None:
    await quiet.control(controllers=chosen)
    await quiet.namespace("t")
    await quiet.client.create(claim())
    if "volume" in chosen:
        _, volume = await bound(quiet)
        await quiet.client.delete("v1", "Namespace", "t")
        await let_go(quiet, volume)
    else:
        await quiet.client.delete("v1", "Namespace", "t")
    await gone(quiet, "Namespace", "t", None)
