"""`regionctl serve hypershift`: watches HostedClusters; it does not reconcile them yet."""

from __future__ import annotations

import asyncio
import logging

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Dependency, RoleSettings, keep_asking, run_role
from regional.core.settings import load
from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import Obj, key_of

log = logging.getLogger(__name__)

HOSTED_CLUSTERS = ("hypershift.openshift.io/v1beta1", "HostedCluster")


class Settings(RoleSettings, kw_only=True, frozen=True):
    oidc_storage_provider_s3_bucket_name: str = ""
    oidc_storage_provider_s3_region: str = ""


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("hypershift", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    cluster = Dependency("cluster")
    await run_role(
        settings, [cluster], [follow_hosted_clusters(cluster)], says="hosted clusters are seen and not reconciled yet"
    )


async def follow_hosted_clusters(cluster: Dependency) -> None:
    async with Client.in_cluster(user_agent="hypershift-operator") as client:
        hosted = Informer(client, *HOSTED_CLUSTERS, handler=_seen)
        hosted.start()

        async def ask() -> str:
            try:
                status, _, _ = await client.request("GET", "/version")
                await asyncio.wait_for(hosted.synced(), 5)
            except ApiError as error:
                raise ConnectionError(str(error)) from None
            except TimeoutError:
                raise TimeoutError("hosted clusters cannot be listed yet") from None
            if status != 200:
                raise ConnectionError(f"the cluster API answers {status}")
            return "the cluster API"

        try:
            await keep_asking(cluster, ask)
        finally:
            await hosted.stop()


def _seen(change: str, obj: Obj) -> None:
    log.info("hosted cluster seen", extra={"change": change.lower(), "hostedcluster": "/".join(key_of(obj))})
