"""Slots on management clusters: the least loaded is chosen, none is overfilled, and who waits is served in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from regional.clm.api.main import place_those_who_wait
from regional.clm.client import ClmClient, ClmError
from regional.clm.placement import reservations
from tests.clm.conftest import Region, add_management_cluster, report, until
from tests.maestro.harness import running


async def used(region: Region) -> dict[str, int]:
    rows = await region.rows("SELECT name, used FROM management_cluster_capacity")
    return {row["name"]: row["used"] for row in rows}


async def held(region: Region) -> dict[str, int]:
    """Counted anew from the placements themselves."""
    rows = await region.rows(
        "SELECT name, count(cluster_id) AS clusters FROM management_cluster_capacity"
        " LEFT JOIN placements ON management_cluster_id = id GROUP BY name"
    )
    return {row["name"]: row["clusters"] for row in rows}


async def finalize(clm: ClmClient, cluster: dict[str, Any]) -> None:
    gone = await clm.delete("Cluster", cluster["id"])
    finalized = report(gone["generation"], "False", finalized="True")
    await clm.put_status("Cluster", cluster["id"], finalized)


async def test_fifty_creates_at_once_fill_every_slot_and_not_one_more(clm: ClmClient, region: Region) -> None:
    for name, capacity in (("mc01", 20), ("mc02", 10), ("mc03", 0)):
        await add_management_cluster(clm, name, capacity)
    made = await asyncio.gather(*(clm.create("Cluster", f"made{number}", {}) for number in range(50)))
    places = Counter(cluster["placement"].get("management_cluster", "waits") for cluster in made)
    assert places == {"mc01": 20, "mc02": 10, "waits": 20}
    assert {cluster["placement"].get("reason") for cluster in made} == {
        None,
        "all 3 management clusters that accept clusters are full",
    }
    assert await used(region) == await held(region) == {"mc01": 20, "mc02": 10, "mc03": 0}


async def test_deletes_and_creates_at_once_keep_the_count_exact(clm: ClmClient, region: Region) -> None:
    await add_management_cluster(clm, "mc01", 8)
    await add_management_cluster(clm, "mc02", 8)
    first = await asyncio.gather(*(clm.create("Cluster", f"first{number}", {}) for number in range(20)))
    async with running(region.database.keep_session(place_those_who_wait)):
        await asyncio.gather(
            *(finalize(clm, cluster) for cluster in first[:15]),
            *(clm.create("Cluster", f"next{number}", {}) for number in range(11)),
        )

        async def nobody_waits() -> bool:
            return not await region.value("SELECT count(*) FROM placements WHERE management_cluster_id IS NULL")

        await until(nobody_waits)
    assert await used(region) == await held(region)
    assert sum((await held(region)).values()) == 16


async def test_the_least_loaded_by_share_is_chosen(clm: ClmClient) -> None:
    await add_management_cluster(clm, "large", 100)
    await add_management_cluster(clm, "small", 10)
    made = [await clm.create("Cluster", f"made{number}", {}) for number in range(22)]
    assert Counter(cluster["placement"]["management_cluster"] for cluster in made) == {"large": 20, "small": 2}


async def test_one_that_accepts_no_more_gets_no_more(clm: ClmClient) -> None:
    cordoned = await clm.create("ManagementCluster", "mc01", {"accepting": False})
    waiting = await clm.create("Cluster", "demo", {})
    assert waiting["placement"] == {"reason": "none of 1 management clusters accepts clusters"}
    await clm.patch("ManagementCluster", cordoned["id"], spec={"accepting": True})
    assert (await clm.create("Cluster", "later", {}))["placement"] == {
        "reason": "other clusters wait for a place before it"
    }


async def test_who_waits_longest_is_placed_first_and_nobody_overtakes(clm: ClmClient, region: Region) -> None:
    await add_management_cluster(clm, "mc01", 1)
    holder = await clm.create("Cluster", "holder", {})
    queue = [await clm.create("Cluster", f"waits{number}", {}) for number in range(3)]
    assert queue[0]["placement"] == {"reason": "all 1 management clusters that accept clusters are full"}
    await finalize(clm, holder)
    late = await clm.create("Cluster", "late", {})
    assert late["placement"] == {"reason": "other clusters wait for a place before it"}
    async with running(region.database.keep_session(place_those_who_wait)):

        async def first_is_placed() -> Any:
            return (await clm.get("Cluster", queue[0]["id"]))["placement"].get("management_cluster")

        assert await until(first_is_placed) == "mc01"
    for cluster in (*queue[1:], late):
        assert "management_cluster" not in (await clm.get("Cluster", cluster["id"]))["placement"]
    placed = (await clm.history("Cluster", queue[0]["id"]))["items"]
    assert [entry["change"] for entry in placed] == ["placed", "waiting", "created"]
    assert placed[0]["document"]["placement"]["consumer"] == "mc01"


async def test_why_it_waits_is_kept_up_to_date(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Cluster", "demo", {})
    assert made["placement"] == {"reason": "no management cluster is registered"}
    await add_management_cluster(clm, "mc01", 0)
    async with region.connection() as connection:
        assert await reservations.fill(connection, datetime.now(UTC)) == 0
    now = await clm.get("Cluster", made["id"])
    assert now["placement"] == {"reason": "all 1 management clusters that accept clusters are full"}


async def test_a_cluster_that_is_deleted_while_it_waits_takes_no_slot(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Cluster", "demo", {})
    await clm.delete("Cluster", made["id"])
    await add_management_cluster(clm, "mc01", 1)
    async with region.connection() as connection:
        assert await reservations.fill(connection, datetime.now(UTC) + timedelta(seconds=1)) == 0
    assert await used(region) == {"mc01": 0}


async def test_two_fillers_at_once_place_each_cluster_once(clm: ClmClient, region: Region) -> None:
    for number in range(30):
        await clm.create("Cluster", f"made{number}", {})
    await add_management_cluster(clm, "mc01", 12)
    await add_management_cluster(clm, "mc02", 12)
    async with region.connection() as one, region.connection() as two:
        placed = await asyncio.gather(*(reservations.fill(connection, datetime.now(UTC)) for connection in (one, two)))
    assert sum(placed) == 24
    assert await used(region) == await held(region) == {"mc01": 12, "mc02": 12}


async def test_a_management_cluster_that_hosts_clusters_stays_what_it_is(clm: ClmClient) -> None:
    management = await add_management_cluster(clm, "mc01", 5)
    cluster = await clm.create("Cluster", "demo", {})
    for attempt in (
        clm.delete("ManagementCluster", management["id"]),
        clm.patch("ManagementCluster", management["id"], spec={"consumer": "other"}),
    ):
        with pytest.raises(ClmError) as caught:
            await attempt
        assert (caught.value.status, caught.value.code) == (409, "HYPERFLEET-CNF-003")
    less = await clm.patch("ManagementCluster", management["id"], spec={"capacity": 0})
    assert less["spec"] == {"capacity": 0}  # those who are there stay; nobody comes after them
    assert "reason" in (await clm.create("Cluster", "next", {}))["placement"]
    await finalize(clm, cluster)
    await clm.delete("ManagementCluster", management["id"])
    assert await clm.get_or_none("ManagementCluster", management["id"]) is None
