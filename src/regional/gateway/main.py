"""`regionctl serve gateway`: the region's edge on one machine. In the cloud this is API Gateway itself."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import msgspec

from regional.core import loop
from regional.core.logs import setup_logging
from regional.core.problems import UserError
from regional.core.role import Dependency, keep_reaching
from regional.core.settings import load
from regional.core.web import health_app, serving, stop_event
from regional.gateway.app import Edge, Gateway
from regional.gateway.connections import EdgeProtocol
from regional.gateway.keyring import KeyRing
from regional.gateway.upstream import Upstream

log = logging.getLogger(__name__)

# Nobody stands in front of the edge: an X-Forwarded-For that arrives here is a client's own invention.
SERVER: dict[str, Any] = {
    "http": EdgeProtocol,
    "ws": "none",
    "timeout_keep_alive": 60,
    "proxy_headers": False,
    "server_header": False,
}


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    address: str
    certificate: str
    key: str
    upstream: str
    aws_endpoint: str
    lookup_token_file: str
    secret_file: str
    region: str
    port: int = 8443
    health_port: int = 8083  # /healthz, /readyz and /metrics, without TLS and without signatures
    stage: str = "prod"
    hosts: list[str] = []  # further names that the certificate has
    log_level: str = "info"


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("gateway", settings.log_level)
    loop.run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    edge = Edge(
        hosts=[settings.address, *(host.lower() for host in settings.hosts)],
        region=settings.region,
        stage=settings.stage,
        secret_file=Path(settings.secret_file),
    )
    keys = KeyRing(settings.aws_endpoint, Path(settings.lookup_token_file))
    upstream = Upstream(settings.upstream)
    aws = Dependency("aws")
    tls = _tls(settings)
    stop = stop_event()
    asking = asyncio.create_task(keep_reaching(f"{settings.aws_endpoint}/_regional/healthz", aws))
    try:
        async with (
            # What is behind it may be away: the edge then says so itself, and is still the edge.
            serving(health_app({"aws": aws.check}), settings.address, settings.health_port),
            serving(Gateway(edge, keys, upstream), settings.address, settings.port, tls=tls, **SERVER),
        ):
            log.info(
                "ready: it verifies signatures and hands requests on",
                extra={"address": f"{settings.address}:{settings.port}", "upstream": settings.upstream},
            )
            await stop.wait()
            log.info("stopping")
    except OSError as error:
        where = f"{settings.address}:{settings.port} and :{settings.health_port}"
        raise UserError(f"cannot listen on {where}: {error.strerror or error}", "see `regionctl doctor`") from None
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await upstream.close()
        await keys.close()


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"cannot use {settings.certificate}: {error}", "provision api-gateway again") from None
    return context
