"""Changing objects: updates, the patch types, generations, status and scale."""

from __future__ import annotations

import asyncio

import pytest

from .objects import Custom, config_map, deployment
from .wire import Http, Obj, Shell

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.mark.check(49)
async def test_a_stale_update_is_refused(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("a"))).ok(201)
    (await http.put(f"{config_maps}/a", made | {"data": {"x": "1"}})).ok(200)
    details = {"name": "a", "kind": "configmaps"}
    text = f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    (await http.put(f"{config_maps}/a", made | {"data": {"x": "2"}})).refused(409, "Conflict", text, details)
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
    (await http.patch(f"{config_maps}/a", stale)).refused(409, "Conflict", text, details)


@pytest.mark.check(50)
async def test_a_custom_object_is_updated_at_a_known_version(http: Http, widgets: Custom) -> None:
    (await http.post(widgets.path, widgets.body("a", {"size": 1}))).ok(201)
    answer = await http.put(f"{widgets.path}/a", widgets.body("a", {"size": 2}))
    body = "Invalid value: 0: must be specified for an update"
    causes = [{"reason": "FieldValueInvalid", "message": body, "field": "metadata.resourceVersion"}]
    details = {"name": "a", "group": widgets.group, "kind": "widgets", "causes": causes}
    text = f'{widgets.resource} "a" is invalid: metadata.resourceVersion: {body}'
    answer.refused(422, "Invalid", text, details)


