"""A namespace that ends, and nodes that are not well, look as on the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from regional.kube.client import Client
from regional.kube.objects import Obj, condition_of, is_deleting, spec_of, status_of

from ..servers import flavour
from ..stage import PATIENCE, NodeKeeper, Stage, eventually, ready_node_status
from .plays import pods_ready

pytestmark = pytest.mark.xdist_group("controllers-agree")


async def test_a_namespace_says_what_it_waits_for(stage: Stage) -> None:
    kept: Obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kept", "finalizers": ["demo.io/hold"]},
    }
    await stage.create(kept)
    await stage.client.delete("v1", "Namespace", stage.namespace)

    async def explained() -> Obj | None:
        conditions = status_of(await stage.client.get("v1", "Namespace", stage.namespace)).get("conditions") or []
        told = {each["type"]: (each["status"], each["reason"], each["message"]) for each in conditions}
        waiting = told.get("NamespaceFinalizersRemaining", ("", "", ""))[0] == "True"
        # The real controllers may put what goes with every namespace there once more before they learn of its end.
        alone = told.get("NamespaceContentRemaining", ("", "", ""))[2].endswith(" has 1 resource instances")
        return told if waiting and alone and len(told) == 5 else None

    told = await stage.until(explained)
    await stage.patch("v1", "ConfigMap", "kept", {"metadata": {"finalizers": None}})
    assert told == {
        "NamespaceDeletionDiscoveryFailure": (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: demo.io/hold in 1 resource instances",
        ),
    }

    async def gone() -> bool:
        return await stage.client.get_or_none("v1", "Namespace", stage.namespace) is None

    await stage.until(gone)


@pytest.fixture
async def unwell(client: Client, keeper: NodeKeeper) -> AsyncIterator[str]:
    """A second node, which may fall ill; the first one stays well."""
    name = "unwell"
    await keeper.add(name)
    yield name
    keeper.names.discard(name)
    await client.delete("v1", "Node", name)


async def tainted(stage: Stage, node: str, wanted: set[tuple[str, str]], patience: float = PATIENCE) -> None:
    async def check() -> bool:
        taints = spec_of(await stage.client.get("v1", "Node", node)).get("taints") or []
        return {(taint["key"], taint["effect"]) for taint in taints} == wanted

    await eventually(check, str(wanted), patience)


async def test_a_node_that_is_not_ready_is_tainted_until_it_is(stage: Stage, keeper: NodeKeeper, unwell: str) -> None:
    await tainted(stage, unwell, set())
    conditions = [ready_node_status()["conditions"][0] | {"status": "False", "reason": "KubeletNotReady"}]
    await keeper.add(unwell, conditions=conditions)
    key = "node.kubernetes.io/not-ready"
    await tainted(stage, unwell, {(key, "NoSchedule"), (key, "NoExecute")})
    await keeper.add(unwell)
    await tainted(stage, unwell, set())


@pytest.mark.skipif(flavour() != "real", reason="takes a minute; tests/kube_controllers holds ours to the same facts")
async def test_pods_of_a_silent_node_are_not_ready_and_leave_in_time(
    stage: Stage, keeper: NodeKeeper, unwell: str
) -> None:
    keys = [f"node.kubernetes.io/{word}" for word in ("not-ready", "unreachable")]
    impatient = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0} for key in keys]
    for name, tolerations in (("impatient", impatient), ("patient", [])):
        spec = {"nodeName": unwell, "tolerations": tolerations, "containers": [{"name": "main", "image": "app:1"}]}
        await stage.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    await pods_ready(stage, 2)
    await stage.close()
    keeper.names.discard(unwell)
    await tainted(stage, unwell, {(keys[1], "NoSchedule"), (keys[1], "NoExecute")}, 4 * PATIENCE)
    ready = condition_of(await stage.client.get("v1", "Node", unwell), "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert ready["message"] == "Kubelet stopped posting node status."

    async def left() -> bool:
        return is_deleting(await stage.get("v1", "Pod", "impatient"))

    await stage.until(left)
    patient = await stage.get("v1", "Pod", "patient")
    assert not is_deleting(patient)
    assert (condition_of(patient, "Ready") or {})["status"] == "False"
    assert status_of(patient)["phase"] == "Running"

    async def told() -> bool:
        events = await stage.client.list("v1", "Event", stage.namespace, fields="involvedObject.name=patient")
        return any(event["reason"] == "NodeNotReady" and event["type"] == "Warning" for event in events)

    await stage.until(told)
    for name in ("impatient", "patient"):
        await stage.client.delete("v1", "Pod", name, stage.namespace, grace=0, missing_ok=True)
