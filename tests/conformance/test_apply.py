"""Server-side apply: who owns what, who may take it, what goes when nobody wants it."""

from __future__ import annotations

from typing import Any

import pytest

from .objects import Custom, config_map, deployment
from .wire import Answer, Http, Obj, Shell

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def owners(obj: Obj) -> dict[str, Obj]:
    """Manager → its fields, for objects on which each manager acts in one way."""
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def entries(obj: Obj) -> list[Obj]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in obj["metadata"]["managedFields"]]


def applied(manager: str, fields: Obj, api_version: str = "v1", **more: Any) -> Obj:
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    } | more


def conflict(answer: Answer, message: str, *causes: tuple[str, str]) -> None:
    """The whole refusal; causes are (who, field)."""
    listed = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field} for who, field in causes
    ]
    answer.refused(409, "Conflict", message, {"causes": listed})


@pytest.mark.check(99)
async def test_applying_what_is_not_there_creates_it(http: Http, config_maps: str, widgets: Custom) -> None:
    answer = await http.apply(f"{config_maps}/x", config_map("x", {"a": "1"}), "alice")
    assert entries(answer.ok(201)) == [applied("alice", {"f:data": {"f:a": {}}})]
    again = await http.apply(f"{config_maps}/x", config_map("x", {"a": "1"}), "alice")
    assert again.ok(200) == answer.body
    made = (await http.apply(f"{widgets.path}/w", widgets.body("w", {"size": 1}), "alice")).ok(201)
    assert entries(made) == [applied("alice", {"f:spec": {"f:size": {}}}, widgets.api_version)]
    assert made["metadata"]["generation"] == 1


@pytest.mark.check(100)
async def test_what_others_own_is_not_taken(http: Http, config_maps: str) -> None:
    path = f"{config_maps}/x"
    before = (await http.apply(path, config_map("x", {"a": "1", "b": "2"}), "alice")).ok(201)
    conflict(
        await http.apply(path, config_map("x", {"a": "9"}), "bob"),
        'Apply failed with 1 conflict: conflict with "alice": .data.a',
        ('"alice"', ".data.a"),
    )
    conflict(
        await http.apply(path, config_map("x", {"a": "9", "b": "8"}), "bob"),
        'Apply failed with 2 conflicts: conflicts with "alice":\n- .data.a\n- .data.b',
        ('"alice"', ".data.a"),
        ('"alice"', ".data.b"),
    )
    assert (await http.get(path)).ok(200) == before


@pytest.mark.check(101)
async def test_force_takes_it(http: Http, config_maps: str) -> None:
    path = f"{config_maps}/x"
    (await http.apply(path, config_map("x", {"a": "1", "b": "2"}), "alice")).ok(201)
    taken = (await http.apply(path, config_map("x", {"a": "9"}), "bob", "&force=true")).ok(200)
    assert taken["data"] == {"a": "9", "b": "2"}
    assert owners(taken) == {"alice": {"f:data": {"f:b": {}}}, "bob": {"f:data": {"f:a": {}}}}


@pytest.mark.check(102)
async def test_what_nobody_wants_any_more_goes(http: Http, config_maps: str) -> None:
    path = f"{config_maps}/x"
    (await http.apply(path, config_map("x", {"mine": "1", "shared": "1"}), "alice")).ok(201)
    (await http.apply(path, config_map("x", {"shared": "1"}), "bob")).ok(200)
    dropped = (await http.apply(path, config_map("x", {"new": "1"}), "alice")).ok(200)
    assert dropped["data"] == {"shared": "1", "new": "1"}
    assert owners(dropped) == {"alice": {"f:data": {"f:new": {}}}, "bob": {"f:data": {"f:shared": {}}}}
    alone = (await http.apply(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, "bob")).ok()
    assert alone["data"] == {"new": "1"}
    assert list(owners(alone)) == ["alice"]


