"""The service proxy (kube-proxy's role): listens on each Service's own address and hands connections to ready pods.

A Service without a ready pod is not listened on, so its clients are refused at once, as they are in a real cluster.
Bytes are handed from socket to socket with the loop's own flow control; nothing is kept here beyond one read.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from typing import cast

from regional.kube.node.context import NodeContext
from regional.kube.node.endpoints import Backend, Door, Listener, doors

log = logging.getLogger(__name__)
CONNECT_SECONDS = 3.0
_RETRY_SECONDS = 5.0


class ServiceProxy:
    def __init__(self, node: NodeContext, api: Backend) -> None:
        self._node = node
        self._api = api
        self._open: dict[Listener, _Entrance] = {}
        self._complained: dict[Listener, str] = {}
        self._changed = asyncio.Event()
        self._connections: set[_Front] = set()

    async def run(self) -> None:
        """Until cancelled. Every change of Services, pods or slices is a new look at all of them."""
        cluster = self._node.cluster
        for informer in (cluster.services, cluster.pods, cluster.slices):
            informer.add_handler(lambda _kind, _obj: self._changed.set())
        try:
            while True:
                self._changed.clear()
                failed = await self._sync()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_SECONDS if failed else None):
                        await self._changed.wait()
        finally:
            for entrance in self._open.values():
                entrance.close()
            for front in list(self._connections):
                front.abort()

    async def _sync(self) -> bool:
        cluster = self._node.cluster
        wanted = doors(cluster.services, cluster.pods, cluster.slices, self._api)
        for listener in [known for known in self._open if not self._is_served(known, wanted)]:
            self._open.pop(listener).close()
        failed = False
        for listener, door in wanted.items():
            if entrance := self._open.get(listener):
                entrance.backends = door.backends
            elif door.backends:
                failed |= not await self._listen(listener, door)
        return failed

    @staticmethod
    def _is_served(listener: Listener, wanted: dict[Listener, Door]) -> bool:
        return listener in wanted and bool(wanted[listener].backends)

    async def _listen(self, listener: Listener, door: Door) -> bool:
        entrance = _Entrance(door.backends, self._connections)
        try:
            await entrance.open(listener)
        except OSError as error:
            self._complain(listener, door, error)
            return False
        self._complained.pop(listener, None)
        self._open[listener] = entrance
        return True

    def _complain(self, listener: Listener, door: Door, error: OSError) -> None:
        where = f"{listener.address}:{listener.port}"
        if error.errno in (errno.EACCES, errno.EPERM):
            text = f"cannot listen on {where}: ports below 1024 need root on this machine; use a port >= 1024"
        else:
            text = f"cannot listen on {where}: {error.strerror or error}"
        if self._complained.get(listener) != text:
            self._complained[listener] = text
            log.warning("service not served", extra={"service": where, "reason": text})
            self._node.warn(door.service, "FailedToListen", text)


class _Entrance:
    """One listening socket and the pods behind it, taken in turn."""

    def __init__(self, backends: tuple[Backend, ...], connections: set[_Front]) -> None:
        self.backends = backends
        self.connections = connections
        self._turn = 0
        self._server: asyncio.Server | None = None

    async def open(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Front(self), listener.address, listener.port, backlog=1024, reuse_address=True
        )

    def close(self) -> None:
        """Connections that are under way go on."""
        if self._server is not None:
            self._server.close()

    def order(self) -> list[Backend]:
        """All of them, each time beginning with the next one."""
        if not self.backends:
            return []
        self._turn = (self._turn + 1) % len(self.backends)
        return [*self.backends[self._turn :], *self.backends[: self._turn]]


class _End(asyncio.Protocol):
    """One side of a connection. What it reads goes to the other side; when that is full, it stops reading."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _End | None = None
        self.said_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """Half-close: the other direction may still have much to say. When both are done, so is the connection."""
        self.said_all = True
        peer = self.peer
        if peer is None or peer.transport is None:
            return False
        if peer.said_all:
            peer.transport.close()
            return False
        with contextlib.suppress(OSError, RuntimeError):
            peer.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        peer, self.transport, self.peer = self.peer, None, None
        if peer is None or peer.transport is None:
            return
        if error is None:
            peer.transport.close()
        else:
            peer.transport.abort()


class _Front(_End):
    """The client's side. What it says before a pod has taken the connection is kept and read no further.

    Not reading at all would be simpler, but uvloop starts to read after connection_made and forgets a pause in it.
    """

    def __init__(self, entrance: _Entrance) -> None:
        super().__init__()
        self._entrance = entrance
        self._connecting: asyncio.Task[None] | None = None
        self._early = b""
        self._early_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            super().data_received(data)
            return
        self._early += data
        if self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        if self.peer is None:
            self._early_end = True
            return True
        return super().eof_received()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        back = _End()
        back.peer = self  # from the first byte on: some servers speak first
        for host, port in self._entrance.order():
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await loop.create_connection(lambda: back, host, port)
                break
            except (OSError, TimeoutError):
                continue  # it died a moment ago; the next one takes it
        front = self.transport
        if back.transport is None or front is None or front.is_closing():
            for transport in (back.transport, front):
                if transport is not None:
                    transport.abort()
            return
        self.peer, back.peer = back, self
        if self._early:
            back.transport.write(self._early)
            self._early = b""
        if self._early_end:
            super().eof_received()
        front.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._connecting is not None and not self._connecting.done() and self.peer is None:
            self._connecting.cancel()
        self._entrance.connections.discard(self)
        super().connection_lost(error)

    def abort(self) -> None:
        for end in (self, self.peer):
            if end is not None and end.transport is not None:
                end.transport.abort()
