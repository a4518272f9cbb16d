"""`regionctl serve maestro-agent`: applies its consumer's bundles to its cluster and reports what becomes of them."""

from __future__ import annotations

import asyncio
import logging

import prometheus_client

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mounts import mounted
from regional.core.mqtt import BrokerConfig, read_config
from regional.core.role import Backoff, Dependency, RoleSettings, keep_asking, run_role
from regional.core.settings import load
from regional.kube.client import ApiError, Client
from regional.maestro.agent.reconciler import Reconciler
from regional.maestro.agent.records import Records
from regional.maestro.agent.reporter import Reporter
from regional.maestro.agent.session import Session
from regional.maestro.agent.shelf import Shelf
from regional.maestro.agent.tracker import Tracker
from regional.maestro.agent.works import Ref, Works
from regional.maestro.protocol.bundles import LARGEST_BUNDLE, LARGEST_MESSAGE
from regional.maestro.protocol.identity import hub_hash

log = logging.getLogger(__name__)

_works = prometheus_client.Gauge("maestro_agent_works", "Works in memory")
_strangers = prometheus_client.Gauge("maestro_agent_unknown_records", "AppliedManifestWorks without a work")


class Settings(RoleSettings, kw_only=True, frozen=True):
    workload_source_config: str = "/mnt/secrets-store/config.yaml"
    consumer_name_file: str = "/mnt/secrets-store/consumerName"
    works_dir: str = ""
    """Where works are kept over a restart; empty: nowhere, a restart asks for all of them."""
    kubeconfig: str = ""
    """Empty: the cluster that the agent is a pod of."""
    max_status_bytes: int = LARGEST_MESSAGE
    """The payload of one message: what AWS IoT takes, 500 KiB at most where the broker takes more."""


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("maestro-agent", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    agent_name = "work-agent"  # what managedFields say who applied
    if settings.kubeconfig:
        client = Client.from_kubeconfig(settings.kubeconfig, user_agent=agent_name)
    else:
        client = Client.in_cluster(user_agent=agent_name)
    async with client:
        agent = Agent(settings, client)
        await run_role(
            settings, [agent.broker, agent.cluster], [agent.run()], says="bundles are applied to this cluster"
        )


class Agent:
    """The parts of the agent and who speaks to whom."""

    def __init__(self, settings: Settings, client: Client) -> None:
        self._settings, self._client = settings, client
        self.cluster = Dependency("cluster")
        self.broker = Dependency("broker")
        self.works = Works()

    async def run(self) -> None:
        config, consumer = await self._configured()
        agent_id = f"{consumer}-work-agent"
        session = Session(
            self._settings.workload_source_config,
            consumer=consumer,
            agent_id=agent_id,
            works=self.works,
            changed=lambda work: reconciler.due(work),
            status_due=lambda work: reporter.due(work),
            hash_of=lambda work: reporter.hash_of(work),
            server_has=lambda sequence: reporter.server_has(sequence),
            dependency=self.broker,
        )
        hub = hub_hash(config.broker_host)
        shelf = Shelf(self._settings.works_dir, f"{consumer}-{hub[:12]}")
        if kept := shelf.load(self.works):
            log.info("works were kept over the restart", extra={"works": kept})
        records = Records(self._client, hub)
        tracker = Tracker(self._client, self._object_changed)
        reporter = Reporter(
            self.works,
            tracker,
            session.publish,
            consumer=consumer,
            agent_id=agent_id,
            told=shelf.keep,
            largest=min(LARGEST_BUNDLE, self._settings.max_status_bytes, config.profile.largest or LARGEST_BUNDLE),
        )
        reconciler = Reconciler(self._client, self.works, records, tracker, reporter, consumer, shelf)
        for known in self.works:
            reconciler.due(known.id)
        self._reporter, self._reconciler = reporter, reconciler
        records.informer.start()
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._keep_cluster(records, session),
                    session.broker.keep_connected(),
                    session.keep_resyncing(),
                    reconciler.keep_reconciling(),
                    reporter.keep_reporting(),
                    shelf.keep_writing(),
                    tracker.keep_asking(),
                    self._keep_counting(records),
                ):
                    group.create_task(work)
        finally:
            await tracker.close()
            await records.informer.stop()

    async def _configured(self) -> tuple[BrokerConfig, str]:
        backoff = Backoff()
        while True:
            try:
                config = read_config(self._settings.workload_source_config)
                consumer = mounted(self._settings.consumer_name_file).read_text().strip()
                return config, consumer
            except (OSError, ValueError) as error:
                self.broker.down(str(error))
                await backoff.pause()

    def _object_changed(self, work_id: str, ref: Ref, gone: bool) -> None:
        self._reporter.due(work_id)
        work = self.works.get(work_id)
        if work is None or not gone:
            return
        log.info("an object is gone", extra={"resource": work_id, "object": str(ref), "request_id": work.request_id})
        self._reconciler.due(work_id)

    async def _keep_cluster(self, records: Records, session: Session) -> None:
        async def ask() -> str:
            try:
                status, _, _ = await self._client.request("GET", "/version")
                async with asyncio.timeout(5):
                    await records.informer.synced()
            except ApiError as error:
                raise ConnectionError(str(error)) from None
            except TimeoutError:
                raise TimeoutError("applied works cannot be listed yet") from None
            if status != 200:
                raise ConnectionError(f"the cluster API answers {status}")
            return "the cluster API"

        async def ask_and_tell() -> str:
            try:
                found = await ask()
            except (OSError, TimeoutError) as error:
                session.cluster_is(str(error) or type(error).__name__)
                raise
            session.cluster_is("")
            return found

        await keep_asking(self.cluster, ask_and_tell)

    async def _keep_counting(self, records: Records) -> None:
        while True:
            _works.set(len(self.works))
            _strangers.set(records.strangers(self.works.names()))
            await asyncio.sleep(10)
