"""Server-side apply: who owns what, and what happens when they change their mind."""

from __future__ import annotations

import copy
import json

import pytest

from regional.kube.schema.apply import manager_of, server_side_apply, track_update, unchanged
from regional.kube.schema.errors import ApplyConflict, Refusal
from regional.kube.schema.patches import json_patch
from regional.kube.schema.types import schema_of
from tests.kube_schema.widgets import LATER, NOW, apply, builtin, owners, update, widget

CONFIG_MAP = schema_of(builtin("v1", "ConfigMap"))
DEPLOYMENT = schema_of(builtin("apps/v1", "Deployment"))


def config_map(**data: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "s1"},
        **({"data": data} if data else {}),
    }


def test_an_entry_looks_as_clients_expect() -> None:
    made = apply(None, widget({"size": 1, "tags": ["x"], "conds": [{"type": "A", "v": "1"}]}), "m1")
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "m1",
            "operation": "Apply",
            "apiVersion": "demo.io/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:spec": {
                    "f:conds": {'k:{"type":"A"}': {".": {}, "f:type": {}, "f:v": {}}},
                    "f:size": {},
                    "f:tags": {'v:"x"': {}},
                }
            },
        }
    ]


def test_applying_the_same_again_changes_nothing_not_even_the_time() -> None:
    config = widget({"size": 1, "labels": {"a": "b"}})
    made = apply(None, config, "m1")
    assert apply(made, config, "m1", now=LATER) == made


def test_a_dropped_field_goes_with_its_last_owner() -> None:
    live = apply(None, widget({"labels": {"a": "1", "b": "2"}}), "m1")
    live = apply(live, widget({"labels": {"b": "2"}}), "m2")
    live = apply(live, widget({"labels": {"a": "1"}}), "m1")
    assert live["spec"]["labels"] == {"a": "1", "b": "2"}, "m2 still wants b"
    live = apply(live, widget({}), "m2")
    assert live["spec"]["labels"] == {"a": "1"}


def test_a_struct_emptied_by_its_owner_goes_too() -> None:
    live = apply(None, widget({"size": 1, "nested": {"a": "x"}}), "m1")
    assert apply(live, widget({"size": 1}), "m1")["spec"] == {"size": 1}


def test_two_managers_share_a_keyed_list() -> None:
    live = apply(None, widget({"conds": [{"type": "A"}, {"type": "C"}]}), "m1")
    live = apply(live, widget({"conds": [{"type": "B"}, {"type": "C"}, {"type": "D"}]}), "m2")
    assert [item["type"] for item in live["spec"]["conds"]] == ["A", "B", "C", "D"]
    live = apply(live, widget({"conds": [{"type": "D"}]}), "m2")
    assert [item["type"] for item in live["spec"]["conds"]] == ["A", "C", "D"], "C is still m1's, B is nobody's"


def test_set_items_belong_to_whoever_put_them_there() -> None:
    live = apply(None, widget({"tags": ["a", "b"]}), "m1")
    live = apply(live, widget({"tags": ["b", "c"]}), "m2")
    assert sorted(live["spec"]["tags"]) == ["a", "b", "c"]
    live = apply(live, widget({"tags": []}), "m1")
    assert sorted(live["spec"]["tags"]) == ["b", "c"]


def test_a_missing_key_takes_its_default_and_is_not_owned() -> None:
    live = apply(None, widget({"ports": [{"port": 80}]}), "m1")
    assert owners(live)["m1/Apply"]["f:spec"]["f:ports"] == {
        'k:{"port":80,"proto":"TCP"}': {".": {}, "f:port": {}},
    }
    live["spec"]["ports"][0]["proto"] = "TCP"
    live = apply(live, widget({"ports": [{"port": 80, "proto": "TCP", "note": "x"}]}), "m2")
    assert live["spec"]["ports"] == [{"port": 80, "proto": "TCP", "note": "x"}]


