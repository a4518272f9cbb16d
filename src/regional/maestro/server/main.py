"""`regionctl serve maestro-server`: keeps resource bundles and carries them to the agents of their consumers."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence

import prometheus_client

from regional.core.database import Database, migrate
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Door, RoleSettings, run_role
from regional.core.settings import load
from regional.maestro.protocol.bundles import LARGEST_BUNDLE, LARGEST_MESSAGE
from regional.maestro.protocol.events import Event
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.delivery import Delivery
from regional.maestro.server.feed import Feed
from regional.maestro.server.rest.app import WithoutSlash, application
from regional.maestro.server.rest.bundles import BundleRoutes
from regional.maestro.server.rest.consumers import ConsumerRoutes
from regional.maestro.server.resync import Resync
from regional.maestro.server.schema import MIGRATIONS
from regional.maestro.server.source import Source
from regional.maestro.server.statuses import Inbox, Report, Stored

log = logging.getLogger(__name__)

_seconds = prometheus_client.Histogram(
    "maestro_server_confirmed_seconds",
    "From the acceptance of a change to its first confirmation by a status",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30, 120, 600),
)


class Settings(RoleSettings, kw_only=True, frozen=True):
    http_port: int = 8080
    db_credentials_dir: str = "/mnt/secrets-store"
    db_sslmode: str = "require"
    message_broker_config_file: str = "/mnt/secrets-store/config.yaml"
    migrate_only: bool = False
    source_id: str = "maestro"
    max_bundle_bytes: int = LARGEST_MESSAGE
    """The payload of one message: what AWS IoT takes; agents take 500 KiB where the broker does."""
    keep_unknown_works: bool = False
    """Do not tell agents to delete works that this database has never heard of (a database that is being rebuilt)."""


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
    server = Server(settings)
    await run_role(
        settings,
        [server.database.dependency, server.source.broker.dependency],
        [server.run()],
        doors=[Door(WithoutSlash(application(server.bundle_routes, server.consumer_routes)), settings.http_port)],
        says="bundles are kept and delivered",
    )


class Server:
    """The parts of the server and who speaks to whom."""

    def __init__(self, settings: Settings) -> None:
        self.database = _database(settings)
        self.bundles = Bundles(self.database)
        self.consumers = Consumers(self.database)
        self.feed = Feed(self.database)
        self.inbox = Inbox(self.database, self._stored, self._strays, self._ask_again)
        self.source = Source(
            settings.message_broker_config_file,
            source_id=settings.source_id,
            replica=settings.pod_name or uuid.uuid4().hex[:12],
            report=self.inbox.offer,
            spec_resync=self._spec_resync,
            connected=self._connected,
            heard_of=self._heard_of,
            consumers=self.consumers,
        )
        self.delivery = Delivery(self.bundles, self.source.publish, settings.source_id)
        self.resync = Resync(
            self.database,
            self.bundles,
            self.consumers,
            self.delivery,
            self.source.publish,
            source_id=settings.source_id,
            keep_unknown=settings.keep_unknown_works,
            connected=lambda: self.source.broker.connected,
        )
        largest = min(settings.max_bundle_bytes, LARGEST_BUNDLE)
        self.bundle_routes = BundleRoutes(self.database, self.bundles, self.delivery, self.feed, self.source, largest)
        self.consumer_routes = ConsumerRoutes(self.database, self.consumers)
        self._confirmed: OrderedDict[tuple[str, int], None] = OrderedDict()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._keep_database(),
                    self.source.broker.keep_connected(),
                    self.inbox.keep_storing(),
                    self.delivery.keep_scanning(),
                    self.delivery.keep_counting(),
                    self.feed.keep_listening(),
                    self.feed.keep_tidy(),
                    self.source.keep_noting(),
                ):
                    group.create_task(work)
        finally:
            await self.source.close()
            await self.delivery.close()

    async def _keep_database(self) -> None:
        # The chart's init container migrates too; a server that runs without it must not stumble over missing tables.
        await self.database.once_connected(lambda connection: migrate(connection, "maestro", MIGRATIONS))
        await self.database.keep_connected()

    async def _connected(self) -> None:
        while self.database.pool is None:  # it may be away, or its schema in the making
            await asyncio.sleep(0.02)
        await self.delivery.catch_up()
        await self.resync.ask_everyone()

    async def _spec_resync(self, event: Event) -> None:
        await self.resync.answer(event)

    def _ask_again(self) -> None:
        self.source.once_at_a_time("statuses", self.resync.ask_everyone)

    def _heard_of(self, consumer: str) -> None:
        self.delivery.heard_of(consumer)

    def _stored(self, stored: Stored) -> None:
        report = stored.report
        key = (report.id, report.version)
        if key not in self._confirmed and not report.deleted:
            self._confirmed[key] = None
            _seconds.observe(max(0.0, time.time() - stored.since.timestamp()))
            if len(self._confirmed) > 10_000:
                self._confirmed.popitem(last=False)
        log.info(
            "bundle is gone" if report.deleted else "status stored",
            extra={
                "resource": report.id,
                "consumer": report.consumer,
                "version": report.version,
                "applied": report.applied,
                "since_accepted": round(time.time() - stored.since.timestamp(), 4),
                "request_id": report.request_id,
                "span": "maestro.status",
                "ms": round((time.monotonic() - report.received) * 1000, 3),
            },
        )

    def _strays(self, reports: Sequence[Report]) -> None:
        """Most were stored by another replica, or are of a version that has been replaced."""
        by_consumer: dict[str, dict[str, int]] = {}
        for report in reports:
            log.debug("a status was not used", extra={"resource": report.id, "consumer": report.consumer})
            if report.lives:
                by_consumer.setdefault(report.consumer, {})[report.id] = report.version
        for consumer, versions in by_consumer.items():
            self.source.once_at_a_time(
                f"strays {consumer}",
                lambda c=consumer, v=versions: self.resync.end_strays(c, v),  # type: ignore[misc]
            )
