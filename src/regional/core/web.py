"""Web basics: an uvicorn server that lives inside a running event loop, and the health and metrics doors of a role."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from regional.core.problems import Problem
from regional.core.queue_metrics import exposition

KEEP_ALIVE_SECONDS = 75
"""For a connection that is idle: longer than clients and load balancers do, because who closes first must not be the
server. A request that meets a closing connection fails, and not every request may be repeated."""
Check = Callable[[], Awaitable[str]]  # returns "" when well, else one sentence that says what is missing


class _Server(uvicorn.Server):
    """Leaves signals to the role, and sleeps while nothing happens: uvicorn's own loop looks ten times a second whether
    it should leave, which costs more than all the work of a region at rest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # renews the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def serving(
    app: Any, host: str, port: int, *, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[uvicorn.Server]:
    """Serve while the block runs. Raises OSError (address in use) before the block starts."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=3,
        **{"timeout_keep_alive": KEEP_ALIVE_SECONDS, **options},
    )
    config.load()
    if tls is not None:
        config.ssl = tls
    server = _Server(config)
    sock = _bind(host, port)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    try:
        yield server
    finally:
        server.leave()
        await asyncio.wait([task], timeout=5)
        sock.close()
        await _cut(server)


async def _cut(server: uvicorn.Server) -> None:
    """Connections whose peer does not answer our goodbye (TLS has one) are not left open."""
    left = [connection for connection in server.server_state.connections if hasattr(connection, "transport")]
    for connection in left:
        if connection.transport is not None:
            connection.transport.abort()
    if left:
        await asyncio.sleep(0)  # their sockets are closed in the loop's next turn


def _bind(host: str, port: int) -> Any:
    import socket

    # With the protocol named: asyncio turns Nagle's algorithm off only for sockets that say that they are TCP.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    sock.set_inheritable(False)
    return sock


def health_app(checks: dict[str, Check]) -> Starlette:
    """/healthz and /livez (the process turns, whatever is away), /readyz (every check passes; the body names those that
    do not), /healthcheck (the same in the words of Maestro's own server), /metrics."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def missing_now() -> dict[str, str]:
        missing = {}
        for name, check in checks.items():
            try:
                reason = await check()
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            if reason:
                missing[name] = reason
        return missing

    async def readyz(_: Request) -> Response:
        if missing := await missing_now():
            return JSONResponse({"ready": False, "waitingFor": missing}, status_code=503)
        return JSONResponse({"ready": True})

    async def healthcheck(_: Request) -> Response:
        if await missing_now():
            return JSONResponse({"status": "not ready"}, status_code=503)
        return JSONResponse({"status": "ok"})

    routes = {
        "/healthz": healthz,
        "/livez": healthz,
        "/readyz": readyz,
        "/healthcheck": healthcheck,
        "/metrics": _metrics,
    }
    return Starlette(routes=[Route(path, handler) for path, handler in routes.items()])


def metrics_app() -> Starlette:
    """/metrics alone, for those who want it on a port of its own."""
    return Starlette(routes=[Route("/metrics", _metrics)])


async def _metrics(_: Request) -> Response:
    text = prometheus_client.generate_latest() + exposition().encode()
    return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)


async def problem_handler(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSONResponse(error.document(), status_code=error.status, media_type="application/problem+json")


def stop_event() -> asyncio.Event:
    """Set by SIGTERM or SIGINT: a role's main waits on it, then leaves in order."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
