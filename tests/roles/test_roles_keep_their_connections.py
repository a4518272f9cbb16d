"""A role says truly whether it has what it needs, and gets it back by itself after a kill -9 of the other side."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from regional.clm.migrations import MIGRATIONS

DATABASE = ("--db-sslmode=disable",)


@pytest.mark.parametrize("role", ["clm-api", "sentinel"])
async def test_a_killed_database_is_reported_and_found_again(role: str, pod: Any, database: Any) -> None:
    running = await pod(role, *DATABASE, secrets=database.secrets)
    await running.until(200)
    await database.kill()
    waiting = json.loads(await running.until(503))["waitingFor"]
    assert list(waiting) == ["database"]
    await database.start()
    await running.until(200)
    said = [line["msg"] for line in running.lines() if line["msg"].startswith("ready:")]
    assert len(said) == 2
    assert said[0].startswith("ready: connected to database clm; ")


async def test_a_role_waits_for_credentials_that_are_not_mounted_yet(pod: Any) -> None:
    running = await pod("sentinel", *DATABASE)
    await running.until(503, "/mnt/secrets-store/db.host: No such file")
    assert (await running.get("/healthz"))[0] == 200


async def test_migrating_twice_at_once_leaves_one_schema_and_ends(pod: Any, database: Any) -> None:
    runs = [await pod("clm-api", "--migrate-only", *DATABASE, secrets=database.secrets) for _ in range(2)]
    assert [await run.process.wait() for run in runs] == [0, 0]
    connection = await asyncpg.connect(
        host=database.address, port=database.port, user="clm", password="s3cret-word", database="clm", ssl="disable"
    )
    try:
        assert await connection.fetchval("SELECT count(*) FROM schema_migrations") == len(MIGRATIONS)
    finally:
        await connection.close()


async def test_maestro_server_comes_back_to_a_killed_broker(pod: Any, database: Any, broker: Any) -> None:
    secrets = database.secrets | broker.secrets("maestro-server")
    running = await pod("maestro-server", *DATABASE, secrets=secrets)
    await running.until(200)
    assert json.loads((await running.get("/api/maestro/v1/nothing", 8080))[1])["code"] == "maestro-404"
    await broker.kill()
    assert list(json.loads(await running.until(503))["waitingFor"]) == ["broker"]
    await broker.start()
    await running.until(200)


async def test_two_replicas_of_maestro_server_do_not_throw_each_other_out(pod: Any, database: Any, broker: Any) -> None:
    secrets = database.secrets | broker.secrets("maestro-server")
    replicas = [
        await pod("maestro-server", *DATABASE, secrets=secrets, POD_NAME=f"maestro-server-{n}") for n in range(2)
    ]
    for replica in replicas:
        await replica.until(200)
    for replica in replicas:
        assert (await replica.get("/readyz"))[0] == 200
        assert not [line for line in replica.lines() if "disconnect" in line.get("reason", "").lower()]


async def test_a_role_leaves_when_it_is_asked_to(pod: Any, database: Any, broker: Any) -> None:
    running = await pod("maestro-server", *DATABASE, secrets=database.secrets | broker.secrets("maestro-server"))
    await running.until(200)
    assert await running.terminate() == 0
    said = [line["msg"] for line in running.lines()]
    assert "stopping" in said
    assert not any(line["level"] == "error" for line in running.lines()[said.index("stopping") :])


async def test_platform_api_is_ready_when_it_reaches_clm_by_name(pod: Any, database: Any, tmp_path: Any) -> None:
    clm = await pod("clm-api", *DATABASE, secrets=database.secrets)
    hosts = tmp_path / "hosts"
    hosts.write_text("")
    door = await pod("platform-api", HOSTS_FILE=str(hosts))
    await door.until(503, "clm-api.clm")
    hosts.write_text(f"{clm.address} clm-api.clm\n")
    await door.until(200)
    assert (await door.get("/api/v0/ready", 8000))[0] == 200
    assert json.loads((await door.get("/api/v0/clusters", 8000))[1])["code"] == "not-from-gateway"


async def test_no_secret_reaches_the_log(pod: Any, database: Any) -> None:
    running = await pod("clm-api", "--log-level=debug", *DATABASE, secrets=database.secrets)
    await running.until(200)
    assert "s3cret-word" not in json.dumps(running.lines())


async def test_an_agent_outside_a_cluster_says_so(pod: Any, broker: Any) -> None:
    running = await pod("maestro-agent", secrets=broker.secrets("mc01", "mc01"))
    assert await running.process.wait() == 1
