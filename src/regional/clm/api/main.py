"""`regionctl serve clm-api`: migrates its schema, keeps its database, answers /healthz; no resource yet."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from regional.clm.settings import MIGRATIONS, ClmSettings, database_of
from regional.core.database import migrate
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.problems import Problem
from regional.core.role import Door, run_role
from regional.core.settings import load


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
        [database.keep_connected()],
        doors=[Door(application(), settings.port)],
        says="no resource is served yet",
    )


def application() -> Starlette:
    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def not_found(request: Request, _: Exception) -> Response:
        document = Problem(404, "Not Found", f"there is no {request.url.path}").document()
        return JSONResponse(document, status_code=404, media_type="application/problem+json")

    return Starlette(routes=[Route("/healthz", healthz)], exception_handlers={404: not_found})
