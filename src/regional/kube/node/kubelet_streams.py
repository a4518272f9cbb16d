"""The kubelet's connections that turn into streams: exec, attach and port-forward, as the API hands them on.

Our own API hands the client's WebSocket on as it is; kube-apiserver translates to SPDY. Both are answered.
"""

from __future__ import annotations

import http

import msgspec

from regional.core.upgrades import Upgrade
from regional.kube.node.attach_sessions import attach
from regional.kube.node.containers import Container
from regional.kube.node.context import NodeContext
from regional.kube.node.exec_sessions import ERROR, STDERR, STDOUT, ExecSession, Wanted, Wire, failure
from regional.kube.node.pod import PodWorker
from regional.kube.node.pods import Pods
from regional.kube.node.port_forwarding import PROTOCOL as PORT_FORWARD
from regional.kube.node.port_forwarding import PortForward, SocketCarrier, switch_to_spdy
from regional.kube.node.spdy import Carrier, PlainCarrier
from regional.kube.node.spdy_wire import SpdyWire
from regional.kube.node.websocket import WebSocket, accept, offered

_V5, _V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_ANSWERED = (b"/exec/", b"/attach/", b"/portForward/")
_TUNNEL = f"SPDY/3.1+{PORT_FORWARD}"


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class KubeletStreams:
    def __init__(self, node: NodeContext, pods: Pods) -> None:
        self._node = node
        self._pods = pods

    @staticmethod
    def wanted(target: bytes) -> bool:
        return target.startswith(_ANSWERED)

    async def handle(self, upgrade: Upgrade) -> None:
        try:
            if not upgrade.state.get("trusted"):
                raise Refused(403, "Forbidden")
            await self._serve(upgrade)
        except Refused as refused:
            headers = {"content-type": "text/plain; charset=utf-8"}
            upgrade.refuse(refused.status, http.HTTPStatus(refused.status).phrase, headers, str(refused).encode())
            await upgrade.writer.drain()

    async def _serve(self, upgrade: Upgrade) -> None:
        match upgrade.path.split("/")[1:]:
            case ["exec", namespace, pod, container]:
                worker, found = self._running(namespace, pod, container)
                await self._exec(upgrade, worker, found)
            case ["attach", namespace, pod, container]:
                _, found = self._running(namespace, pod, container)
                await attach(self._wire(upgrade), found, self._node.clock)
            case ["portForward", namespace, pod]:
                forwarded = self._pods.worker_of(namespace, pod)
                if forwarded is None or not forwarded.address:
                    raise Refused(404, "pod does not exist")
                await PortForward(_port_carrier(upgrade), pod, forwarded.uid, forwarded.address).run()
            case _:
                raise Refused(404, "404 page not found")

    def _running(self, namespace: str, pod: str, name: str) -> tuple[PodWorker, Container]:
        worker = self._pods.worker_of(namespace, pod)
        if worker is None:
            raise Refused(404, "pod does not exist")
        container = worker.container(name)
        if container is None or not container.running:
            raise Refused(404, f'container not found ("{name}")')
        return worker, container

    async def _exec(self, upgrade: Upgrade, worker: PodWorker, container: Container) -> None:
        command = [value for key, value in upgrade.query if key == "command"]
        if not command:
            raise Refused(400, "you must specify at least 1 command for the container")
        wanted = _options(upgrade)
        launch = await worker.launch_of(container)
        wire = await self._wire(upgrade)
        if launch is None:
            await wire.send(ERROR, msgspec.json.encode(failure("the container's environment could not be rebuilt")))
            await wire.close()
            return
        await ExecSession(wire, wanted).run(container, launch, self._node.spawner, command)

    async def _wire(self, upgrade: Upgrade) -> Wire:
        wanted = _options(upgrade)
        if upgrade.kind == "websocket":
            names = offered(upgrade)
            protocol = next((name for name in (_V5, _V4) if name in names), None)
            if protocol is None:
                raise Refused(400, f"none of the protocols is supported: {', '.join(names)}; there are {_V5}, {_V4}")
            wire = WebSocketWire(accept(upgrade, protocol))
            await wire.greet(wanted)
            return wire
        if _V4 not in _stream_protocols(upgrade):
            raise Refused(403, f"unable to upgrade: unable to negotiate protocol: server supports [{_V4}]")
        switch_to_spdy(upgrade, _V4)
        streams = SpdyWire(PlainCarrier(upgrade.reader, upgrade.writer), wanted)
        if not await streams.opened():
            await streams.close()
            raise ConnectionError("timed out waiting for client to create streams")
        return streams


class WebSocketWire:
    """Each message begins with its channel's number."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def greet(self, wanted: Wanted) -> None:
        """An empty message for each channel tells clients that wait for it that the connection stands."""
        for channel, asked in ((STDOUT, wanted.stdout), (STDERR, wanted.stderr and not wanted.tty), (ERROR, True)):
            if asked:
                await self._socket.send(bytes([channel]))

    async def receive(self) -> tuple[int, bytes] | None:
        while (message := await self._socket.receive()) is not None:
            if message:
                return message[0], message[1:]
        return None

    async def send(self, channel: int, data: bytes) -> None:
        await self._socket.send(bytes([channel]) + data)

    async def look(self) -> None:
        await self._socket.ping()

    async def close(self) -> None:
        await self._socket.close()


def _stream_protocols(upgrade: Upgrade) -> list[str]:
    joined = upgrade.headers.get("x-stream-protocol-version", "").replace("\n", ",")
    return [name.strip() for name in joined.split(",")]


def _port_carrier(upgrade: Upgrade) -> Carrier:
    if upgrade.kind == "websocket":
        if _TUNNEL not in offered(upgrade):
            raise Refused(400, f"none of the protocols is supported: there is {_TUNNEL}")
        return SocketCarrier(accept(upgrade, _TUNNEL))
    if PORT_FORWARD not in _stream_protocols(upgrade):
        raise Refused(403, f"unable to upgrade: unable to negotiate protocol: server supports [{PORT_FORWARD}]")
    switch_to_spdy(upgrade, PORT_FORWARD)
    return PlainCarrier(upgrade.reader, upgrade.writer)


def _options(upgrade: Upgrade) -> Wanted:
    given = dict(upgrade.query)

    def flag(name: str) -> bool:
        return given.get(name, "").lower() in ("1", "true")

    wanted = Wanted(flag("input"), flag("output"), flag("error"), flag("tty"))
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise Refused(400, "you must specify at least 1 of stdin, stdout, stderr")
    return wanted
