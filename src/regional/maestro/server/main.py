"""`regionctl serve maestro-server`: keeps resource bundles and carries them to the agents of their consumers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence

import asyncpg
import prometheus_client
from starlette.applications import Starlette

from regional.core.database import Database, migrate
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Door, RoleSettings, run_role
from regional.core.settings import load
from regional.core.web import metrics_app
from regional.maestro.protocol.bundles import LARGEST_BUNDLE, LARGEST_MESSAGE
from regional.maestro.protocol.events import Event
from regional.maestro.server.agent_works import AgentWorks
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.delivery import PACED_WINDOW, WINDOW, Delivery, side_by_side
from regional.maestro.server.expiry import keep_expiring
from regional.maestro.server.feed import Feed
from regional.maestro.server.handover import Handover
from regional.maestro.server.leases import Leases
from regional.maestro.server.quiet import Quiet
from regional.maestro.server.rest.agent_works import AgentWorkRoutes
from regional.maestro.server.rest.app import WithoutSlash, application
from regional.maestro.server.rest.bundles import BundleRoutes
from regional.maestro.server.rest.consumers import ConsumerRoutes
from regional.maestro.server.resync import Resync
from regional.maestro.server.schema import MIGRATIONS
from regional.maestro.server.source import Source
from regional.maestro.server.statuses import Inbox, Report, Stored
from regional.maestro.server.writes import Writes

log = logging.getLogger(__name__)

_seconds = prometheus_client.Histogram(
    "maestro_server_confirmed_seconds",
    "From the acceptance of a change to its first confirmation by a status",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30, 120, 600),
)


class Settings(RoleSettings, kw_only=True, frozen=True):
    http_port: int = 8080
    metrics_port: int = 0
    """Metrics are on the health port; here too, for scrapers that look for them on another."""
    db_credentials_dir: str = "/mnt/secrets-store"
    db_sslmode: str = "require"
    message_broker_config_file: str = "/mnt/secrets-store/config.yaml"
    migrate_only: bool = False
    source_id: str = "maestro"
    max_bundle_bytes: int = LARGEST_MESSAGE
    """The payload of one message: what AWS IoT takes, and no more counts there; agents take 500 KiB where the broker
    does."""
    grpc_port: int = 8090
    """0: no such door."""
    grpc_tls_cert_file: str = ""
    grpc_tls_key_file: str = ""
    grpc_client_ca_file: str = ""
    grpc_sources: str = ""
    """Whom a client's certificate may speak for: `name=source,source;name=*`. Others only for their own name."""
    keep_unknown_works: bool = True
    """Do not tell agents to delete works that this database has never heard of: it may have been emptied or restored.
    They are shown instead. Without it, one known bundle of a consumer is enough to delete its unknown ones."""


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("maestro-server", settings.log_level)
    run(migrate_schema(settings) if settings.migrate_only else serve(settings))
    return 0


def _database(settings: Settings) -> Database:
    return Database(settings.db_credentials_dir, sslmode=settings.db_sslmode, application="maestro-server")


async def migrate_schema(settings: Settings) -> None:
    await _database(settings).once_connected(make_tables)


async def make_tables(connection: asyncpg.Connection) -> None:
    await migrate(connection, "maestro", MIGRATIONS)


async def serve(settings: Settings) -> None:
    server = Server(settings)
    metrics = [Door(metrics_app(), settings.metrics_port)] if settings.metrics_port else []
    async with server.grpc_door():
        await run_role(
            settings,
            [server.database.dependency, server.source.broker.dependency],
            [server.run()],
            doors=[Door(WithoutSlash(server.application()), settings.http_port), *metrics],
            says="bundles are kept and delivered",
        )


