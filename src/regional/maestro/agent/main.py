"""`regionctl serve maestro-agent`: keeps its broker session and its cluster's API; nothing is applied yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from awscrt import mqtt5

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mounts import mounted
from regional.core.mqtt import Broker, BrokerConfig
from regional.core.role import Dependency, RoleSettings, keep_asking, run_role
from regional.core.settings import load
from regional.kube.client import ApiError, Client, Informer

log = logging.getLogger(__name__)

WORKS = ("work.open-cluster-management.io/v1", "AppliedManifestWork")


class Settings(RoleSettings, kw_only=True, frozen=True):
    workload_source_config: str = "/mnt/secrets-store/config.yaml"
    consumer_name_file: str = "/mnt/secrets-store/consumerName"


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("maestro-agent", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    def own_topics(config: BrokerConfig) -> Sequence[str]:
        """Only what is addressed to this consumer, whatever wildcard the configuration has."""
        consumer = mounted(settings.consumer_name_file).read_text().strip()
        head, wildcard, tail = config.topics.source_events.rpartition("+")
        return [f"{head}{consumer}{tail}" if wildcard else config.topics.source_events]

    broker = Broker(settings.workload_source_config, own_topics, _received)
    cluster = Dependency("cluster")
    await run_role(
        settings,
        [broker.dependency, cluster],
        [broker.keep_connected(), follow_works(cluster)],
        says="nothing is applied yet",
    )


def _received(packet: mqtt5.PublishPacket) -> None:
    log.info("a bundle was received and not applied", extra={"topic": packet.topic})


async def follow_works(cluster: Dependency) -> None:
    """The records of what was applied, as this cluster has them."""
    async with Client.in_cluster(user_agent="work-agent") as client:
        works = Informer(client, *WORKS)
        works.start()

        async def ask() -> str:
            try:
                status, _, _ = await client.request("GET", "/version")
                await asyncio.wait_for(works.synced(), 5)
            except ApiError as error:
                raise ConnectionError(str(error)) from None
            except TimeoutError:
                raise TimeoutError("applied works cannot be listed yet") from None
            if status != 200:
                raise ConnectionError(f"the cluster API answers {status}")
            return "the cluster API"

        try:
            await keep_asking(cluster, ask)
        finally:
            await works.stop()
