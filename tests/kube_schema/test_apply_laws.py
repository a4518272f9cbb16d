"""Laws of ownership that hold for any configuration, any managers, any order."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from regional.kube.objects import Obj
from regional.kube.schema.errors import ApplyConflict
from regional.kube.schema.fieldset import difference, intersection, members, union
from regional.kube.schema.typed import compare
from tests.kube_schema.widgets import LATER, SCHEMA, apply, owners, update, widget

letters = st.sampled_from("abc")
small = st.integers(0, 2)


def keyed(keys: dict[str, st.SearchStrategy[object]], rest: dict[str, st.SearchStrategy[object]]) -> object:
    items = st.fixed_dictionaries(keys, optional=rest)
    return st.lists(items, max_size=3, unique_by=lambda item: tuple(str(item.get(key, "TCP")) for key in keys))


specs: st.SearchStrategy[Obj] = st.fixed_dictionaries(
    {},
    optional={
        "size": small,
        "name": letters,
        "tags": st.lists(letters, unique=True, max_size=3),
        "conds": keyed({"type": letters}, {"v": letters}),
        "ports": keyed({"port": small}, {"note": letters}),
        "labels": st.dictionaries(letters, letters, max_size=3),
        "nested": st.fixed_dictionaries({}, optional={"a": letters, "b": letters}),
        "args": st.lists(letters, max_size=2),
        "whole": st.dictionaries(letters, letters, max_size=2),
        "free": st.dictionaries(letters, st.one_of(small, st.dictionaries(letters, small, max_size=2)), max_size=2),
    },
)
steps = st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), st.booleans(), specs), min_size=1, max_size=5)
modest = settings(max_examples=60, deadline=None)


def history(writes: list[tuple[str, bool, Obj]]) -> Obj:
    live: Obj | None = None
    for manager, applies, spec in writes:
        if applies:
            live = apply(live, widget(spec), manager, force=True)
        else:
            live = update(live, widget(copy.deepcopy(spec), uid="u"), manager)
    assert live is not None
    return live


@modest
@given(steps, specs)
def test_applying_the_same_twice_is_applying_it_once(writes: list[tuple[str, bool, Obj]], spec: Obj) -> None:
    once = apply(history(writes), widget(spec), "me", force=True)
    assert apply(once, widget(spec), "me", now=LATER) == once


@modest
@given(steps, specs)
def test_what_is_applied_is_there_and_owned(writes: list[tuple[str, bool, Obj]], spec: Obj) -> None:
    result = apply(history(writes), widget(spec), "me", force=True)
    changes = compare(widget(spec), {**result, "metadata": widget()["metadata"]}, SCHEMA.root)
    assert not changes.removed
    assert not intersection(changes.modified, owners(result).get("me/Apply", {}))


@modest
@given(steps, specs)
def test_apply_without_force_refuses_or_changes_no_one_elses_value(
    writes: list[tuple[str, bool, Obj]], spec: Obj
) -> None:
    live = history(writes)
    try:
        result = apply(live, widget(spec), "me")
    except ApplyConflict:
        return
    changes = compare(live, result, SCHEMA.root)
    touched = union(changes.added, changes.modified)
    for entry in live["metadata"].get("managedFields", []):
        assert not intersection(entry["fieldsV1"], touched)


@modest
@given(steps)
def test_dropping_everything_leaves_only_what_others_own(writes: list[tuple[str, bool, Obj]]) -> None:
    live = history(writes)
    held = {name: fields for name, fields in owners(live).items() if name != "m1/Apply"}
    rest = apply(live, widget(), "m1", force=True)
    assert "m1/Apply" not in owners(rest)
    for name, fields in held.items():
        kept = owners(rest).get(name, {})
        assert not difference(kept, fields), "nobody gains by another's leaving"


paths = st.recursive(
    st.just({}),
    lambda below: st.dictionaries(st.sampled_from(["f:a", "f:b", 'k:{"n":1}']), below, max_size=3),
    max_leaves=8,
)


@modest
@given(paths, paths)
def test_field_sets_are_sets(left: Obj, right: Obj) -> None:
    a, b = set(members(left)), set(members(right))
    assert set(members(union(left, right))) == a | b
    assert set(members(difference(left, right))) == a - b
    assert set(members(intersection(left, right))) == a & b
