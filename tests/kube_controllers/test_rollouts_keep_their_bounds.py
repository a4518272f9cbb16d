"""Whatever happens to pods in the middle of a rollout, surge and unavailability stay within what was allowed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from regional.kube.controllers import rollout
from regional.kube.objects import Obj


def deployment(replicas: int, surge: int | str = "25%", unavailable: int | str = "25%") -> Obj:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}}


def replicaset(name: str, size: int, available: int) -> Obj:
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z"},
        "spec": {"replicas": size},
        "status": {"availableReplicas": available},
    }


def test_percentages_round_surge_up_and_unavailability_down() -> None:
    assert rollout.bounds(deployment(3)) == (1, 0)
    assert rollout.bounds(deployment(10)) == (3, 2)


def test_bounds_that_round_to_nothing_still_allow_progress() -> None:
    assert rollout.bounds(deployment(1, "0%", "25%")) == (0, 1)


def test_recreate_has_neither() -> None:
    assert rollout.bounds({"spec": {"replicas": 5, "strategy": {"type": "Recreate"}}}) == (0, 0)


def test_pods_that_do_not_work_are_replaced_first() -> None:
    broken, fine = replicaset("old1", 2, 0), replicaset("old2", 4, 4)
    sizes = rollout.shrunk_sizes(deployment(4, 2, 0), replicaset("new3", 0, 0), [broken, fine])
    assert sizes["old1"] == 0


sizes = st.integers(0, 8)


@given(
    replicas=st.integers(1, 10),
    surge=st.integers(0, 4),
    unavailable=st.integers(0, 4),
    old=st.lists(st.tuples(sizes, sizes), max_size=3),
    new=st.tuples(sizes, sizes),
)
@settings(max_examples=300, deadline=None)
def test_one_step_never_leaves_the_bounds(
    replicas: int, surge: int, unavailable: int, old: list[tuple[int, int]], new: tuple[int, int]
) -> None:
    wanted = deployment(replicas, surge, unavailable)
    bounds = rollout.bounds(wanted)
    old_sets = [replicaset(f"old{i}", size, min(size, ready)) for i, (size, ready) in enumerate(old)]
    new_set = replicaset("new9", min(new[0], replicas), min(new[0], new[1], replicas))
    before = rollout.total([*old_sets, new_set])

    grown = rollout.grown_size(wanted, new_set, [*old_sets, new_set])
    assert grown >= rollout.desired(new_set)
    assert before - rollout.desired(new_set) + grown <= max(before, replicas + bounds.surge)

    least = replicas - bounds.unavailable
    available = sum(rollout.available(rs) for rs in [*old_sets, new_set])
    shrunk = rollout.shrunk_sizes(wanted, new_set, old_sets)
    # A ReplicaSet gives up pods that do not work before those that do.
    kept = sum(min(rollout.available(rs), shrunk.get(rs["metadata"]["name"], 99)) for rs in old_sets)
    assert kept + rollout.available(new_set) >= min(least, available)
    assert all(0 <= size <= rollout.desired(rs) for rs in old_sets if (size := shrunk.get(rs["metadata"]["name"], 0)))


@given(
    replicas=st.integers(0, 20),
    surge=st.integers(0, 4),
    current=st.lists(st.integers(1, 10), min_size=2, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_scaling_in_the_middle_of_a_rollout_adds_up(replicas: int, surge: int, current: list[int]) -> None:
    wanted = deployment(replicas, surge, 1)
    allowed = replicas + surge if replicas else 0
    everyone = [replicaset(f"rs{i}", size, size) for i, size in enumerate(current)]
    shares = rollout.proportional_sizes(wanted, everyone, allowed)
    if shares:
        assert sum(shares.values()) == allowed
        assert min(shares.values()) >= 0


@given(replicas=st.integers(1, 8), surge=st.integers(0, 3), unavailable=st.integers(0, 3), first=st.integers(0, 8))
@settings(max_examples=150, deadline=None)
def test_every_rollout_ends(replicas: int, surge: int, unavailable: int, first: int) -> None:
    wanted = deployment(replicas, surge, unavailable)
    old, new = replicaset("old1", first, first), replicaset("new2", 0, 0)
    for _ in range(60):
        new["spec"]["replicas"] = min(replicas, rollout.grown_size(wanted, new, [old, new]))
        for size in rollout.shrunk_sizes(wanted, new, [old]).values():
            old["spec"]["replicas"] = size
        for replica in (old, new):
            replica["status"]["availableReplicas"] = replica["spec"]["replicas"]
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, replicas)
