"""Deleting: what is answered, what lingers, what finalizers and preconditions hold up."""

from __future__ import annotations

import asyncio

import pytest

from .objects import Custom, config_map
from .wire import Http, Obj, Shell


def pod(name: str, **spec: object) -> Obj:
    containers = [{"name": "main", "image": "example/app:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers} | spec}


def success(name: str, plural: str, uid: str, group: str = "") -> Obj:
    details = {"name": name, "group": group, "kind": plural, "uid": uid}
    if not group:
        del details["group"]
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


@pytest.mark.check(87)
async def test_a_delete_answers_with_the_uid_of_what_is_gone(http: Http, config_maps: str, widgets: Custom) -> None:
    made = (await http.post(config_maps, config_map("x"))).ok(201)
    assert (await http.delete(f"{config_maps}/x")).ok(200) == success("x", "configmaps", made["metadata"]["uid"])
    details = {"name": "x", "kind": "configmaps"}
    (await http.delete(f"{config_maps}/x")).refused(404, "NotFound", 'configmaps "x" not found', details)
    made = (await http.post(widgets.path, widgets.body("w", {}))).ok(201)
    answer = (await http.delete(f"{widgets.path}/w", {"propagationPolicy": "Background"})).ok(200)
    assert answer == success("w", "widgets", made["metadata"]["uid"], widgets.group)


@pytest.mark.check(88)
async def test_a_finalizer_turns_a_delete_into_a_mark(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("x", {"a": "1"}, finalizers=["demo.io/hold"]))).ok(201)
    marked = (await http.delete(f"{config_maps}/x")).ok(200)
    assert marked["kind"] == "ConfigMap" and marked["metadata"]["uid"] == made["metadata"]["uid"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["deletionTimestamp"]
    assert int(marked["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    # Again is not an error, and not a change.
    assert (await http.delete(f"{config_maps}/x")).ok(200) == marked
    changed = (await http.patch(f"{config_maps}/x", {"data": {"a": "2"}})).ok(200)
    details = {"name": "x", "kind": "configmaps"}
    again = await http.post(config_maps, config_map("x"))
    again.refused(409, "AlreadyExists", 'object is being deleted: configmaps "x" already exists', details)
    freed = (await http.patch(f"{config_maps}/x", {"metadata": {"finalizers": None}})).ok(200)
    assert "finalizers" not in freed["metadata"]
    assert freed["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    assert (await http.get(f"{config_maps}/x")).status == 404


@pytest.mark.check(88)
async def test_a_deletion_is_a_new_generation_of_a_custom_resource(http: Http, widgets: Custom) -> None:
    body = widgets.body("w", {"size": 1})
    body["metadata"]["finalizers"] = ["demo.io/hold"]
    assert (await http.post(widgets.path, body)).ok(201)["metadata"]["generation"] == 1
    assert (await http.delete(f"{widgets.path}/w")).ok(200)["metadata"]["generation"] == 2
    assert (await http.delete(f"{widgets.path}/w")).ok(200)["metadata"]["generation"] == 2
    (await http.patch(f"{widgets.path}/w", {"metadata": {"finalizers": []}})).ok(200)
    assert (await http.get(f"{widgets.path}/w")).status == 404


@pytest.mark.check(89)
async def test_no_finalizer_joins_a_deletion(http: Http, config_maps: str) -> None:
    (await http.post(config_maps, config_map("x", finalizers=["demo.io/hold"]))).ok(201)
    (await http.delete(f"{config_maps}/x")).ok(200)
    answer = await http.patch(f"{config_maps}/x", {"metadata": {"finalizers": ["demo.io/hold", "demo.io/late"]}})
    body = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"demo.io/late"}'
    )
    cause = {"reason": "FieldValueForbidden", "message": body, "field": "metadata.finalizers"}
    # The real server finds it twice and lists both.
    causes = answer.body["details"]["causes"]
    assert causes in ([cause], [cause, cause])
    details = {"name": "x", "kind": "ConfigMap", "causes": causes}
    answer.refused(422, "Invalid", f'ConfigMap "x" is invalid: metadata.finalizers: {body}', details)
    (await http.patch(f"{config_maps}/x", {"metadata": {"finalizers": None}})).ok(200)


@pytest.mark.check(90)
async def test_preconditions_protect_another_object_of_the_same_name(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("x"))).ok(201)
    uid, revision = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    head = 'Operation cannot be fulfilled on ConfigMap "x": '
    answer = await http.delete(f"{config_maps}/x", {"preconditions": {"uid": "other"}})
    answer.refused(
        409,
        "Conflict",
        f"{head}the UID in the precondition (other) does not match the UID in record ({uid}). "
        "The object might have been deleted and then recreated",
        {"name": "x", "kind": "ConfigMap"},
    )
    answer = await http.delete(f"{config_maps}/x", {"preconditions": {"resourceVersion": "1"}})
    answer.refused(
        409,
        "Conflict",
        f"{head}the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({revision}). "
        "The object might have been modified",
        {"name": "x", "kind": "ConfigMap"},
    )
    both = {"preconditions": {"uid": uid, "resourceVersion": revision}}
    assert (await http.delete(f"{config_maps}/x", both)).ok(200)["status"] == "Success"


@pytest.mark.check(87)
async def test_a_dry_run_deletes_nothing(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("x"))).ok(201)
    for path, body in ((f"{config_maps}/x?dryRun=All", None), (f"{config_maps}/x", {"dryRun": ["All"]})):
        answer = (await http.delete(path, body)).ok(200)
        assert answer == success("x", "configmaps", made["metadata"]["uid"])
    assert (await http.get(f"{config_maps}/x")).ok(200) == made


@pytest.mark.check(96)
async def test_a_collection_is_deleted_by_selection(http: Http, config_maps: str) -> None:
    for name, group in (("a", "1"), ("b", "1"), ("c", "2")):
        (await http.post(config_maps, config_map(name, labels={"g": group}))).ok(201)
    deleted = (await http.delete(f"{config_maps}?labelSelector=g%3D1")).ok(200)
    assert deleted["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "b"]
    left = (await http.get(f"{config_maps}?labelSelector=g")).ok(200)
    assert [item["metadata"]["name"] for item in left["items"]] == ["c"]
    answer = await http.delete("/api/v1/namespaces")
    answer.refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


@pytest.mark.check(97)
async def test_kubectl_waits_for_the_end(http: Http, config_maps: str, kubectl: Shell) -> None:
    (await http.post(config_maps, config_map("x", finalizers=["demo.io/hold"]))).ok(201)
    deleting = asyncio.create_task(kubectl("delete configmap x"))
    found = await http.until(f"{config_maps}/x", lambda answer: "deletionTimestamp" in answer.body["metadata"])
    assert found.status == 200 and not deleting.done()
    (await http.patch(f"{config_maps}/x", {"metadata": {"finalizers": None}})).ok(200)
    assert 'configmap "x" deleted' in await deleting
    assert (await http.get(f"{config_maps}/x")).status == 404


@pytest.mark.check(98)
async def test_a_pod_on_a_node_is_given_time(http: Http, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    # Bound to a node that nobody runs: only the server itself decides what happens.
    (await http.post(pods, pod("x", nodeName=f"none-{namespace}"))).ok(201)
    marked = (await http.delete(f"{pods}/x")).ok(200)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    generation = marked["metadata"]["generation"]
    longer = (await http.delete(f"{pods}/x", {"gracePeriodSeconds": 50})).ok(200)
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = (await http.delete(f"{pods}/x", {"gracePeriodSeconds": 20})).ok(200)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 20
    assert generation == 2
    gone = (await http.delete(f"{pods}/x", {"gracePeriodSeconds": 0})).ok(200)
    assert gone["kind"] == "Pod"
    assert (await http.get(f"{pods}/x")).status == 404


@pytest.mark.check(98)
async def test_a_pod_on_no_node_goes_at_once(http: Http, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    (await http.post(pods, pod("x", schedulerName="nobody"))).ok(201)
    gone = (await http.delete(f"{pods}/x")).ok(200)
    assert (gone["kind"], gone["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
    assert (await http.get(f"{pods}/x")).status == 404
