"""`regionctl serve clm-api`: migrates its schema, serves resources, and places clusters that wait for a slot."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from regional.clm.api.door import Application
from regional.clm.entities import REGISTRY
from regional.clm.placement import reservations
from regional.clm.settings import MIGRATIONS, ClmSettings, database_of
from regional.core.database import Bell, migrate
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Door, run_role
from regional.core.settings import load

log = logging.getLogger(__name__)

PLACEMENT_SCAN_SECONDS = 5.0


class Settings(ClmSettings, kw_only=True, frozen=True):
    port: int = 8000
    migrate_only: bool = False


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("clm-api", settings.log_level)
    run(migrate_schema(settings) if settings.migrate_only else serve(settings))
    return 0


async def migrate_schema(settings: Settings) -> None:
    database = database_of(settings, "clm-api")
    await database.once_connected(lambda connection: migrate(connection, "clm", MIGRATIONS))


async def serve(settings: Settings) -> None:
    database = database_of(settings, "clm-api")
    await run_role(
        settings,
        [database.dependency],
        [database.keep_connected(), database.keep_session(place_those_who_wait)],
        doors=[Door(Application(database, REGISTRY), settings.port)],
        says=f"serving {', '.join(entity.plural for entity in REGISTRY.all)}",
    )


async def place_those_who_wait(connection: Any) -> None:
    """When a slot is said to be free, and now and then in case nobody said so."""
    bell = Bell(connection)
    await bell.listen(reservations.CHANNEL)
    while True:
        while await reservations.is_waiting(connection):
            placed = await reservations.fill(connection, datetime.now(UTC))
            if placed:
                log.info("placed clusters that waited", extra={"clusters": placed})
            if placed < reservations.FILL_BATCH:
                break
        await bell.wait(PLACEMENT_SCAN_SECONDS)