@pytest.mark.check(51)
async def test_a_secret_is_overwritten_without_a_version(http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    (await http.post(path, {"metadata": {"name": "a"}, "data": {"x": "Yg=="}})).ok(201)
    changed = (await http.put(f"{path}/a", {"metadata": {"name": "a"}, "data": {"x": "Yw=="}})).ok(200)
    assert changed["data"] == {"x": "Yw=="}


@pytest.mark.check(52)
async def test_an_update_creates_a_lease_but_no_config_map(http: Http, config_maps: str, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a"
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
    assert (await http.put(path, lease)).ok(201)["spec"] == {"holderIdentity": "me"}
    answer = await http.put(f"{config_maps}/a", config_map("a"))
    answer.refused(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


@pytest.mark.check(53)
async def test_the_uid_cannot_be_changed(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("a", uid="mine"))).ok(201)
    assert made["metadata"]["uid"] != "mine"
    answer = await http.put(f"{config_maps}/a", config_map("a", uid="x"))
    uid = made["metadata"]["uid"]
    text = (
        f'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: '
        f"/registry/configmaps/{config_maps.split('/')[4]}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
        f"failed: UID in precondition: x, UID in object meta: {uid}"
    )
    answer.refused(409, "Conflict", text, {"name": "a", "kind": "configmaps"})


@pytest.mark.check(54)
@pytest.mark.parametrize("how", ["put", "merge", "apply"])
async def test_a_write_that_changes_nothing_leaves_no_trace(http: Http, config_maps: str, how: str) -> None:
    body = config_map("a", {"x": "y"})
    made = (await http.apply(f"{config_maps}/a", body)).ok(201)
    await asyncio.sleep(1.1)  # so that a managed-fields entry written again would show another second
    if how == "put":
        again = await http.put(f"{config_maps}/a", made)
    elif how == "merge":
        again = await http.patch(f"{config_maps}/a", {"data": {"x": "y"}})
    else:
        again = await http.apply(f"{config_maps}/a", body)
    assert again.ok(200) == made


@pytest.mark.check(55)
async def test_the_generation_counts_changes_of_the_wish(http: Http, deployments: str, widgets: Custom) -> None:
    def generation(obj: Obj) -> int:
        number: int = obj["metadata"]["generation"]
        return number

    for path, body in ((deployments, deployment("a")), (widgets.path, widgets.body("a", {"size": 1, "replicas": 0}))):
        assert generation((await http.post(path, body)).ok(201)) == 1
        labelled = await http.patch(f"{path}/a", {"metadata": {"labels": {"l": "1"}}})
        assert generation(labelled.ok(200)) == 1
        status = await http.patch(f"{path}/a/status", {"status": {"replicas": 0}})
        assert generation(status.ok(200)) == 1
        assert generation((await http.patch(f"{path}/a", {"spec": {"replicas": 1}})).ok(200)) == 2
        assert generation((await http.patch(f"{path}/a", {"spec": {"replicas": 1}})).ok(200)) == 2


@pytest.mark.check(56)
async def test_the_wish_and_the_status_are_written_apart(http: Http, widgets: Custom) -> None:
    made = (await http.post(widgets.path, widgets.body("a", {"size": 1}, status={"phase": "early"}))).ok(201)
    assert "status" not in made
    both = made | {"spec": {"size": 2}, "status": {"phase": "late"}}
    changed = (await http.put(f"{widgets.path}/a/status", both)).ok(200)
    assert (changed["spec"], changed["status"]) == ({"size": 1}, {"phase": "late"})
    both = changed | {"spec": {"size": 3}, "status": {"phase": "never"}}
    changed = (await http.put(f"{widgets.path}/a", both)).ok(200)
    assert (changed["spec"], changed["status"]) == ({"size": 3}, {"phase": "late"})


@pytest.mark.check(56)
async def test_a_node_s_status_is_written_apart(http: Http) -> None:
    # A Node, because no controller of a built-in kind with a status leaves it alone as long as this one's does.
    path = "/api/v1/nodes"
    name = f"n-{id(http)}"
    made = (await http.post(path, {"metadata": {"name": name}, "spec": {"unschedulable": True}})).ok(201)
    try:
        status = {"status": {"nodeInfo": {"kubeletVersion": "v1.35.0"}}, "spec": {"unschedulable": False}}
        changed = (await http.patch(f"{path}/{name}/status", status)).ok(200)
        assert changed["spec"]["unschedulable"] is True
        assert changed["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.0"
        kept = (await http.patch(f"{path}/{name}", {"status": {"nodeInfo": {"kubeletVersion": "v9"}}})).ok(200)
        assert kept["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.0"
        assert made["metadata"]["uid"] == kept["metadata"]["uid"]
    finally:
        await http.delete(f"{path}/{name}")


@pytest.mark.check(57)
async def test_kubectl_scales(http: Http, deployments: str, widgets: Custom, kubectl: Shell) -> None:
    (await http.post(deployments, deployment("a"))).ok(201)
    assert "deployment.apps/a scaled" in await kubectl("scale deploy/a --replicas=2")
    scale = (await http.get(f"{deployments}/a/scale")).ok(200)
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    assert scale["status"]["selector"] == "app=a"
    (await http.post(widgets.path, widgets.body("w", {"replicas": 1}))).ok(201)
    await kubectl(f"scale widgets.{widgets.group}/w --replicas=5")
    assert (await http.get(f"{widgets.path}/w")).ok(200)["spec"] == {"replicas": 5}
    scale = (await http.get(f"{widgets.path}/w/scale")).ok(200)
    assert (scale["spec"], scale["status"]) == ({"replicas": 5}, {"replicas": 0})


@pytest.mark.check(58)
async def test_a_json_patch_tests_before_it_writes(http: Http, config_maps: str) -> None:
    (await http.post(config_maps, config_map("a", {"x": "y"}))).ok(201)
    steps = [{"op": "test", "path": "/data/x", "value": "z"}, {"op": "replace", "path": "/data/x", "value": "w"}]
    refusal = (422, "Invalid", "the server rejected our request due to an error in our request", {})
    (await http.patch(f"{config_maps}/a", steps, "json")).refused(*refusal)
    steps[0]["value"] = "y"
    assert (await http.patch(f"{config_maps}/a", steps, "json")).ok(200)["data"] == {"x": "w"}
    gone = [{"op": "remove", "path": "/data/nope"}]
    (await http.patch(f"{config_maps}/a", gone, "json")).refused(*refusal)
    assert (await http.get(f"{config_maps}/a")).ok(200)["data"] == {"x": "w"}


@pytest.mark.check(58)
async def test_a_patch_cannot_rename(http: Http, config_maps: str) -> None:
    (await http.post(config_maps, config_map("a"))).ok(201)
    answer = await http.patch(f"{config_maps}/a", {"metadata": {"name": "b"}})
    text = "the name of the object (b) does not match the name on the URL (a)"
    answer.refused(400, "BadRequest", text)
    answer = await http.patch(f"{config_maps}/none", {"data": {}})
    answer.refused(404, "NotFound", 'configmaps "none" not found', {"name": "none", "kind": "configmaps"})


@pytest.mark.check(59)
async def test_null_in_a_merge_patch_removes(http: Http, config_maps: str, widgets: Custom) -> None:
    (await http.post(config_maps, config_map("a", {"x": "1", "y": "2"}))).ok(201)
    assert (await http.patch(f"{config_maps}/a", {"data": {"x": None, "z": "3"}})).ok(200)["data"] == {
        "y": "2",
        "z": "3",
    }
    assert "data" not in (await http.patch(f"{config_maps}/a", {"data": None})).ok(200)
    (await http.post(widgets.path, widgets.body("a", {"size": 1, "tags": ["a", "b"]}))).ok(201)
    changed = await http.patch(f"{widgets.path}/a", {"spec": {"size": None, "tags": ["c"]}})
    assert changed.ok(200)["spec"] == {"tags": ["c"]}


@pytest.mark.check(60)
async def test_a_strategic_patch_merges_lists_by_key(http: Http, deployments: str) -> None:
    (await http.post(deployments, deployment("a", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]))).ok(
        201
    )

    async def patched(spec: Obj) -> Obj:
        changed = await http.patch(f"{deployments}/a", {"spec": {"template": {"spec": spec}}}, "strategic")
        found: Obj = changed.ok(200)["spec"]["template"]["spec"]
        return found

    added = await patched({"containers": [{"name": "side", "image": "example/side:1"}]})
    assert [each["name"] for each in added["containers"]] == ["side", "main"]
    env = [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}]
    changed = await patched({"containers": [{"name": "main", "env": env}]})
    main = next(each for each in changed["containers"] if each["name"] == "main")
    assert main["env"] == [{"name": "C", "value": "3"}, {"name": "B", "value": "2"}]
    ordered = {"$setElementOrder/env": [{"name": "B"}, {"name": "C"}], "env": [{"name": "B", "value": "4"}]}
    changed = await patched({"containers": [{"name": "main"} | ordered]})
    main = next(each for each in changed["containers"] if each["name"] == "main")
    assert main["env"] == [{"name": "B", "value": "4"}, {"name": "C", "value": "3"}]
    removed = await patched({"containers": [{"name": "side", "$patch": "delete"}]})
    assert [each["name"] for each in removed["containers"]] == ["main"]
    replaced = await patched({"nodeSelector": {"a": "1"}})
    assert replaced["nodeSelector"] == {"a": "1"}
    replaced = await patched({"nodeSelector": {"$patch": "replace", "b": "2"}})
    assert replaced["nodeSelector"] == {"b": "2"}


@pytest.mark.check(60)
async def test_a_strategic_patch_works_on_sets_and_keeps_chosen_keys(http: Http, deployments: str) -> None:
    body = deployment("a")
    body["metadata"]["finalizers"] = ["x.io/a", "x.io/b"]
    (await http.post(deployments, body)).ok(201)
    patch: Obj = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"], "finalizers": ["x.io/c"]}}
    changed = (await http.patch(f"{deployments}/a", patch, "strategic")).ok(200)
    assert sorted(changed["metadata"]["finalizers"]) == ["x.io/b", "x.io/c"]
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    changed = (await http.patch(f"{deployments}/a", patch, "strategic")).ok(200)
    assert changed["spec"]["strategy"] == {"type": "Recreate"}
    (await http.patch(f"{deployments}/a", {"metadata": {"finalizers": None}})).ok(200)


@pytest.mark.check(61)
async def test_a_deployment_s_selector_stays(http: Http, deployments: str) -> None:
    (await http.post(deployments, deployment("a"))).ok(201)
    labels = {"app": "b"}
    patch = {"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}
    answer = await http.patch(f"{deployments}/a", patch)
    body = 'Invalid value: {"matchLabels":{"app":"b"}}: field is immutable'
    causes = [{"reason": "FieldValueInvalid", "message": body, "field": "spec.selector"}]
    details = {"name": "a", "group": "apps", "kind": "Deployment", "causes": causes}
    answer.refused(422, "Invalid", f'Deployment.apps "a" is invalid: spec.selector: {body}', details)
    wrong = deployment("b")
    wrong["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    body = 'Invalid value: {"app":"other"}: `selector` does not match template `labels`'
    causes = [{"reason": "FieldValueInvalid", "message": body, "field": "spec.template.metadata.labels"}]
    details = {"name": "b", "group": "apps", "kind": "Deployment", "causes": causes}
    text = f'Deployment.apps "b" is invalid: spec.template.metadata.labels: {body}'
    (await http.post(deployments, wrong)).refused(422, "Invalid", text, details)
