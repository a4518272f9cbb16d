"""`regionctl serve maestro-server`: migrates its schema, keeps database and broker session; no bundle yet."""

from __future__ import annotations

import logging
import uuid

from awscrt import mqtt5
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from regional.core.database import Database, Migration, migrate
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mqtt import Broker
from regional.core.role import Door, RoleSettings, run_role
from regional.core.settings import load

log = logging.getLogger(__name__)

MIGRATIONS: tuple[Migration, ...] = ()


class Settings(RoleSettings, kw_only=True, frozen=True):
    http_port: int = 8080
    db_credentials_dir: str = "/mnt/secrets-store"
    db_sslmode: str = "require"
    message_broker_config_file: str = "/mnt/secrets-store/config.yaml"
    migrate_only: bool = False


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("maestro-server", settings.log_level)
    run(migrate_schema(settings) if settings.migrate_only else serve(settings))
    return 0


def _database(settings: Settings) -> Database:
    return Database(settings.db_credentials_dir, sslmode=settings.db_sslmode, application="maestro-server")


async def migrate_schema(settings: Settings) -> None:
    await _database(settings).once_connected(lambda connection: migrate(connection, "maestro", MIGRATIONS))


async def serve(settings: Settings) -> None:
    database = _database(settings)
    broker = Broker(
        settings.message_broker_config_file,
        lambda config: [config.topics.agent_events],
        _received,
        replica=settings.pod_name or uuid.uuid4().hex[:12],
    )
    await run_role(
        settings,
        [database.dependency, broker.dependency],
        [database.keep_connected(), broker.keep_connected()],
        doors=[Door(application(), settings.http_port)],
        says="no bundle is kept or published yet",
    )


def _received(packet: mqtt5.PublishPacket) -> None:
    log.info("an agent's event was received and not used", extra={"topic": packet.topic})


def application() -> Starlette:
    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def not_found(request: Request, _: Exception) -> Response:
        body = {
            "type": "Error",
            "id": "404",
            "href": "/api/maestro/v1/errors/404",
            "code": "maestro-404",
            "reason": f"The requested resource '{request.url.path}' doesn't exist",
        }
        return JSONResponse(body, status_code=404)

    return Starlette(routes=[Route("/healthz", healthz)], exception_handlers={404: not_found})
