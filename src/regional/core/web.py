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
                await asyncio.wait_for(self._leaving.wait(), 1.0)

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
        **options,
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
    """/healthz (the process turns), /readyz (every check passes; the body names those that do not), /metrics."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        missing = {}
        for name, check in checks.items():
            try:
                reason = await check()
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            if reason:
                missing[name] = reason
        if missing:
            return JSONResponse({"ready": False, "waitingFor": missing}, status_code=503)
        return JSONResponse({"ready": True})

    async def metrics(_: Request) -> Response:
        return Response(prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])


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
