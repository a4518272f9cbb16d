"""The exact bodies of apply conflicts, which clients print and parse."""

from __future__ import annotations

import pytest

from regional.kube.objects import Obj
from regional.kube.schema.errors import ApplyConflict
from regional.kube.schema.types import schema_of
from tests.kube_schema.widgets import apply, builtin, update, widget

CONFIG_MAP = schema_of(builtin("v1", "ConfigMap"))


def config_map(**data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "s1"}, "data": data}


def conflict(live: Obj, config: Obj, manager: str = "bob") -> ApplyConflict:
    schema = CONFIG_MAP if config["kind"] == "ConfigMap" else None
    with pytest.raises(ApplyConflict) as refused:
        apply(live, config, manager, **({"schema": schema} if schema else {}))
    return refused.value


def test_two_conflicts_with_one_manager() -> None:
    live = apply(None, config_map(a="1", b="2"), "alice", schema=CONFIG_MAP)
    refused = conflict(live, config_map(a="x", b="y"))
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == 'Apply failed with 2 conflicts: conflicts with "alice":\n- .data.a\n- .data.b'
    assert refused.details() == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".data.b"},
        ]
    }


def test_one_conflict_is_told_on_one_line() -> None:
    live = apply(None, config_map(a="1"), "alice", schema=CONFIG_MAP)
    assert conflict(live, config_map(a="x")).message == 'Apply failed with 1 conflict: conflict with "alice": .data.a'


def test_several_managers_are_listed_in_order() -> None:
    live = apply(None, config_map(b="1"), "zoe", schema=CONFIG_MAP)
    live = update(live, {**live, "data": {"a": "1", "b": "1"}}, "adam", schema=CONFIG_MAP)
    assert conflict(live, config_map(a="x", b="x")).message == (
        'Apply failed with 2 conflicts: conflicts with "adam" using v1:\n- .data.a\nconflicts with "zoe":\n- .data.b'
    )


def test_paths_name_list_items_by_their_keys() -> None:
    live = apply(None, widget({"conds": [{"type": "A", "v": "1"}], "ports": [{"port": 80, "note": "x"}]}), "m1")
    refused = conflict(live, widget({"conds": [{"type": "A", "v": "2"}], "ports": [{"port": 80, "note": "y"}]}))
    assert [cause.field for cause in refused.causes] == [
        '.spec.conds[type="A"].v',
        '.spec.ports[port=80,proto="TCP"].note',
    ]