@pytest.mark.check(103)
async def test_equal_values_are_shared(http: Http, config_maps: str) -> None:
    path = f"{config_maps}/x"
    (await http.apply(path, config_map("x", {"a": "1"}), "alice")).ok(201)
    shared = (await http.apply(path, config_map("x", {"a": "1"}), "bob")).ok(200)
    assert owners(shared) == {"alice": {"f:data": {"f:a": {}}}, "bob": {"f:data": {"f:a": {}}}}
    # Who changed nothing has no time, and so comes first.
    assert [entry["manager"] for entry in shared["metadata"]["managedFields"]] == ["bob", "alice"]
    assert "time" not in shared["metadata"]["managedFields"][0]
    conflict(
        await http.apply(path, config_map("x", {"a": "2"}), "alice"),
        'Apply failed with 1 conflict: conflict with "bob": .data.a',
        ('"bob"', ".data.a"),
    )


@pytest.mark.check(104)
async def test_a_keyed_list_has_many_managers(http: Http, widgets: Custom) -> None:
    path = f"{widgets.path}/w"

    def conds(*items: Obj) -> Obj:
        return widgets.body("w", {"conds": list(items)})

    (await http.apply(path, conds({"type": "A", "v": "1"}, {"type": "C", "v": "1"}), "one")).ok(201)
    both = (await http.apply(path, conds({"type": "B", "v": "2"}, {"type": "C", "v": "1"}), "two")).ok(200)
    assert [item["type"] for item in both["spec"]["conds"]] == ["A", "B", "C"]
    item = {".": {}, "f:type": {}, "f:v": {}}
    assert owners(both) == {
        "one": {"f:spec": {"f:conds": {'k:{"type":"A"}': item, 'k:{"type":"C"}': item}}},
        "two": {"f:spec": {"f:conds": {'k:{"type":"B"}': item, 'k:{"type":"C"}': item}}},
    }
    conflict(
        await http.apply(path, conds({"type": "A", "v": "9"}), "two"),
        'Apply failed with 1 conflict: conflict with "one": .spec.conds[type="A"].v',
        ('"one"', '.spec.conds[type="A"].v'),
    )
    without = (await http.apply(path, conds({"type": "C", "v": "1"}), "one")).ok(200)
    assert [item["type"] for item in without["spec"]["conds"]] == ["B", "C"]


@pytest.mark.check(105)
async def test_a_set_is_shared_item_by_item(http: Http, widgets: Custom) -> None:
    path = f"{widgets.path}/w"
    (await http.apply(path, widgets.body("w", {"tags": ["x", "y"]}), "one")).ok(201)
    both = (await http.apply(path, widgets.body("w", {"tags": ["y", "z"]}), "two")).ok(200)
    assert both["spec"]["tags"] == ["x", "y", "z"]
    assert owners(both)["two"] == {"f:spec": {"f:tags": {'v:"y"': {}, 'v:"z"': {}}}}
    left = (await http.apply(path, widgets.body("w", {"tags": []}), "one")).ok(200)
    assert left["spec"]["tags"] == ["y", "z"]


