"""`regionctl serve platform-api`: the customers' API, for requests that come from the region's gateway."""

from __future__ import annotations

import msgspec

from regional.clm.client import ClmClient
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mounts import mounted
from regional.core.role import Dependency, Door, RoleSettings, keep_reaching, run_role
from regional.core.settings import load
from regional.maestro.client import MaestroClient
from regional.platform_api.accounts import Accounts
from regional.platform_api.app import Api
from regional.platform_api.identity import GatewaySecret
from regional.platform_api.operations import Region


class Settings(RoleSettings, kw_only=True, frozen=True):
    port: int = 8000
    clm_url: str = "http://clm-api.clm:8000"
    maestro_url: str = "http://maestro-http.maestro-server:8080"
    gateway_secret_file: str = "/mnt/secrets-store/gateway.secret"
    # Accounts that run the region: its own. From a file too, because charts know no account ids.
    privileged_accounts: list[str] = msgspec.field(default_factory=list)
    privileged_accounts_file: str = ""


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("platform-api", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    reachable = Dependency("clm")
    clm = ClmClient(settings.clm_url)
    maestro = MaestroClient(settings.maestro_url)
    region = Region(clm, maestro, Accounts(clm, privileged_accounts(settings)), reachable.check)
    api = Api(region, GatewaySecret(mounted(settings.gateway_secret_file)))
    try:
        await run_role(
            settings,
            # Maestro is not one of them: without it customers' own requests are still served.
            [reachable],
            [keep_reaching(f"{settings.clm_url}/healthz", reachable)],
            doors=[Door(api.application(), settings.port)],
            says="it serves customers' requests",
        )
    finally:
        await clm.close()
        await maestro.close()


def privileged_accounts(settings: Settings) -> frozenset[str]:
    listed = list(settings.privileged_accounts)
    if settings.privileged_accounts_file:
        listed += mounted(settings.privileged_accounts_file).read_text().replace(",", " ").split()
    return frozenset(listed)
