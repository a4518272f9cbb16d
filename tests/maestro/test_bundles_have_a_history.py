"""What became of a bundle can be read afterwards, also when it is gone, and any bundle can be sent once more."""

from __future__ import annotations

import pytest

from regional.maestro.client import MaestroClient, MaestroError
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_map, connect, eventually, gone


def changes(history: list[Document]) -> list[tuple[str, int]]:
    """Oldest first, statuses of one version once."""
    found: list[tuple[str, int]] = []
    for entry in reversed(history):
        if not found or found[-1] != (entry["change"], entry["version"]):
            found.append((entry["change"], entry["version"]))
    return found


async def test_versions_statuses_and_the_end_are_told_in_order(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")], request_id="req-1")
        await applied(client, made["id"])
        await client.patch_bundle(made["id"], manifests=[config_map("a", {"key": "2"})], request_id="req-2")
        await applied(client, made["id"], version=2)
        history = await client.bundle_history(made["id"])
        told = [found for found in changes(history) if found[0] != "status"]
        assert told == [("accepted", 1), ("accepted", 2)]
        assert [entry["request_id"] for entry in history if entry["change"] == "accepted"] == ["req-2", "req-1"]
        assert any(entry["version"] == 2 and "Applied=True" in entry.get("note", "") for entry in history)

        await client.delete_bundle(made["id"], request_id="req-3")
        await gone(client, made["id"])
        ended = changes(await client.bundle_history(made["id"]))
        assert ended[0] == ("accepted", 1)
        assert ("deleting", 2) in ended
        assert ended[-1] == ("deleted", 2)
        assert len(await client.bundle_history(made["id"], size=2)) == 2


async def test_a_history_outlives_the_change_feed(maestro: Maestro) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        before = await client.bundle_history(made["id"])
        await maestro.servers[-1].feed.tidy(keep="0 seconds")
        assert await client.bundle_history(made["id"]) == before
        connection = await connect(maestro.database)
        try:
            assert await connection.fetchval("SELECT count(*) FROM events") == 0
            await connection.execute(
                "INSERT INTO history SELECT $1, now() - interval '1 second' * number, 'status', 1, '', ''"
                " FROM generate_series(1, 1000) AS number",
                made["id"],
            )
            await maestro.servers[-1].feed.tidy()
            assert await connection.fetchval("SELECT count(*) FROM history") <= 201
        finally:
            await connection.close()


async def test_nothing_is_known_of_a_bundle_that_never_was(maestro: Maestro) -> None:
    async with maestro.server() as client:
        for call in (client.bundle_history("nobody"), client.redeliver_bundle("nobody")):
            with pytest.raises(MaestroError) as refused:
                await call
            assert refused.value.not_found


async def test_a_bundle_that_is_sent_again_is_confirmed_again(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        before = await applied(client, made["id"])
        await client.redeliver_bundle(made["id"])
        assert (await client.get_bundle(made["id"]))["version"] == before["version"]

        async def confirmed() -> bool:
            return await pending(client) == 0

        await eventually(confirmed)
        history = await client.bundle_history(made["id"])
        at = next(entry["at"] for entry in history if entry["change"] == "redelivered")
        assert any(entry["change"] == "status" and entry["at"] > at for entry in history)


async def pending(client: MaestroClient) -> int:
    found: int = (await client.consumers())[0]["pending"]
    return found
