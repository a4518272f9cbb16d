from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from regional.local.provisioner.postgres import Server, administration
from tests.provisioner.harness import Ground

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _provision(ground: Ground) -> dict[str, Any]:
    await ground.provision("network", ground.regional_inputs())
    return await ground.provision("database", ground.regional_inputs())


def _dsn(ground: Ground, service: str, database: str = "") -> str:
    found = json.loads(ground.secret(ground.regional(), f"{service}/db-credentials"))
    return (
        f"postgresql://{found['username']}:{found['password']}@{found['host']}:{found['port']}"
        f"/{database or found['dbname']}"
    )


async def test_each_service_enters_its_own_database_and_no_other(shared_ground: Ground) -> None:
    await _provision(shared_ground)
    for service, other in (("maestro", "clm"), ("clm", "maestro")):
        connection = await asyncpg.connect(_dsn(shared_ground, service))
        assert (
            await connection.fetchval("SELECT current_user::text || '@' || current_database()")
            == f"{service}@{service}"
        )
        await connection.execute("CREATE TABLE IF NOT EXISTS mine (id int)")
        await connection.close()
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await asyncpg.connect(_dsn(shared_ground, service, other))


async def test_the_superuser_cannot_come_over_the_network(shared_ground: Ground) -> None:
    await _provision(shared_ground)
    found = json.loads(shared_ground.secret(shared_ground.regional(), "clm/db-credentials"))
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await asyncpg.connect(host=found["host"], port=found["port"], user="postgres", database="postgres", ssl=False)


async def test_again_keeps_passwords_and_the_running_server(shared_ground: Ground) -> None:
    first = await _provision(shared_ground)
    before = (_dsn(shared_ground, "clm"), await shared_ground.service_pid("postgres"))
    assert await _provision(shared_ground) == first
    assert (_dsn(shared_ground, "clm"), await shared_ground.service_pid("postgres")) == before


async def test_a_password_that_drifted_is_set_back_to_the_secret(shared_ground: Ground) -> None:
    await _provision(shared_ground)
    server = Server.at(shared_ground.paths.postgres, shared_ground.context().database_address())
    async with administration(server) as connection:
        await connection.execute("ALTER ROLE clm PASSWORD 'somebody changed it'")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(_dsn(shared_ground, "clm"))
    await _provision(shared_ground)
    await (await asyncpg.connect(_dsn(shared_ground, "clm"))).close()


async def test_a_committed_row_survives_kill_and_restart(shared_ground: Ground) -> None:
    await _provision(shared_ground)
    connection = await asyncpg.connect(_dsn(shared_ground, "clm"))
    await connection.execute("CREATE TABLE kept (id int)")
    await connection.execute("INSERT INTO kept VALUES (42)")
    connection.terminate()
    await shared_ground.kill_service("postgres")
    again = await shared_ground.connect_when_back(_dsn(shared_ground, "clm"))
    assert await again.fetchval("SELECT id FROM kept") == 42
    await again.close()