@pytest.mark.check(106)
async def test_a_port_is_the_same_with_and_without_its_protocol(http: Http, deployments: str) -> None:
    path = f"{deployments}/web"
    made = (await http.apply(path, deployment("web", ports=[{"containerPort": 80}]), "one")).ok(201)
    ports = {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}
    containers = owners(made)["one"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert containers['k:{"name":"main"}']["f:ports"] == ports
    named = deployment("web", ports=[{"containerPort": 80, "protocol": "TCP", "name": "http"}])
    both = (await http.apply(path, named, "two")).ok(200)
    assert both["spec"]["template"]["spec"]["containers"][0]["ports"] == [
        {"name": "http", "containerPort": 80, "protocol": "TCP"}
    ]
    udp = deployment("web", ports=[{"containerPort": 80, "protocol": "UDP"}])
    three = (await http.apply(path, udp, "three")).ok(200)
    assert len(three["spec"]["template"]["spec"]["containers"][0]["ports"]) == 2


@pytest.mark.check(107)
async def test_an_update_takes_without_asking(http: Http, config_maps: str) -> None:
    path = f"{config_maps}/x"
    (await http.apply(path, config_map("x", {"a": "1", "b": "1"}), "alice")).ok(201)
    updated = (await http.patch(f"{path}?fieldManager=upd", {"data": {"a": "2"}})).ok(200)
    assert owners(updated) == {"alice": {"f:data": {"f:b": {}}}, "upd": {"f:data": {"f:a": {}}}}
    conflict(
        await http.apply(path, config_map("x", {"a": "1", "b": "1"}), "alice"),
        'Apply failed with 1 conflict: conflict with "upd" using v1: .data.a',
        ('"upd" using v1', ".data.a"),
    )


@pytest.mark.check(108)
async def test_status_has_managers_of_its_own(http: Http, widgets: Custom) -> None:
    path = f"{widgets.path}/w"
    (await http.apply(path, widgets.body("w", {"size": 1}, status={"phase": "ignored"}), "one")).ok(201)
    body = widgets.body("w", {"size": 7}, status={"phase": "Ready"})
    told = (await http.apply(f"{path}/status", body, "one")).ok(200)
    assert (told["spec"], told["status"]) == ({"size": 1}, {"phase": "Ready"})
    assert entries(told) == [
        applied("one", {"f:spec": {"f:size": {}}}, widgets.api_version),
        applied("one", {"f:status": {"f:phase": {}}}, widgets.api_version, subresource="status"),
    ]
    (await http.patch(f"{path}/status?fieldManager=ctrl", {"status": {"phase": "Busy"}})).ok(200)
    who = f'"ctrl" with subresource "status" using {widgets.api_version}'
    conflict(
        await http.apply(f"{path}/status", body, "one"),
        f"Apply failed with 1 conflict: conflict with {who}: .status.phase",
        (who, ".status.phase"),
    )
    missing = await http.apply(f"{widgets.path}/none/status", widgets.body("none", {}), "one")
    details = {"name": "none", "group": widgets.group, "kind": "widgets"}
    missing.refused(404, "NotFound", f'{widgets.resource} "none" not found', details)


@pytest.mark.check(109)
async def test_an_apply_says_who_applies(http: Http, config_maps: str) -> None:
    answer = await http.patch(f"{config_maps}/x", config_map("x"), "apply")
    body = "Required value: is required for apply patch"
    cause = {"reason": "FieldValueRequired", "message": body, "field": "fieldManager"}
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]}
    message = f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {body}'
    answer.refused(422, "Invalid", message, details)
    body = "Forbidden: may not be specified for non-apply patch"
    cause = {"reason": "FieldValueForbidden", "message": body, "field": "force"}
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]}
    answer = await http.patch(f"{config_maps}/x?force=true", {})
    answer.refused(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: force: {body}', details)


@pytest.mark.check(109)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"apiVersion": "v2"}, "invalid object type: /v2, Kind=ConfigMap"),
        ({"kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"metadata": {"name": "x", "managedFields": []}}, "metadata.managedFields must be nil"),
        (
            {"metadata": {}},
            "the name of the object (x based on URL) was undeterminable: name must be provided",
        ),
        ({"metadata": {"name": "y"}}, "the name of the object (y) does not match the name on the URL (x)"),
    ],
)
async def test_a_configuration_is_of_what_it_is_applied_to(
    http: Http, config_maps: str, change: Obj, message: str
) -> None:
    answer = await http.apply(f"{config_maps}/x", config_map("x") | change, "one")
    answer.refused(400, "BadRequest", message)


