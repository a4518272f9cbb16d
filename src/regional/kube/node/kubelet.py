"""The kubelet's own door, used by the API for `kubectl logs` and `kubectl exec`: TLS, and only for masters.

Who holds a certificate of the cluster's authority is somebody; what they may do is the API's to decide. So the door
opens for the API's own certificate and for nobody with less.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regional.core.upgrades import Upgrades
from regional.core.web import serving
from regional.kube.messages import MASTERS
from regional.kube.node.container_logs import LogOptions, parse_options, read_log, rotate
from regional.kube.node.containers import Container
from regional.kube.node.context import NodeContext
from regional.kube.node.kubelet_streams import KubeletStreams
from regional.kube.node.pods import Pods

log = logging.getLogger(__name__)
ROTATE_SECONDS = 30.0


class Kubelet:
    def __init__(self, node: NodeContext, pods: Pods) -> None:
        self._node = node
        self._pods = pods
        self._upgrades = Upgrades(KubeletStreams.wanted, KubeletStreams(node, pods).handle)
        self.app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/pods", _trusted(self._list)),
                Route("/containerLogs/{namespace}/{pod}/{container}", _trusted(self._logs)),
            ]
        )

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        settings = self._node.settings
        protocol = self._upgrades.protocol(_TrustingProtocol)
        tls = _tls(Path(settings.pki))
        async with serving(self.app, settings.address, settings.port, tls=tls, http=protocol, ws="none"):
            try:
                yield
            finally:
                await self._upgrades.close()

    async def keep_logs_small(self) -> None:
        """Until cancelled."""
        while True:
            await self._node.clock.sleep(ROTATE_SECONDS)
            for worker in self._pods.workers():
                for container in (*worker.init, *worker.main):
                    path = container.directory.log(container.attempts)
                    limit, kept = self._node.settings.log_limit_bytes, self._node.settings.log_pieces
                    if await asyncio.to_thread(rotate, path, limit, kept):
                        log.info("log rotated", extra={"pod": worker.name, "container": container.name})

    async def _healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok")

    async def _list(self, _: Request) -> Response:
        items = [worker.pod for worker in self._pods.workers()]
        return JSONResponse({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})

    async def _logs(self, request: Request) -> Response:
        names = request.path_params
        worker = self._pods.worker_of(names["namespace"], names["pod"])
        if worker is None:
            return PlainTextResponse(f'pod "{names["namespace"]}/{names["pod"]}" is not on this node', 404)
        container = worker.container(names["container"])
        if container is None:
            return PlainTextResponse(f'container "{names["container"]}" is not in pod "{names["pod"]}"', 404)
        query = dict(request.query_params)
        try:
            options = parse_options(query, self._node.clock.now())
            attempt, started = _attempt(container, query.get("previous", "").lower() in ("true", "1"), names["pod"])
        except ValueError as error:
            return PlainTextResponse(str(error), 400)
        path = container.directory.log(attempt)
        if attempt != container.attempts:
            options = LogOptions(False, options.tail_lines, options.since, options.timestamps, options.limit_bytes)

        def running() -> bool:
            return container.running and container.attempts == attempt

        content = read_log(path, options, started, running, self._node.clock)
        return StreamingResponse(content, media_type="text/plain")


class _TrustingProtocol(HttpToolsProtocol):
    """Notes whether the peer's certificate is a master's."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        subject = tls.getpeercert().get("subject", ()) if tls is not None else ()
        groups = {value for part in subject for name, value in part if name == "organizationName"}
        self.app_state = {**self.app_state, "trusted": MASTERS in groups}


def _trusted(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def checked(request: Request) -> Response:
        if not request.scope.get("state", {}).get("trusted"):
            return PlainTextResponse("Forbidden", 403)
        return await handle(request)

    return checked


def _attempt(container: Container, previous: bool, pod: str) -> tuple[int, str]:
    """Which attempt's log is meant, and when that attempt began."""
    record = container.record
    if record is None:
        reason = container.waiting.reason if container.waiting else "ContainerCreating"
        raise ValueError(f'container "{container.name}" in pod "{pod}" is waiting to start: {reason}')
    if not previous:
        return record.attempt, record.asked
    if record.last is None:
        raise ValueError(f'previous terminated container "{container.name}" in pod "{pod}" not found')
    return record.attempt - 1, record.last.started


def _tls(pki: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
    context.load_verify_locations(pki / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
