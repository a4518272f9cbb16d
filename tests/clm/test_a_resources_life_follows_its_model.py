"""Any sequence of requests about a cluster and its pools, on a real database, compared with a plain model of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis.stateful as stateful
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from regional.clm.client import ClmClient, ClmError
from regional.local.provisioner import postgres
from tests.clm.conftest import Region, report


class Modelled:
    """What one resource must look like."""

    def __init__(self, made: dict[str, Any], parent: Modelled | None) -> None:
        self.id, self.kind, self.name = made["id"], made["kind"], made["name"]
        self.parent = parent
        self.children: list[Modelled] = []
        self.generation = 1
        self.deleting = False
        self.gone = False
        self.tag = 0
        self.reported: tuple[int, datetime, str, bool] | None = None  # generation, time, Available, Finalized

    @property
    def finalized(self) -> bool:
        return self.reported is not None and self.reported[3] and self.reported[0] == self.generation

    @property
    def alive_below(self) -> list[Modelled]:
        return [child for child in self.children if not child.gone]

    def reconciled(self) -> bool:
        if self.reported is None or self.reported[0] != self.generation or self.reported[2] == "Unknown":
            return False
        if self.deleting:
            return self.reported[3] and not self.alive_below
        return self.reported[2] == "True"


class Life(stateful.RuleBasedStateMachine):
    region: Region
    clm: ClmClient
    runner: asyncio.Runner
    number = 0

    def __init__(self) -> None:
        super().__init__()
        self.clusters: list[Modelled] = []
        self.clock = datetime.now(UTC) - timedelta(minutes=20)

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def refused(self, work: Any, status: int) -> None:
        with pytest.raises(ClmError) as caught:
            self.run(work)
        assert caught.value.status == status, caught.value

    everything = stateful.Bundle("everything")

    @stateful.rule(target=everything)
    def create_cluster(self) -> Any:
        Life.number += 1
        made = self.run(self.clm.create("Cluster", f"made-{Life.number}", {}))
        cluster = Modelled(made, None)
        self.clusters.append(cluster)
        return cluster

    @stateful.rule(target=everything, parent=everything)
    def create_pool(self, parent: Modelled) -> Any:
        parent = parent.parent or parent
        Life.number += 1
        work = self.clm.create("NodePool", f"pool-{Life.number}", {}, parent_id=parent.id)
        if parent.gone:
            self.refused(work, 404)
        elif parent.deleting:
            self.refused(work, 409)
        else:
            pool = Modelled(self.run(work), parent)
            parent.children.append(pool)
            return pool
        return stateful.multiple()

    @stateful.rule(one=everything, tag=st.integers(0, 2))
    def change(self, one: Modelled, tag: int) -> None:
        work = self.clm.patch(one.kind, one.id, spec={"tags": {"n": str(tag)}} if tag else {})
        if one.gone:
            self.refused(work, 404)
        elif one.deleting:
            self.refused(work, 409)
        else:
            one.generation += int(tag != one.tag)
            one.tag = tag
            assert self.run(work)["generation"] == one.generation

    @stateful.rule(one=everything)
    def delete(self, one: Modelled) -> None:
        work = self.clm.delete(one.kind, one.id)
        if one.gone:
            self.refused(work, 404)
            return
        for marked in (one, *one.alive_below):
            marked.generation += int(not marked.deleting)
            marked.deleting = True
        assert self.run(work)["generation"] == one.generation

    @stateful.rule(one=everything)
    def force_delete(self, one: Modelled) -> None:
        work = self.clm.force_delete(one.kind, one.id, "the test says so")
        if one.gone:
            self.refused(work, 404)
        elif not one.deleting:
            self.refused(work, 409)
        else:
            self.run(work)
            for removed in (one, *one.children):
                removed.gone = True
            self._parent_may_go(one.parent)

    @stateful.rule(
        one=everything,
        behind=st.integers(-1, 1),
        age=st.integers(-3, 3),
        available=st.sampled_from(["True", "False", "Unknown"]),
        finalized=st.booleans(),
    )
    def hear(self, one: Modelled, behind: int, age: int, available: str, finalized: bool) -> None:
        generation = max(1, one.generation - behind)
        self.clock += timedelta(seconds=1)
        moment = self.clock + timedelta(seconds=age)
        body = report(generation, available, observed_time=moment.isoformat())
        if finalized:
            body["conditions"].append({"type": "Finalized", "status": "True"})
        work = self.clm.put_status(one.kind, one.id, body)
        if one.gone:
            self.refused(work, 404)
            return
        kept = self._keeps(one, generation, moment, available, finalized)
        assert (self.run(work) is not None) == kept
        if not kept:
            return
        if one.reported is None or (generation, moment) != one.reported[:2]:
            one.reported = (generation, moment, available, finalized)
        if one.deleting and finalized and one.finalized and not one.alive_below:
            one.gone = True
            self._parent_may_go(one.parent)

    @stateful.rule(one=everything)
    def finalize(self, one: Modelled) -> None:
        """What chance alone would seldom hit: the report that lets it go."""
        self.hear(one, behind=0, age=1, available="False", finalized=True)

    @stateful.rule(target=everything)
    def create_cluster_with_a_pool_and_delete_it(self) -> Any:
        cluster = self.create_cluster()
        self.create_pool(cluster)
        self.delete(cluster)
        return stateful.multiple(cluster, *cluster.children)

    def _keeps(self, one: Modelled, generation: int, moment: datetime, available: str, finalized: bool) -> bool:
        if generation > one.generation:
            return False
        if one.reported is None:
            return True
        if (generation, moment) < one.reported[:2]:
            return False
        return available != "Unknown" or (one.deleting and finalized)

    def _parent_may_go(self, parent: Modelled | None) -> None:
        if parent is not None and parent.deleting and not parent.alive_below and parent.finalized:
            parent.gone = True

    @stateful.invariant()
    def what_is_there_is_what_should_be(self) -> None:
        for cluster in self.clusters:
            for one in (cluster, *cluster.children):
                found = self.run(self.clm.get_or_none(one.kind, one.id))
                assert (found is None) == one.gone
                if found is None:
                    continue
                assert found["generation"] == one.generation
                assert ("deleted_time" in found) == one.deleting
                (reconciled,) = (c for c in found["status"]["conditions"] if c["type"] == "Reconciled")
                if one.reported is not None and one.reported[2] != "Unknown":
                    assert (reconciled["status"] == "True") == one.reconciled()

    def teardown(self) -> None:
        """Every revision has its entry, every change its place in the feed; no slot is held by what is gone."""
        counts = self.run(
            self.region.rows(
                "SELECT (SELECT count(*) FROM resources) AS resources,"
                " (SELECT count(*) FROM resource_history WHERE change = 'created') AS made,"
                " (SELECT count(*) FROM resource_history WHERE change = 'removed') AS removed,"
                " (SELECT count(*) FROM placements WHERE NOT EXISTS"
                "  (SELECT FROM resources WHERE id = cluster_id)) AS stray,"
                " (SELECT count(*) FROM resources AS r WHERE revision <> (SELECT max(revision) FROM resource_history"
                "  WHERE resource_id = r.id)) AS behind"
            )
        )[0]
        assert counts["made"] - counts["removed"] == counts["resources"]
        assert (counts["stray"], counts["behind"]) == (0, 0)


def test_any_life_follows_the_model(postgres_server: postgres.Server, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        region = Region(postgres_server, tmp_path)
        runner.run(region.prepare())
        api = region.api()
        clm = ClmClient(runner.run(api.__aenter__()))
        try:
            machine = type("LifeHere", (Life,), {"region": region, "clm": clm, "runner": runner})
            few = settings(
                max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
            )
            stateful.run_state_machine_as_test(machine, settings=few)
        finally:
            runner.run(clm.close())
            runner.run(api.__aexit__(None, None, None))
            runner.run(region.forget())
