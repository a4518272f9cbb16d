"""Whoever edits by hand is answered at once, however often; two programs that fight are slowed down."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from regional.gitops.healing import Healing
from regional.gitops.manifests import ObjectKey
from regional.kube.objects import Obj, labels_of
from tests.gitops.harness import GitOpsCluster, GitRepository, application, chart, config_map
from tests.kube_controllers.harness import eventually

WEB = ObjectKey("apps", "Deployment", "web", "web")
OTHER = ObjectKey("", "ConfigMap", "web", "settings")


def waits(edits: int, gap: Callable[[int], float], healing: Healing | None = None) -> list[float]:
    """How long each of so many edits of one object stays, if each comes so long after the last was healed."""
    healing = healing or Healing()
    now, found = 1000.0, []
    for number in range(edits):
        now += gap(number)
        healing.look({WEB}, now)
        wait = 0.0 if WEB in healing.due({WEB}, now) else (healing.wait(now) or 0.0)
        now += wait
        found.append(wait)
        healing.done(healing.due({WEB}, now), now)
        healing.look(set(), now)
    return found


class TestAPerson:
    def test_who_edits_a_dozen_times_within_a_minute_is_answered_each_time(self) -> None:
        assert max(waits(12, lambda number: 3.0)) == 0
        assert max(waits(12, lambda number: 0.5)) <= 1

    def test_who_edits_all_day_is_answered_each_time(self) -> None:
        hands = itertools.cycle([4.0, 11.0, 2.0, 7.0, 1.0, 25.0])
        assert max(waits(5000, lambda number: next(hands))) <= 1

    def test_who_comes_after_a_fight_is_answered_at_once(self) -> None:
        healing = Healing()
        assert waits(34, lambda number: 0.0, healing)[-1] > 60
        assert waits(1, lambda number: 3600.0, healing) == [0]


class TestAFight:
    def test_is_slowed_more_and_more(self) -> None:
        found = waits(40, lambda number: 0.05)
        assert found[:2] == [0, 0]
        assert all(0.9 < wait <= 1 for wait in found[2:30])
        assert [round(wait) for wait in found[30:]] == [3, 9, 27, 81, 243, 300, 300, 300, 300, 300]

    def test_over_one_object_holds_up_no_other(self) -> None:
        healing = Healing()
        waits(36, lambda number: 0.0, healing)
        now = healing.rows[WEB].last
        healing.look({WEB, OTHER}, now)
        assert healing.due({WEB, OTHER}, now) == {OTHER}
        assert healing.wait(now) == 300

    def test_that_is_over_is_not_waited_for(self) -> None:
        healing = Healing()
        waits(36, lambda number: 0.0, healing)
        now = healing.rows[WEB].last
        healing.look({WEB}, now + 1)
        healing.look(set(), now + 2)
        assert healing.wait(now + 2) is None
        healing.look(set(), now + 60)
        assert not healing.rows


class TestOnACluster:
    async def test_edit_after_edit_is_healed_and_says_what_it_touched(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        maps: dict[str, str | Obj] = {f"{name}.yaml": config_map(name) for name in ("one", "two")}
        repository.commit(chart("charts/web", maps))
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        for edit in range(5):
            await cluster.client.patch("v1", "ConfigMap", "one", "web", {"data": {"key": f"edit {edit}"}})

            async def healed() -> bool:
                return bool((await cluster.client.get("v1", "ConfigMap", "one", "web"))["data"] == {"key": "value"})

            await eventually(healed)
        state = (await cluster.synced("web"))["operation"]["sync"]
        assert state["resources"] == [{"kind": "ConfigMap", "namespace": "web", "name": "one"}]
        assert len((await cluster.app("web"))["status"]["history"]) == 1, "a heal is no deployment"

    async def test_an_object_that_is_fought_over_does_not_keep_the_others_from_being_healed(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        maps: dict[str, str | Obj] = {f"{name}.yaml": config_map(name) for name in ("one", "two")}
        repository.commit(chart("charts/web", maps))
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        clock = cluster.gitops.applications._clock
        healing = cluster.gitops.applications._states["argocd", "web"].healing
        # A thousand seconds ahead, so that a slow machine does not outlive the fight.
        for _ in range(40):
            healing.done([ObjectKey("", "ConfigMap", "web", "one")], clock.monotonic() + 1000)
        for name in ("one", "two"):
            await cluster.client.patch("v1", "ConfigMap", name, "web", {"data": {"key": "changed"}})

        async def healed() -> bool:
            return bool((await cluster.client.get("v1", "ConfigMap", "two", "web"))["data"] == {"key": "value"})

        await eventually(healed)
        assert (await cluster.client.get("v1", "ConfigMap", "one", "web"))["data"] == {"key": "changed"}
        await cluster.settled("web", sync="OutOfSync")

    async def test_a_heal_takes_nothing_from_a_namespace_that_the_chart_brings(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        namespace: Obj = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "web", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
        repository.commit(chart("charts/web", {"namespace.yaml": namespace, "one.yaml": config_map("one")}))
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        before = (await cluster.client.get("v1", "Namespace", "web"))["metadata"]["resourceVersion"]
        await cluster.client.patch("v1", "ConfigMap", "one", "web", {"data": {"key": "changed"}})

        async def healed() -> bool:
            return bool((await cluster.client.get("v1", "ConfigMap", "one", "web"))["data"] == {"key": "value"})

        await eventually(healed)
        after = await cluster.client.get("v1", "Namespace", "web")
        assert labels_of(after)["pod-security.kubernetes.io/enforce"] == "restricted"
        assert after["metadata"]["resourceVersion"] == before, "the heal wrote to the namespace"

    async def test_what_drifts_while_a_failed_sync_waits_for_its_next_attempt_is_healed(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        """Excludes a chart with one bad object, tried again every three minutes, in which nothing is healed."""
        bad: Obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bad"}, "spec": {"ports": "none"}}
        patience = {"limit": -1, "backoff": {"duration": "1h", "maxDuration": "1h"}}
        repository.commit(chart("charts/web", {"one.yaml": config_map("one"), "bad.yaml": bad}))
        await cluster.put(application("web", repository.url, "charts/web", retry=patience))

        async def waiting() -> bool:
            state = ((await cluster.app("web")).get("status") or {}).get("operationState") or {}
            return "Retrying attempt" in state.get("message", "")

        await eventually(waiting)
        await cluster.client.patch("v1", "ConfigMap", "one", "web", {"data": {"key": "changed"}})

        async def healed() -> bool:
            return bool((await cluster.client.get("v1", "ConfigMap", "one", "web"))["data"] == {"key": "value"})

        await eventually(healed)
