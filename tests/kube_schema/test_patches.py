"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regional.kube.objects import Obj
from regional.kube.schema.errors import PatchError
from regional.kube.schema.patches import json_patch, merge_patch, strategic_patch
from regional.kube.schema.types import schema_of
from tests.kube_schema.widgets import builtin

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "b"])),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.sampled_from("xyz"), below, max_size=3)),
    max_leaves=8,
)
modest = settings(max_examples=80, deadline=None)
DEPLOYMENT = schema_of(builtin("apps/v1", "Deployment"))
CONFIG_MAP = schema_of(builtin("v1", "ConfigMap"))


# --- JSON patch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/b", "value": 2}], {"a": [1, 2], "b": 2}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "replace", "path": "/a", "value": 0}], {"a": 0}),
        ([{"op": "move", "from": "/a", "path": "/c"}], {"c": [1, 2]}),
        ([{"op": "copy", "from": "/a/0", "path": "/c"}], {"a": [1, 2], "c": 1}),
        ([{"op": "test", "path": "/a/0", "value": 1.0}], {"a": [1, 2]}),
        ([{"op": "test", "path": "/none", "value": None}], {"a": [1, 2]}),
        ([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"a": [1, 2], "x/y~z": 1}),
        # What the RFC has otherwise, and the real server takes:
        ([{"op": "replace", "path": "/new", "value": 1}], {"a": [1, 2], "new": 1}),
        ([{"op": "replace", "path": "/a/-1", "value": 9}], {"a": [1, 9]}),
        ([{"op": "add", "path": "/a/-1", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "add", "path": "/a/01", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/b"}], {"a": [1, 2], "b": None}),
    ],
)
def test_operations(operations: list[Obj], expected: Obj) -> None:
    assert json_patch({"a": [1, 2]}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/0", "value": True},
        {"op": "test", "path": "/a", "value": [1]},
        {"op": "remove", "path": "/nope"},
        {"op": "add", "path": "/nope/x", "value": 1},
        {"op": "replace", "path": "/nope/x", "value": 1},
        {"op": "replace", "path": "/a/0/x", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "/a/5", "value": 1},
        {"op": "add", "path": "/a/-4", "value": 1},
        {"op": "replace", "path": "/a/-3", "value": 1},
        {"op": "replace", "path": "/a/-", "value": 1},
        {"op": "move", "from": "/a", "path": "/a/0"},
        {"op": "shout", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_an_operation_that_cannot_be_done_is_refused(operation: Any) -> None:
    before = {"a": [1, 2]}
    with pytest.raises(PatchError) as refused:
        json_patch(before, [operation])
    assert refused.value.status == 422
    assert refused.value.message == "the server rejected our request due to an error in our request"
    assert before == {"a": [1, 2]}


def test_what_is_no_operation_does_not_decode() -> None:
    with pytest.raises(PatchError) as refused:
        json_patch({}, ["not an operation"])
    assert (refused.value.status, refused.value.message) == (
        400,
        "error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp",
    )


def test_copies_cannot_double_a_document_without_end() -> None:
    double = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(60)]
    with pytest.raises(PatchError) as refused:
        json_patch({"a": {"text": "x" * 1000}}, double)
    assert refused.value.status == 422
    small = json_patch({"a": {"text": "x"}}, double[:5])
    assert len(str(small)) > 32


def test_too_many_operations_are_too_large() -> None:
    with pytest.raises(PatchError) as refused:
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    assert refused.value.status == 413


@modest
@given(st.dictionaries(st.sampled_from("xyz"), values, max_size=3), st.sampled_from("xyz"), values)
def test_adding_then_removing_a_new_field_is_no_change(doc: Obj, key: str, value: Any) -> None:
    doc.pop(key, None)
    added = json_patch(doc, [{"op": "add", "path": f"/{key}", "value": value}])
    assert added[key] == value
    assert json_patch(added, [{"op": "remove", "path": f"/{key}"}]) == doc


# --- merge patch -----------------------------------------------------------------------------------------------------


def test_null_deletes_and_lists_are_replaced() -> None:
    doc = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merge_patch(doc, {"a": {"b": None, "c": [2]}, "e": {"f": None}}) == {"a": {"c": [2]}, "d": 2, "e": {}}


@modest
@given(values, values)
def test_a_merge_patch_applied_twice_is_applied_once(doc: Any, patch: Any) -> None:
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) == once


@modest
@given(values)
def test_the_empty_patch_changes_no_object_and_inputs_stay(doc: Any) -> None:
    if isinstance(doc, dict):
        before = copy.deepcopy(doc)
        assert merge_patch(doc, {}) == before
        assert json_patch(doc, []) == before


# --- strategic merge patch -------------------------------------------------------------------------------------------


def deployment(containers: list[Obj], **spec: Any) -> Obj:
    return {"metadata": {"name": "w"}, "spec": {**spec, "template": {"spec": {"containers": containers}}}}


def containers_after(containers: list[Obj], patch: list[Obj], **more: Any) -> list[Obj]:
    change = {"spec": {"template": {"spec": {"containers": patch, **more}}}}
    result = strategic_patch(deployment(containers), change, DEPLOYMENT)
    found: list[Obj] = result["spec"]["template"]["spec"]["containers"]
    return found


def test_containers_merge_by_name() -> None:
    found = containers_after([{"name": "a", "image": "1", "args": ["x"]}], [{"name": "a", "image": "2"}])
    assert found == [{"name": "a", "image": "2", "args": ["x"]}]


def test_a_new_container_is_added_and_one_is_deleted() -> None:
    found = containers_after(
        [{"name": "a"}, {"name": "b"}], [{"name": "c", "image": "i"}, {"name": "a", "$patch": "delete"}]
    )
    assert sorted(item["name"] for item in found) == ["b", "c"]


def test_replace_takes_the_list_as_it_is() -> None:
    assert containers_after([{"name": "a"}], [{"$patch": "replace"}, {"name": "z"}]) == [{"name": "z"}]


def test_the_order_directive_orders_what_it_names() -> None:
    order = {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}
    found = containers_after([{"name": "a"}, {"name": "b"}], [{"name": "c"}], **order)
    assert [item["name"] for item in found].index("c") < [item["name"] for item in found].index("a")


def test_an_order_that_contradicts_the_patch_is_refused() -> None:
    order = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    with pytest.raises(PatchError):
        containers_after([], [{"name": "a"}, {"name": "b"}], **order)


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(PatchError, match="merge key: name"):
        containers_after([{"name": "a"}], [{"image": "i"}])


UDP = {"containerPort": 53, "protocol": "UDP", "name": "dns"}
TCP = {"containerPort": 53, "protocol": "TCP", "name": "dns-tcp"}
METRICS = {"containerPort": 9153, "protocol": "TCP", "name": "metrics"}


def ports_after(ports: list[Obj], patch: list[Obj], **more: Any) -> list[Obj]:
    found: list[Obj] = containers_after([{"name": "a", "ports": ports}], [{"name": "a", "ports": patch, **more}])
    left: list[Obj] = found[0]["ports"]
    return left


def test_items_with_the_same_key_are_all_kept() -> None:
    """A port over UDP and TCP is two items, and the key is the port alone."""
    renamed = {"containerPort": 9153, "name": "m"}
    assert ports_after([UDP, TCP, METRICS], [renamed]) == [UDP, TCP, METRICS | renamed]
    assert ports_after([UDP, TCP], [METRICS]) == [METRICS, UDP, TCP]
    order = {"$setElementOrder/ports": [{"containerPort": port} for port in (9153, 53, 53)]}
    assert ports_after([UDP, TCP], [METRICS], **order) == [METRICS, UDP, TCP]
    assert ports_after([UDP, TCP, METRICS], [{"containerPort": 53, "$patch": "delete"}]) == [METRICS]


def test_a_list_that_is_new_enters_as_it_is() -> None:
    found = containers_after([{"name": "a"}], [{"name": "a", "ports": [UDP, TCP]}, {"name": "b", "ports": [UDP, TCP]}])
    assert [item["ports"] for item in found] == [[UDP, TCP], [UDP, TCP]]


def test_retain_keys_drops_the_other_strategy() -> None:
    doc = deployment([], strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}})
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_patch(doc, patch, DEPLOYMENT)["spec"]["strategy"] == {"type": "Recreate"}


def test_finalizers_are_a_set_with_deletion() -> None:
    doc = {"metadata": {"finalizers": ["a", "b"]}}
    patch = {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert sorted(strategic_patch(doc, patch, CONFIG_MAP)["metadata"]["finalizers"]) == ["b", "c"]


def test_lists_without_a_strategy_are_replaced() -> None:
    found = containers_after([{"name": "a", "args": ["1", "2"]}], [{"name": "a", "args": ["3"]}])
    assert found[0]["args"] == ["3"]


def test_map_directives() -> None:
    doc = {"data": {"a": "1", "b": "2"}}
    assert strategic_patch(doc, {"data": {"$patch": "replace", "c": "3"}}, CONFIG_MAP) == {"data": {"c": "3"}}
    assert strategic_patch(doc, {"data": {"a": None}}, CONFIG_MAP) == {"data": {"b": "2"}}
    assert doc == {"data": {"a": "1", "b": "2"}}


def test_a_schema_reference_in_a_crd_is_no_directive() -> None:
    schema = schema_of(builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
    patch = {"spec": {"x": {"$ref": "y", "$schema": "z"}}}
    assert strategic_patch({}, patch, schema) == patch
