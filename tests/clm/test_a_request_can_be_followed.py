"""One request's way through CLM: its id is on every line and every object, and spans say where the time went."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from regional.clm.adapter.transport import bundle_id
from regional.clm.client import ClmClient
from tests.clm.conftest import Region, add_management_cluster, until
from tests.clm.harness import Operator, reconciled, register, sentinel_and_adapter
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, running


def spans(caplog: pytest.LogCaptureFixture, request_id: str) -> list[Any]:
    return [found for found in caplog.records if hasattr(found, "span") and found.request_id == request_id]


async def test_the_spans_of_a_create_and_a_delete(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
    cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    operator = Operator(cluster)
    await operator.prepare()
    await add_management_cluster(clm)
    async with maestro.server() as client, sentinel_and_adapter(region, client, clm):
        await register(client, "mc01")

        def ours(request_id: str = "req-create") -> list[str]:
            told = [one.span for one in spans(caplog, request_id)]
            return [span for span in told if span.split(".")[0] in ("clm", "sentinel", "adapter")]

        made = await clm.create("Cluster", "demo", {}, request_id="req-create")
        # Before there is an agent, whose answer may be quicker than the end of the adapter's run.
        first = ["clm.commit", "sentinel.event", "clm.status", "adapter.run"]
        await until(lambda: len(ours()) >= len(first))
        assert ours()[:4] == first
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"), running(operator.operate()):
            await until(lambda: reconciled(clm, "Cluster", made["id"]))
            await until(lambda: "adapter.status" in ours())
            bundle = await client.get_bundle(bundle_id("mc01", f"cluster-{made['id']}"))
            hosted = await operator.hosted(made["id"])
            for document in (bundle, hosted):
                assert document["metadata"]["annotations"]["regional.io/request-id"] == "req-create"
            found = spans(caplog, "req-create")
            assert set(ours()) == {*first, "adapter.status"}
            for one in found:
                assert isinstance(one.ms, float)
                assert one.ms >= 0
            assert {one.resource for one in found if one.span in ours()} == {made["id"]}
            await clm.delete("Cluster", made["id"], request_id="req-delete")

            async def gone() -> bool:
                return await clm.get_or_none("Cluster", made["id"]) is None

            await until(gone)
            await until(lambda: set(ours("req-delete")) == {*first, "adapter.status"})
    assert not any("a3ViZWNvbmZpZw==" in str(vars(found)) for found in caplog.records)  # the customer's kubeconfig


async def test_history_is_a_timeline_with_times_reasons_and_requests(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    await add_management_cluster(clm)
    async with maestro.server() as client, sentinel_and_adapter(region, client, clm):
        await register(client, "mc01")
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"), running(operator.operate()):
            made = await clm.create("Cluster", "demo", {}, request_id="req-1")
            await until(lambda: reconciled(clm, "Cluster", made["id"]))
    entries = (await clm.history("Cluster", made["id"]))["items"][::-1]
    assert [entry["change"] for entry in entries[:2]] == ["created", "placed"]
    assert entries[1]["document"]["placement"]["management_cluster"] == "mc01"
    assert {entry["request_id"] for entry in entries} == {"req-1"}
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)
    reported = [entry["document"]["report"] for entry in entries if entry["change"] == "status"]
    assert all(found["adapter"] == "hypershift" for found in reported)
    steps = [(one["type"], one["status"]) for found in reported for one in found["conditions"]]
    assert steps.index(("Applied", "False")) < steps.index(("Applied", "True"))
    assert steps.index(("Available", "False")) < steps.index(("Available", "True"))
    assert reported[-1]["conditions"][-1]["last_transition_time"]


async def test_a_report_that_says_nothing_new_leaves_no_trace_but_its_time(clm: ClmClient, region: Region) -> None:
    from tests.clm.conftest import condition, report

    made = await clm.create("Cluster", "demo", {})
    await clm.put_status("Cluster", made["id"], report(1))
    before = await clm.get("Cluster", made["id"])
    counts = "SELECT (SELECT count(*) FROM resource_history) + (SELECT count(*) FROM changes)"
    entries = await region.value(counts)
    for _ in range(3):
        await clm.put_status("Cluster", made["id"], report(1))
    after = await clm.get("Cluster", made["id"])
    assert await region.value(counts) == entries
    earlier, later = condition(before, "Reconciled"), condition(after, "Reconciled")
    assert later.pop("last_updated_time") > earlier.pop("last_updated_time")
    assert later == earlier
