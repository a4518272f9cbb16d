"""`kubectl port-forward`: connections of a client to ports of a pod, many on one connection to the kubelet.

Each of them is a pair of streams: one for the bytes, one for what went wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from regional.core.upgrades import Upgrade
from regional.kube.node.spdy import STREAMS_LIMIT, Carrier, SpdyConnection, SpdyStream
from regional.kube.node.websocket import WebSocket

log = logging.getLogger(__name__)
PROTOCOL = "portforward.k8s.io"
_CONNECT_SECONDS = 5.0
_QUEUED = 16


class PortForward:
    """All connections of one client to one pod."""

    def __init__(self, carrier: Carrier, pod: str, uid: str, address: str) -> None:
        self._pod, self._uid, self._address = pod, uid, address
        self._spdy = SpdyConnection(carrier, self._welcome, self._deliver)
        self._halves: dict[str, dict[str, SpdyStream]] = {}
        self._queues: dict[int, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            await self._spdy.run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _welcome(self, stream: SpdyStream) -> bool:
        kind, port = stream.headers.get("streamtype"), stream.headers.get("port", "")
        if kind not in ("data", "error") or not port.isdigit() or not 0 < int(port) < 1 << 16:
            return False
        if len(self._queues) >= STREAMS_LIMIT or len(self._halves) >= STREAMS_LIMIT:
            return False  # halves that were opened and given up count as well
        # Clients that do not number their requests open the two streams one after the other: error, then data.
        request = stream.headers.get("requestid") or str(stream.number - (2 if kind == "data" else 0))
        pair = self._halves.setdefault(request, {})
        pair[kind] = stream
        if kind == "data":
            self._queues[stream.number] = asyncio.Queue(_QUEUED)
        if len(pair) == 2:
            del self._halves[request]
            task = asyncio.create_task(self._forward(pair["data"], pair["error"], int(port)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    async def _deliver(self, stream: SpdyStream, data: bytes) -> None:
        queue = self._queues.get(stream.number)
        if queue is not None:
            await queue.put(data)

    async def _forward(self, data: SpdyStream, error: SpdyStream, port: int) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(self._address, port)
        except (OSError, TimeoutError) as problem:
            why = "connect: connection refused" if isinstance(problem, ConnectionRefusedError) else str(problem)
            text = f"failed to connect to {self._address}:{port} inside pod: {why or 'i/o timeout'}"
            with contextlib.suppress(OSError):
                await error.write(f"error forwarding port {port} to pod {self._pod}, uid {self._uid}: {text}".encode())
            await self._end(data, error)
            return
        sending = asyncio.create_task(self._send(data, writer))
        try:
            while block := await reader.read(1 << 15):
                await data.write(block)
        except OSError:
            pass  # either side is gone
        finally:
            sending.cancel()
            writer.close()
            await self._end(data, error)

    async def _send(self, data: SpdyStream, writer: asyncio.StreamWriter) -> None:
        queue = self._queues[data.number]
        with contextlib.suppress(OSError):
            while block := await queue.get():
                writer.write(block)
                await writer.drain()
            writer.write_eof()

    async def _end(self, data: SpdyStream, error: SpdyStream) -> None:
        queue = self._queues.pop(data.number, None)
        while queue is not None and not queue.empty():
            queue.get_nowait()  # frees a delivery that waits for room
        with contextlib.suppress(OSError):
            await data.close()
            await error.close()
        for stream in (data, error):
            self._spdy.forget(stream.number)


class SocketCarrier:
    """Frames inside a WebSocket's messages, cut wherever its sender liked."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._held = b""

    async def read(self, size: int) -> bytes:
        parts, have = [self._held], len(self._held)
        while have < size:
            message = await self._socket.receive()
            if message is None:
                raise EOFError
            parts.append(message)
            have += len(message)
        whole = b"".join(parts)
        self._held = whole[size:]
        return whole[:size]

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)


def switch_to_spdy(upgrade: Upgrade, protocol: str) -> None:
    upgrade.writer.write(
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            f"X-Stream-Protocol-Version: {protocol}\r\n\r\n"
        ).encode()
    )
