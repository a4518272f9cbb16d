"""`regionctl serve sentinel`: keeps its database; there is no change feed to follow yet."""

from __future__ import annotations

from regional.clm.settings import ClmSettings, database_of
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import run_role
from regional.core.settings import load


def main(argv: list[str]) -> int:
    settings = load(ClmSettings, argv)
    setup_logging("clm-sentinel", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: ClmSettings) -> None:
    database = database_of(settings, "clm-sentinel")
    await run_role(
        settings, [database.dependency], [database.keep_connected()], says="there is no change feed to follow yet"
    )
