"""A cluster is Ready at a generation when that generation was carried out: what runs on from before is not enough."""

from __future__ import annotations

from typing import Any

from regional.clm.client import ClmClient
from regional.maestro.client import MaestroClient
from tests.clm.conftest import Region, until
from tests.clm.harness import Operator, reconciled, register, says, sentinel_and_adapter
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro

REFUSALS = [
    ("ValidReleaseImage", "InvalidImage"),
    ("ValidConfiguration", "InvalidConfiguration"),
    ("SupportedHostedCluster", "UnsupportedHostedCluster"),
    ("Progressing", "Blocked"),
]


def entry(state: str, image: str) -> dict[str, Any]:
    version = image.rpartition(":")[2].partition("-")[0]
    times = {"startedTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}
    return {"state": state, "version": version, "image": image} | times


async def test_a_cluster_is_ready_only_when_what_is_wanted_now_was_carried_out(
    clm: ClmClient, region: Region, maestro: Maestro, cluster: Cluster
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    async with (
        maestro.server() as client,
        sentinel_and_adapter(region, client, clm),
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
    ):
        await _prepare(clm, client)
        made = await clm.create("Cluster", "demo", {"release": {"version": "4.22.0"}})
        await operator.make_available(made["id"])
        await until(lambda: reconciled(clm, "Cluster", made["id"]))
        first = (await operator.hosted(made["id"]))["spec"]["release"]["image"]

        async def wish(spec: dict[str, Any]) -> str:
            """The image that is asked for, once the wish is on the management cluster."""
            before = (await operator.hosted(made["id"]))["metadata"]["generation"]
            await clm.patch("Cluster", made["id"], spec=spec)

            async def arrived() -> Any:
                live = await operator.hosted(made["id"])
                return live["metadata"]["generation"] != before and live["spec"]["release"]["image"]

            return str(await until(arrived))

        async def refused(reason: str) -> Any:
            told = await until(lambda: says(clm, "Cluster", made["id"], reason))
            assert not await reconciled(clm, "Cluster", made["id"])
            return told

        # The version before is complete, the one that is wanted is not.
        second = await wish({"release": {"version": "4.22.1"}})
        assert second == first.replace("4.22.0", "4.22.1")
        await operator.tell(made["id"], [entry("Partial", second), entry("Completed", first)])
        assert second in (await refused("WaitingForVersion"))["message"]
        (status,) = await clm.statuses("Cluster", made["id"])
        assert status["data"]["version"] == "4.22.0"
        # Nothing of the new wish is in the history yet, though the operator has seen it.
        await operator.tell(made["id"], [entry("Completed", first)])
        await refused("WaitingForVersion")
        done = [entry("Completed", second), entry("Completed", first)]
        await operator.tell(made["id"], done)
        await until(lambda: reconciled(clm, "Cluster", made["id"]))
        (status,) = await clm.statuses("Cluster", made["id"])
        assert status["data"]["version"] == "4.22.1"

        # A wish that is refused leaves what runs available.
        for kind, reason in REFUSALS:
            await wish({"release": {"version": "4.22.1"}, "channel": f"after-{reason}"})
            against = {"type": kind, "status": "False", "reason": reason, "message": f"{kind} speaks against it"}
            await operator.tell(made["id"], done, against)
            assert (await refused(reason))["message"] == f"{kind} speaks against it"
        generation = (await operator.hosted(made["id"]))["metadata"]["generation"]
        await operator.tell(made["id"], done, against | {"observedGeneration": generation - 1})
        await until(lambda: reconciled(clm, "Cluster", made["id"]))


async def _prepare(clm: ClmClient, client: MaestroClient) -> None:
    await register(client, "mc01")
    await clm.create("ManagementCluster", "mc01", {})