def test_a_container_port_with_and_without_protocol_is_one_port() -> None:
    def deployment(port: dict[str, object]) -> dict[str, object]:
        container = {"name": "c", "image": "i", "ports": [port]}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }

    live = apply(None, deployment({"containerPort": 80}), "m1", schema=DEPLOYMENT)
    live = apply(live, deployment({"containerPort": 80, "protocol": "TCP"}), "m2", schema=DEPLOYMENT)
    ports = live["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert ports == [{"containerPort": 80, "protocol": "TCP"}]
    address = 'k:{"containerPort":80,"protocol":"TCP"}'
    held = owners(live)["m1/Apply"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"c"}']["f:ports"]
    assert held == {address: {".": {}, "f:containerPort": {}}}


def test_atomic_values_are_owned_whole() -> None:
    live = apply(None, widget({"args": ["a"], "whole": {"k": "v"}}), "m1")
    assert owners(live)["m1/Apply"]["f:spec"] == {"f:args": {}, "f:whole": {}}
    with pytest.raises(ApplyConflict):
        apply(live, widget({"whole": {"other": "v"}}), "m2")


def test_equal_values_are_shared_without_conflict() -> None:
    live = apply(None, widget({"size": 3}), "m1")
    live = apply(live, widget({"size": 3}), "m2")
    assert set(owners(live)) == {"m1/Apply", "m2/Apply"}


def test_force_takes_the_field_from_its_owner() -> None:
    live = apply(None, widget({"size": 1, "name": "n"}), "m1")
    live = apply(live, widget({"size": 2}), "m2", force=True)
    assert live["spec"] == {"size": 2, "name": "n"}
    assert owners(live)["m1/Apply"] == {"f:spec": {"f:name": {}}}


def test_an_update_steals_what_it_changes_and_is_named_with_its_version() -> None:
    live = apply(None, config_map(a="1", b="2"), "alice", schema=CONFIG_MAP)
    new = copy.deepcopy(live) | {"data": {"a": "changed", "b": "2"}}
    live = update(live, new, "upd", schema=CONFIG_MAP)
    assert owners(live) == {"alice/Apply": {"f:data": {"f:b": {}}}, "upd/Update": {"f:data": {"f:a": {}}}}
    with pytest.raises(ApplyConflict, match=r'conflict with "upd" using v1: \.data\.a'):
        apply(live, config_map(a="1", b="2"), "alice", schema=CONFIG_MAP)


def test_a_create_owns_maps_it_brings_but_not_the_structs_that_are_always_there() -> None:
    obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "labels": {"app": "w"}},
        "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
    }
    made = track_update(None, obj, "kubectl-create", schema=DEPLOYMENT, api_version="apps/v1", now=NOW)
    assert owners(made)["kubectl-create/Update"] == {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}}},
    }


def test_the_first_apply_meets_what_was_there_before() -> None:
    live = config_map(a="1")
    with pytest.raises(ApplyConflict) as refused:
        apply(live, config_map(a="2"), "m", schema=CONFIG_MAP)
    assert refused.value.causes[0].message == 'conflict with "before-first-apply" using v1'
    taken = apply(live, config_map(a="1"), "m", schema=CONFIG_MAP)
    assert set(owners(taken)) == {"m/Apply", "before-first-apply/Update"}


def test_nothing_is_recorded_after_a_reset_until_somebody_applies() -> None:
    live = update(None, config_map(a="1"), "creator", schema=CONFIG_MAP)
    reset = copy.deepcopy(live)
    reset["metadata"]["managedFields"] = [{}]
    live = update(live, reset, "x", schema=CONFIG_MAP)
    assert "managedFields" not in live["metadata"]
    changed = update(live, live | {"data": {"a": "2"}}, "x", schema=CONFIG_MAP)
    assert "managedFields" not in changed["metadata"]


def test_an_update_that_leaves_managed_fields_out_keeps_them() -> None:
    live = update(None, config_map(a="1"), "creator", schema=CONFIG_MAP)
    assert update(live, config_map(a="1"), "other", schema=CONFIG_MAP) == live


def test_the_status_manager_has_an_entry_of_its_own() -> None:
    live = apply(None, widget({"size": 1}), "m1")
    status = widget({"size": 99}) | {"status": {"phase": "Ready"}}
    live = apply(live, status, "ctrl", subresource="status")
    assert live["spec"] == {"size": 1}
    assert owners(live)["ctrl/Apply/status"] == {"f:status": {"f:phase": {}}}
    live = apply(live, widget({"size": 1}) | {"status": {"phase": "Lost"}}, "m1")
    assert live["status"] == {"phase": "Ready"}, "the main path does not hear of status"


def test_a_conflict_names_the_subresource() -> None:
    live = apply(None, widget({"size": 1}), "m1")
    live = update(live, copy.deepcopy(live) | {"status": {"phase": "Ready"}}, "ctrl", subresource="status")
    with pytest.raises(ApplyConflict) as refused:
        apply(live, widget() | {"status": {"phase": "Lost"}}, "other", subresource="status")
    assert refused.value.causes[0].message == 'conflict with "ctrl" with subresource "status" using demo.io/v1'


def test_old_update_managers_are_folded_together() -> None:
    live = None
    for index in range(12):
        new = widget({"labels": {f"k{i:02}": "x" for i in range(index + 1)}}, uid="u")
        live = update(live, new, f"u{index:02}", now=f"2026-11-15T20:06:{index:02}Z")
    assert live is not None
    names = [entry["manager"] for entry in live["metadata"]["managedFields"]]
    assert names == ["ancient-changes", *(f"u{index:02}" for index in range(3, 12))]
    assert set(owners(live)["ancient-changes/Update"]["f:spec"]["f:labels"]) == {".", "f:k00", "f:k01", "f:k02"}