@pytest.mark.check(109)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bogus": 1}, ".bogus: field not declared in schema"),
        ({"data": {"a": 1}}, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
    ],
)
async def test_a_configuration_fits_its_schema(http: Http, config_maps: str, change: Obj, why: str) -> None:
    answer = await http.apply(f"{config_maps}/x", config_map("x") | change, "one")
    # The real server calls it its own fault; ours, the client's.
    assert answer.status in (422, 500)
    assert answer.message == f"failed to create typed patch object (/x; /v1, Kind=ConfigMap): {why}"


@pytest.mark.check(110)
async def test_applying_the_same_again_changes_nothing(http: Http, config_maps: str, deployments: str) -> None:
    for path, body in ((f"{config_maps}/x", config_map("x", {"a": "1"})), (f"{deployments}/d", deployment("d"))):
        first = (await http.apply(path, body, "one", "&fieldValidation=Strict")).ok(201)
        second = (await http.apply(path, body, "one", "&fieldValidation=Strict")).ok(200)
        assert second["spec" if "spec" in second else "data"] == first["spec" if "spec" in first else "data"]
        mine = [entry for entry in second["metadata"]["managedFields"] if entry["manager"] == "one"]
        assert mine == first["metadata"]["managedFields"]
    again = (await http.apply(f"{config_maps}/x", config_map("x", {"a": "1"}), "one")).ok(200)
    assert (
        again["metadata"]["resourceVersion"] == (await http.get(f"{config_maps}/x")).body["metadata"]["resourceVersion"]
    )


@pytest.mark.check(111)
async def test_managed_fields_can_be_reset(http: Http, config_maps: str) -> None:
    path = f"{config_maps}/x"
    (await http.apply(path, config_map("x", {"a": "1"}), "alice")).ok(201)
    reset = (await http.patch(path, {"metadata": {"managedFields": [{}]}})).ok(200)
    assert "managedFields" not in reset["metadata"]
    untracked = (await http.patch(f"{path}?fieldManager=upd", {"data": {"b": "2"}})).ok(200)
    assert "managedFields" not in untracked["metadata"]
    back = (await http.apply(path, config_map("x", {"c": "3"}), "bob")).ok(200)
    assert owners(back) == {
        "bob": {"f:data": {"f:c": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
    }
    conflict(
        await http.apply(path, config_map("x", {"a": "9", "c": "3"}), "bob"),
        'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a',
        ('"before-first-apply" using v1', ".data.a"),
    )


@pytest.mark.check(112)
async def test_kubectl_goes_over_to_server_side_apply(http: Http, config_maps: str, kubectl: Shell) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: '%s'}\n"
    assert "configmap/x created" in await kubectl("apply -f -", stdin=manifest % 1)
    assert "configmap/x serverside-applied" in await kubectl("apply --server-side -f -", stdin=manifest % 2)
    moved = (await http.get(f"{config_maps}/x")).ok(200)
    assert moved["data"] == {"a": "2"}
    assert owners(moved)["kubectl"] == {"f:data": {"f:a": {}}}
    assert "kubectl-client-side-apply" not in owners(moved)
    assert '"a":"2"' in moved["metadata"]["annotations"][LAST_APPLIED]
    assert "configmap/x serverside-applied" in await kubectl("apply --server-side -f -", stdin=manifest % 3)
    assert "configmap/x configured" in await kubectl("apply -f -", stdin=manifest % 4)
    assert (await http.get(f"{config_maps}/x")).ok(200)["data"] == {"a": "4"}


@pytest.mark.check(102)
async def test_null_says_nothing_about_a_list_that_merges(http: Http, widgets: Custom) -> None:
    path = f"{widgets.path}/w"
    (await http.apply(path, widgets.body("w", {"conds": [{"type": "A", "v": "1"}]}), "one")).ok(201)
    kept = (await http.apply(path, widgets.body("w", {"conds": None}), "two")).ok(200)
    assert kept["spec"]["conds"] == [{"type": "A", "v": "1"}]
