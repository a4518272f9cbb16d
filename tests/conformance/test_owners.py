"""Owners and what they own; namespaces and what is in them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .objects import config_map
from .wire import PATIENCE, Answer, Http, Obj


def owned_by(owner: Obj, **more: Any) -> Obj:
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]} | more


def absent(answer: Answer) -> bool:
    return answer.status == 404


async def make(http: Http, path: str, name: str, *owners: Obj, **metadata: Any) -> Obj:
    if owners:
        metadata["ownerReferences"] = list(owners)
    made: Obj = (await http.post(path, config_map(name, **metadata))).ok(201)
    return made


@pytest.mark.check(91)
async def test_foreground_waits_for_children_that_block(http: Http, config_maps: str) -> None:
    owner = await make(http, config_maps, "owner")
    await make(http, config_maps, "blocks", owned_by(owner, blockOwnerDeletion=True), finalizers=["demo.io/hold"])
    marked = (await http.delete(f"{config_maps}/owner", {"propagationPolicy": "Foreground"})).ok(200)
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert marked["metadata"]["deletionTimestamp"]
    await http.until(f"{config_maps}/blocks", lambda answer: "deletionTimestamp" in answer.body["metadata"])
    still = (await http.get(f"{config_maps}/owner")).ok(200)
    assert still["metadata"]["finalizers"] == ["foregroundDeletion"]
    (await http.patch(f"{config_maps}/blocks", {"metadata": {"finalizers": None}})).ok(200)
    await http.until(f"{config_maps}/owner", absent)
    assert (await http.get(f"{config_maps}/blocks")).status == 404


@pytest.mark.check(91)
async def test_foreground_does_not_wait_for_others(http: Http, config_maps: str) -> None:
    owner = await make(http, config_maps, "owner")
    await make(http, config_maps, "child", owned_by(owner), finalizers=["demo.io/hold"])
    (await http.delete(f"{config_maps}/owner", {"propagationPolicy": "Foreground"})).ok(200)
    await http.until(f"{config_maps}/owner", absent)
    await http.until(f"{config_maps}/child", lambda answer: "deletionTimestamp" in answer.body["metadata"])
    (await http.patch(f"{config_maps}/child", {"metadata": {"finalizers": None}})).ok(200)


@pytest.mark.check(92)
async def test_orphans_lose_their_owner_and_stay(http: Http, config_maps: str) -> None:
    owner = await make(http, config_maps, "owner")
    await make(http, config_maps, "child", owned_by(owner))
    marked = (await http.delete(f"{config_maps}/owner", {"propagationPolicy": "Orphan"})).ok(200)
    assert marked["metadata"]["finalizers"] == ["orphan"]
    await http.until(f"{config_maps}/owner", absent)
    assert "ownerReferences" not in (await http.get(f"{config_maps}/child")).ok(200)["metadata"]


@pytest.mark.check(93)
async def test_background_takes_the_children_afterwards(http: Http, config_maps: str) -> None:
    owner = await make(http, config_maps, "owner")
    child = await make(http, config_maps, "child", owned_by(owner))
    await make(http, config_maps, "grandchild", owned_by(child))
    assert (await http.delete(f"{config_maps}/owner")).ok(200)["status"] == "Success"
    assert (await http.get(f"{config_maps}/owner")).status == 404
    await http.until(f"{config_maps}/child", absent)
    await http.until(f"{config_maps}/grandchild", absent)


@pytest.mark.check(94)
async def test_a_child_of_nobody_goes_and_one_with_another_owner_stays(http: Http, config_maps: str) -> None:
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "there-is-no-such-uid"}
    owner = await make(http, config_maps, "owner")
    await make(http, config_maps, "impostor", owned_by(owner) | {"uid": "of-an-earlier-owner"})
    await make(http, config_maps, "dangling", nobody)
    await make(http, config_maps, "half", nobody, owned_by(owner))
    await http.until(f"{config_maps}/dangling", absent)
    await http.until(f"{config_maps}/impostor", absent)
    kept = await http.until(
        f"{config_maps}/half", lambda answer: len(answer.body["metadata"].get("ownerReferences", [])) == 1
    )
    assert kept.body["metadata"]["ownerReferences"] == [owned_by(owner)]


@pytest.mark.check(94)
async def test_two_controllers_are_refused(http: Http, config_maps: str) -> None:
    one = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": True}
    answer = await http.post(config_maps, config_map("x", ownerReferences=[one, one | {"name": "b", "uid": "2"}]))
    body = (
        'Invalid value: [{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"1","controller":true},'
        '{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"2","controller":true}]: '
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/a and ConfigMap/b'
    )
    assert answer.status == 422, answer.content
    assert answer.body["details"]["causes"][0]["field"] == "metadata.ownerReferences"
    assert answer.message.endswith(body.partition("]: ")[2])


@pytest.mark.check(95)
async def test_a_namespace_ends_when_its_content_is_gone(http: Http, namespace: str, config_maps: str) -> None:
    await make(http, config_maps, "held", finalizers=["demo.io/hold"])
    await make(http, config_maps, "other")
    path = f"/api/v1/namespaces/{namespace}"
    before = (await http.get(path)).ok(200)
    assert before["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert (before["spec"], before["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    ended = (await http.delete(path)).ok(200)
    assert ended["kind"] == "Namespace" and ended["status"]["phase"] == "Terminating"
    assert ended["metadata"]["deletionTimestamp"] and "deletionGracePeriodSeconds" not in ended["metadata"]
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    # The real server's admission learns of the end a moment later: until then the new object may get in.
    async with asyncio.timeout(PATIENCE):
        while (late := await http.post(config_maps, config_map("late"))).status != 403:
            assert late.status in (201, 409)
            await asyncio.sleep(0.05)
    late.refused(
        403,
        "Forbidden",
        f'configmaps "late" is forbidden: {why}',
        {
            "name": "late",
            "kind": "configmaps",
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        },
    )
    await http.until(f"{config_maps}/other", absent)
    # What got in late is counted, too, until it is gone.
    said = {
        "NamespaceContentRemaining": "Some resources are remaining: configmaps. has 1 resource instances",
        "NamespaceFinalizersRemaining": (
            "Some content in the namespace has finalizers remaining: demo.io/hold in 1 resource instances"
        ),
    }
    told = await http.until(path, lambda answer: said.items() <= _messages(answer).items())
    assert {_conditions(told)[kind] for kind in said} == {"True"}
    (await http.patch(f"{config_maps}/held", {"metadata": {"finalizers": None}})).ok(200)
    await http.until(path, absent)
    details = {"name": namespace, "kind": "namespaces"}
    (await http.post(config_maps, config_map("x"))).refused(
        404, "NotFound", f'namespaces "{namespace}" not found', details
    )


def _conditions(answer: Answer) -> dict[str, str]:
    if answer.status != 200:
        return {}
    return {each["type"]: each["status"] for each in answer.body["status"].get("conditions", [])}


def _messages(answer: Answer) -> dict[str, str]:
    return {each["type"]: each["message"] for each in answer.ok(200)["status"].get("conditions", [])}


@pytest.mark.check(95)
@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_clusters_own_namespaces_stay(http: Http, name: str) -> None:
    details = {"name": name, "kind": "namespaces"}
    (await http.delete(f"/api/v1/namespaces/{name}")).refused(
        403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted', details
    )