class Server:
    """The parts of the server and who speaks to whom."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._replica = settings.pod_name or uuid.uuid4().hex[:12]
        self._takeovers = itertools.count(1)
        self._unheard: set[str] = set()
        self._stray: dict[str, dict[str, int]] = {}
        """Statuses that fitted to no bundle: versions by consumer and id."""
        self.database = _database(settings)
        self.bundles = Bundles(self.database)
        self.consumers = Consumers(self.database)
        self.feed = Feed(self.database)
        self.inbox = Inbox(self.database, self._stored, self._strays, self._ask_again)
        self.source = Source(
            settings.message_broker_config_file,
            source_id=settings.source_id,
            replica=self._replica,
            report=self.inbox.offer,
            spec_resync=self._spec_resync,
            connected=self._connected,
            heard_of=self._heard_of,
            consumers=self.consumers,
            elsewhere=lambda consumer: self.leases.elsewhere(consumer),
        )
        self.delivery = Delivery(
            self.bundles,
            self.source.publish,
            settings.source_id,
            nobody_listens=self.source.nobody_listens,
            held=lambda: self.leases.held,
            window=lambda: PACED_WINDOW if self.source.broker.pace else WINDOW,
        )
        self.handover = Handover(self.database, self.bundles, self.delivery)
        self.leases = Leases(
            self.database,
            self._replica,
            fit=lambda: self.source.broker.connected,
            acquired=self._acquired,
            handed_over=self.handover.arrived,
            deaf=self._deaf,
        )
        self.handover.among(self.leases)
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
        self.quiet = Quiet(
            self.database,
            self.source.publish,
            settings.source_id,
            held=lambda: self.leases.held,
            nobody_listens=self.source.nobody_listens,
        )
        works = AgentWorks(self.database)
        self.writes = Writes(self.bundles, works, self.handover.offer, self._largest)
        self.bundle_routes = BundleRoutes(
            self.database, self.bundles, self.writes, self.delivery, self.feed, self.source
        )
        self.consumer_routes = ConsumerRoutes(self.database, self.consumers, self.leases.begin)
        self.work_routes = AgentWorkRoutes(works, self.resync, self.source)
        self._confirmed: OrderedDict[tuple[str, int], None] = OrderedDict()

    def _largest(self) -> int:
        """Bytes of a spec that one message carries."""
        config = self.source.broker.config
        allowed = config.profile.largest if config is not None else 0
        return min(self._settings.max_bundle_bytes, LARGEST_BUNDLE, allowed or LARGEST_BUNDLE)

    def application(self) -> Starlette:
        return application(self.bundle_routes, self.consumer_routes, self.work_routes)

    @contextlib.asynccontextmanager
    async def grpc_door(self) -> AsyncIterator[int]:
        """The port that it listens on; 0 if there is none."""
        settings = self._settings
        if not settings.grpc_port:
            yield 0
            return
        # Imported here: whoever only shares this process' code must not pay for gRPC's memory.
        from regional.maestro.server.grpc import credentials, door, publishing, subscribing

        made = door.Door(
            publishing.Publishing(self.database, self.writes),
            subscribing.Subscribing(self.feed, settings.source_id),
            credentials.Credentials(
                settings.grpc_tls_cert_file, settings.grpc_tls_key_file, settings.grpc_client_ca_file
            ),
            door.Grants.parse(settings.grpc_sources),
        )
        async with made.serving(settings.pod_ip, settings.grpc_port):
            yield made.port

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    # The chart's init container migrates too; but tables can be missing without it, or later.
                    self.database.keep_connected(make_tables),
                    self.source.broker.keep_connected(),
                    self.inbox.keep_storing(),
                    self.delivery.keep_scanning(),
                    self.delivery.keep_counting(),
                    self.database.keep_session(self._session),
                    self.handover.keep_passing_on(),
                    self.feed.keep_tidy(),
                    self.source.keep_noting(),
                    self.consumers.keep_counting(),
                    self.quiet.keep_asking(),
                    keep_expiring(self.bundles, self.writes, lambda: self.leases.held),
                ):
                    group.create_task(work)
        finally:
            await self.source.close()
            await self.delivery.close()

    async def _session(self, connection: asyncpg.Connection) -> None:
        """The one that listens, and whose end tells the other replicas that this one is gone. It also ends when it
        finds no tables, so that it begins with making them."""
        await make_tables(connection)
        while self.database.pool is None:
            await asyncio.sleep(0.02)
        await self.feed.hear(connection)
        await self.leases.hold(connection)

    async def _connected(self) -> None:
        await self._welcome(self.leases.held)

    def _acquired(self, consumers: Collection[str]) -> None:
        self.source.taken_over(consumers)
        # Each time by itself: those who came before may have long queues.
        self.source.once_at_a_time(f"taken over {next(self._takeovers)}", lambda: self._welcome(consumers))

    async def _welcome(self, consumers: Collection[str]) -> None:
        """Consumers that are new to this replica or to its session with the broker: what they and we have missed.

        Without a broker it is given up; the next session begins with all of them.
        """
        while self.database.pool is None:  # it may be away
            await asyncio.sleep(0.02)
        held = self.leases.held & set(consumers)
        # Neither waits for the other: what was not confirmed may take long to send.
        await side_by_side(self.delivery.catch_up(held), self.resync.ask_everyone(held), self.resync.remind(held))

    async def _spec_resync(self, event: Event) -> None:
        await self.resync.answer(event)

    def _deaf(self) -> None:
        """Words of other replicas may have been lost: what they accepted for our consumers is not left to its time."""
        self.source.once_at_a_time("missed", lambda: self.bundles.hurry(list(self.leases.held)))

    def _ask_again(self, consumers: Collection[str]) -> None:
        self._unheard |= set(consumers)
        self.source.once_at_a_time("statuses", self._ask_unheard)

    async def _ask_unheard(self) -> None:
        consumers = frozenset(self._unheard)
        await self.resync.ask_everyone(consumers & self.leases.held)
        self._unheard -= consumers

    def _heard_of(self, consumer: str) -> None:
        self.delivery.heard_of(consumer)

    def _stored(self, stored: Stored) -> None:
        report = stored.report
        if report.asked and not report.deleted:
            self.quiet.answered(report.id)
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
        for report in reports:
            log.debug("a status was not used", extra={"resource": report.id, "consumer": report.consumer})
            if report.lives:
                self._stray.setdefault(report.consumer, {})[report.id] = report.version
        for consumer in list(self._stray):
            self.source.once_at_a_time(f"strays {consumer}", lambda c=consumer: self._end_strays(c))  # type: ignore[misc]

    async def _end_strays(self, consumer: str) -> None:
        versions = dict(self._stray.get(consumer, {}))
        if not versions:
            return
        await self.resync.end_strays(consumer, versions)
        came = self._stray.pop(consumer, {})  # more may have come meanwhile
        if left := {found: version for found, version in came.items() if versions.get(found) != version}:
            self._stray[consumer] = left