def test_entries_of_unserved_versions_are_dropped() -> None:
    live = apply(None, widget({"size": 1}), "m1")
    live["metadata"]["managedFields"][0]["apiVersion"] = "demo.io/v0"
    live = apply(live, widget({"name": "n"}), "m2", served=("demo.io/v1",))
    assert "m1/Apply" not in owners(live)


def test_times_alone_are_no_change() -> None:
    live = apply(None, widget({"size": 1}), "m1")
    other = copy.deepcopy(live)
    other["metadata"]["managedFields"][0]["time"] = LATER
    assert unchanged(live, other)
    assert not unchanged(live, other | {"spec": {"size": 2}})


@pytest.mark.parametrize(
    ("given", "agent", "name"),
    [("m", "x/1", "m"), ("", "kubectl/v1.35 (linux)", "kubectl"), ("", "a\nb/1", "ab"), ("", "x" * 200, "x" * 128)],
)
def test_the_manager_is_the_user_agent_unless_named(given: str, agent: str, name: str) -> None:
    assert manager_of(given, agent) == name


def test_kubectl_moves_from_client_side_to_server_side_apply() -> None:
    """The four requests of `kubectl apply --server-side` on an object that `kubectl apply` made."""
    config = config_map(a="1", b="2")
    annotated = copy.deepcopy(config)
    key = "kubectl.kubernetes.io/last-applied-configuration"
    annotated["metadata"]["annotations"] = {key: json.dumps(config) + "\n"}  # type: ignore[index]
    live = update(None, annotated, "kubectl-client-side-apply", schema=CONFIG_MAP)

    changed = config_map(a="1", b="3")
    live = apply(live, changed, "kubectl", schema=CONFIG_MAP)
    assert live["data"] == {"a": "1", "b": "3"}, "b still had the value client-side apply gave it"
    assert json.loads(live["metadata"]["annotations"][key])["data"] == {"a": "1", "b": "3"}

    last = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "s1"}}
    last["metadata"]["annotations"] = {key: live["metadata"]["annotations"][key]}  # type: ignore[index]
    live = apply(live, last, "kubectl-last-applied", schema=CONFIG_MAP)

    entries = copy.deepcopy(live["metadata"]["managedFields"])
    client = next(entry for entry in entries if entry["manager"] == "kubectl-client-side-apply")
    entries.remove(client)
    mine = next(entry for entry in entries if entry["manager"] == "kubectl")
    mine["fieldsV1"] = {**client["fieldsV1"], **mine["fieldsV1"]}
    patched = json_patch(live, [{"op": "replace", "path": "/metadata/managedFields", "value": entries}])
    live = update(live, patched, "kubectl", schema=CONFIG_MAP)
    assert "kubectl-client-side-apply/Update" not in owners(live)

    live = apply(live, config_map(a="1"), "kubectl", schema=CONFIG_MAP)
    assert live["data"] == {"a": "1"}, "what only client-side apply had is now removable"


def test_kubectl_does_not_take_what_somebody_changed_since() -> None:
    config = config_map(a="1")
    annotated = copy.deepcopy(config)
    key = "kubectl.kubernetes.io/last-applied-configuration"
    annotated["metadata"]["annotations"] = {key: json.dumps(config)}  # type: ignore[index]
    live = update(None, annotated, "kubectl-client-side-apply", schema=CONFIG_MAP)
    live = update(live, copy.deepcopy(live) | {"data": {"a": "other"}}, "else", schema=CONFIG_MAP)
    with pytest.raises(ApplyConflict):
        apply(live, config_map(a="2"), "kubectl", schema=CONFIG_MAP)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"bogus": 1}, ".spec.bogus: field not declared in schema"),
        ({"size": "x"}, ".spec.size: expected numeric (int or float), got string"),
        ({"name": 5}, ".spec.name: expected string, got &value.valueUnstructured{Value:5}"),
        ({"nested": ["x"]}, ".spec.nested: expected map, got &{[x]}"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        ({"ports": [{"port": 1}, {"port": 1, "proto": "TCP"}]}, ".spec.ports: duplicate entries for key "),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_with_its_place(spec: dict[str, object], problem: str) -> None:
    with pytest.raises(Refusal) as refused:
        apply(None, widget(spec), "m1")
    prefix = "failed to create typed patch object (s1/a; demo.io/v1, Kind=Widget): "
    assert refused.value.message.startswith(prefix + problem)


def test_managed_fields_in_the_configuration_are_refused() -> None:
    with pytest.raises(Refusal, match=r"metadata\.managedFields must be nil") as refused:
        server_side_apply(
            None,
            widget({}, managedFields=[{}]),
            "m",
            schema=CONFIG_MAP,
            api_version="v1",
            now=NOW,
        )
    assert refused.value.status == 400
