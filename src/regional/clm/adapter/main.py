"""`regionctl serve adapter`: keeps its database and its way to Maestro; no task is run yet."""

from __future__ import annotations

from regional.clm.settings import ClmSettings, database_of
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Dependency, keep_reaching, run_role
from regional.core.settings import load


class Settings(ClmSettings, kw_only=True, frozen=True):
    maestro_url: str = "http://maestro-http.maestro-server:8080"


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("clm-adapter", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    database = database_of(settings, "clm-adapter")
    maestro = Dependency("maestro")
    await run_role(
        settings,
        [database.dependency, maestro],
        [database.keep_connected(), keep_reaching(f"{settings.maestro_url}/healthz", maestro)],
        says="no task is run yet",
    )
