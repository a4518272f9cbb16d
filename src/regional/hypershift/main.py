"""`regionctl serve hypershift`: the operator as a pod of its Management Cluster."""

from __future__ import annotations

import asyncio
import contextlib

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Dependency, RoleSettings, keep_asking, run_role
from regional.core.settings import load
from regional.hypershift.names import FIELD_MANAGER, MANAGED
from regional.hypershift.operator import Operator, OperatorSettings
from regional.hypershift.releases import supported_versions
from regional.kube.client import ApiError, Client, pod_namespace


class Settings(RoleSettings, kw_only=True, frozen=True):
    image: str = "regional/regional"
    workers: int = 8
    resync_seconds: float = 60.0
    oidc_storage_provider_s3_bucket_name: str = ""
    oidc_storage_provider_s3_region: str = ""


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("hypershift", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    cluster = Dependency("cluster")
    async with Client.in_cluster(user_agent="hypershift-operator") as client:
        operator = Operator(
            client,
            OperatorSettings(image=settings.image, workers=settings.workers, resync_seconds=settings.resync_seconds),
        )
        listed = asyncio.Event()
        await run_role(
            settings,
            [cluster],
            [operator.run(listed), follow_cluster(client, cluster, listed)],
            says="hosted clusters are reconciled",
        )


async def follow_cluster(client: Client, cluster: Dependency, listed: asyncio.Event) -> None:
    async def ask() -> str:
        try:
            status, _, _ = await client.request("GET", "/version")
            if status != 200:
                raise ConnectionError(f"the cluster API answers {status}")
            async with asyncio.timeout(5):
                await listed.wait()
        except ApiError as error:
            raise ConnectionError(str(error)) from None
        except TimeoutError:
            raise TimeoutError("hosted clusters and their parts cannot be listed yet") from None
        with contextlib.suppress(ApiError):
            await publish_versions(client)
        return "the cluster API"

    await keep_asking(cluster, ask, every=30.0)


async def publish_versions(client: Client) -> None:
    """Which releases can be asked for, where HyperShift's clients look for it."""
    versions = ", ".join(f'"{version}"' for version in supported_versions())
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "supported-versions",
            "namespace": pod_namespace(),
            "labels": {**MANAGED, "hypershift.openshift.io/supported-versions": "true"},
        },
        "data": {"supported-versions": f'{{"versions":[{versions}]}}', "server-version": "regional"},
    }
    await client.apply(wanted, field_manager=FIELD_MANAGER, force=True)
