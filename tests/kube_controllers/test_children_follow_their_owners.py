"""Garbage collection: background, foreground, orphan, owners that never were, circles, and custom kinds."""

from __future__ import annotations

from typing import Any

from regional.kube.objects import Obj, is_deleting, name_of, owners_of, uid_of
from tests.kube_controllers.harness import Cluster, eventually

CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.demo.io"},
    "spec": {
        "group": "demo.io",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def reference(owner: Obj, *, block: bool = True, **changes: Any) -> Obj:
    base = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "blockOwnerDeletion": block,
    }
    return base | changes


async def config(cluster: Cluster, name: str, *owners: Obj, finalizers: list[str] | None = None) -> Obj:
    metadata: Obj = {"name": name, "namespace": "t"}
    if owners:
        metadata["ownerReferences"] = list(owners)
    if finalizers:
        metadata["finalizers"] = finalizers
    return await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def read(cluster: Cluster, name: str) -> Obj | None:
    return await cluster.client.get_or_none("v1", "ConfigMap", name, "t")


async def gone(cluster: Cluster, *names: str) -> None:
    async def check() -> bool:
        return all([await read(cluster, name) is None for name in names])

    await eventually(check, f"{names} are gone")


async def let_go(cluster: Cluster, name: str) -> None:
    await cluster.client.patch("v1", "ConfigMap", name, "t", {"metadata": {"finalizers": None}})


async def delete(cluster: Cluster, name: str, propagation: str) -> None:
    await cluster.client.delete("v1", "ConfigMap", name, "t", propagation=propagation)


async def test_background_takes_grandchildren_too(cluster: Cluster) -> None:
    await cluster.namespace("t")
    parent = await config(cluster, "parent")
    child = await config(cluster, "child", reference(parent))
    await config(cluster, "grandchild", reference(child))
    await delete(cluster, "parent", "Background")
    await gone(cluster, "parent", "child", "grandchild")


async def test_foreground_waits_for_children_that_block(cluster: Cluster) -> None:
    await cluster.namespace("t")
    parent = await config(cluster, "parent")
    await config(cluster, "held", reference(parent), finalizers=["demo.io/hold"])
    await config(cluster, "free", reference(parent))
    await delete(cluster, "parent", "Foreground")
    await gone(cluster, "free")

    async def child_waits() -> bool:
        held = await read(cluster, "held")
        return held is not None and is_deleting(held)

    await eventually(child_waits)
    waiting = await read(cluster, "parent")
    assert waiting is not None
    assert is_deleting(waiting)
    await let_go(cluster, "held")
    await gone(cluster, "held", "parent")


async def test_foreground_does_not_wait_for_children_that_do_not_block(cluster: Cluster) -> None:
    await cluster.namespace("t")
    parent = await config(cluster, "parent")
    await config(cluster, "held", reference(parent, block=False), finalizers=["demo.io/hold"])
    await delete(cluster, "parent", "Foreground")
    await gone(cluster, "parent")
    await let_go(cluster, "held")
    await gone(cluster, "held")


async def test_orphaned_children_stay_without_the_owner(cluster: Cluster) -> None:
    await cluster.namespace("t")
    parent = await config(cluster, "parent")
    await config(cluster, "child", reference(parent))
    await delete(cluster, "parent", "Orphan")
    await gone(cluster, "parent")
    child = await read(cluster, "child")
    assert child is not None
    assert owners_of(child) == []


async def test_an_owner_of_another_uid_is_no_owner(cluster: Cluster) -> None:
    await cluster.namespace("t")
    parent = await config(cluster, "parent")
    await config(cluster, "child", reference(parent, uid="11111111-1111-4111-8111-111111111111"))
    await gone(cluster, "child")
    assert await read(cluster, "parent") is not None


async def test_one_living_owner_is_enough(cluster: Cluster) -> None:
    await cluster.namespace("t")
    one, two = await config(cluster, "one"), await config(cluster, "two")
    await config(cluster, "child", reference(one), reference(two))
    await delete(cluster, "one", "Background")

    async def stripped() -> bool:
        child = await read(cluster, "child")
        assert child is not None
        return [owner["name"] for owner in owners_of(child)] == ["two"]

    await eventually(stripped)


async def test_circles_end(cluster: Cluster) -> None:
    await cluster.namespace("t")
    one = await config(cluster, "one")
    two = await config(cluster, "two", reference(one))
    await cluster.client.patch("v1", "ConfigMap", "one", "t", {"metadata": {"ownerReferences": [reference(two)]}})
    await delete(cluster, "one", "Foreground")
    await gone(cluster, "one", "two")


async def test_an_owner_of_an_unknown_kind_is_left_alone(cluster: Cluster) -> None:
    await cluster.namespace("t")
    parent = await config(cluster, "parent")
    await config(cluster, "child", reference(parent, apiVersion="absent.io/v1", kind="Thing", uid="x"))
    other = await config(cluster, "other", reference(parent))
    await delete(cluster, "parent", "Background")
    await gone(cluster, name_of(other))
    assert await read(cluster, "child") is not None


async def test_custom_kinds_own_and_are_owned(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(CRD)

    async def served() -> bool:
        return any(entry.resource.kind == "Widget" for entry in await cluster.client.resources())

    await eventually(served)
    widget: Obj = {"apiVersion": "demo.io/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "t"}}
    made = await cluster.client.create(widget)
    child = await config(cluster, "child", reference(made))
    await cluster.client.create(
        widget | {"metadata": {"name": "v", "namespace": "t", "ownerReferences": [reference(child)]}}
    )
    await cluster.client.delete("demo.io/v1", "Widget", "w", "t", propagation="Background")
    await gone(cluster, "child")

    async def widgets_gone() -> bool:
        return not await cluster.client.list("demo.io/v1", "Widget", "t")

    await eventually(widgets_gone)


async def test_what_was_orphaned_while_nobody_looked_is_collected(quiet: Cluster) -> None:
    await quiet.namespace("t")
    parent = await config(quiet, "parent")
    await config(quiet, "child", reference(parent))
    await delete(quiet, "parent", "Background")
    await quiet.control()
    await gone(quiet, "child")
