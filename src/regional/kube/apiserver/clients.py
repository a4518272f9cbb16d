"""Who is at the other end of a connection, and how long we wait for a client that does not go on.

uvicorn waits for ever for the rest of a request, and for a client that does not read. Every connection notes since when
it has been kept waiting for the other side; one sweep now and then ends those that are overdue.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterable

import uvicorn

from regional.kube.apiserver.authn import certificate_user
from regional.kube.apiserver.connections import DirectProtocol
from regional.kube.messages import User

log = logging.getLogger(__name__)

PATIENCE = 60.0  # seconds for a whole request to come in, and for a client to take what we send
SWEEP_SECONDS = 15.0
SPARE_DESCRIPTORS = 256  # for data files, kubelets and ourselves


class Peer:
    """The other end: its certificate as the handshake verified it, and what to do when it goes."""

    __slots__ = ("certificate", "leaving", "user")

    def __init__(self, user: User | None, certificate: bytes) -> None:
        self.user = user
        self.certificate = certificate  # DER, or empty
        self.leaving: list[Callable[[], None]] = []

    def leave(self) -> None:
        leaving, self.leaving = self.leaving, []
        for callback in leaving:
            callback()


def connection_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(64, soft - SPARE_DESCRIPTORS)


class ClientConnection(DirectProtocol):
    """`asking_since` and `stuck_since` are moments of the loop's clock; 0 means that it is not the client's turn."""

    limit = staticmethod(connection_limit)
    asking_since = 0.0
    stuck_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        der = (tls.getpeercert(binary_form=True) if tls is not None else None) or b""
        user = certificate_user(tls.getpeercert(), der) if der else None
        self.peer = Peer(user, der)
        self.app_state = {**self.app_state, "peer": self.peer}
        self.asking_since = self.loop.time()
        if len(self.connections) > self.limit():
            log.warning("too many connections: one is turned away", extra={"open": len(self.connections)})
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.peer.leave()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.asking_since = self.loop.time()

    def on_message_complete(self) -> None:
        self.asking_since = 0.0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stuck_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stuck_since = 0.0

    def overdue(self, now: float, patience: float) -> bool:
        return any(since and now - since > patience for since in (self.asking_since, self.stuck_since))


async def end_the_overdue(server: uvicorn.Server, patience: float = PATIENCE, every: float = SWEEP_SECONDS) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every)
        _sweep(tuple(server.server_state.connections), loop.time(), patience)


def _sweep(connections: Iterable[object], now: float, patience: float) -> None:
    for connection in connections:
        if isinstance(connection, ClientConnection) and connection.overdue(now, patience):
            log.info("a client that did not go on is disconnected", extra={"client": str(connection.client)})
            connection.transport.abort()
