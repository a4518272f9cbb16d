"""A client of pods/exec and pods/attach that sees each channel: what kubectl hides."""

from __future__ import annotations

import asyncio
import base64
from typing import Self
from urllib.parse import urlencode

import aiohttp
import yaml

from regional.kube.client.config import tls_context
from tests.kube_node.harness import NodeCluster

_SECONDS = 120.0


class Channels:
    def __init__(
        self, cluster: NodeCluster, pod: str, command: list[str] | None, *, tty: bool = False, protocol: str = "v5"
    ) -> None:
        """Without a command: attach."""
        query = [("stdin", "true"), ("stdout", "true"), *([("tty", "true")] if tty else [("stderr", "true")])]
        query += [("command", word) for word in command or []]
        part = "attach" if command is None else "exec"
        self._path = f"/api/v1/namespaces/default/pods/{pod}/{part}?{urlencode(query)}"
        document = yaml.safe_load(cluster.admin.read_text())
        self._server = document["clusters"][0]["cluster"]["server"]
        user = document["users"][0]["user"]
        self._tls = tls_context(
            ca=(cluster.files.certificates / "ca.crt").read_bytes(),
            certificate=base64.b64decode(user["client-certificate-data"]),
            key=base64.b64decode(user["client-key-data"]),
        )
        self._protocol = f"{protocol}.channel.k8s.io"
        self._session: aiohttp.ClientSession
        self._socket: aiohttp.ClientWebSocketResponse
        self.output = b""
        self._status = b""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(
            self._server + self._path, ssl=self._tls, protocols=(self._protocol,)
        )
        assert self._socket.protocol == self._protocol
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        await self._session.close()

    async def send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes([channel]) + data)

    async def raw(self, message: bytes) -> None:
        await self._socket.send_bytes(message)

    async def until(self, wanted: bytes) -> None:
        async with asyncio.timeout(_SECONDS):
            while wanted not in self.output:
                assert await self._next(), self.output

    async def status(self) -> bytes:
        """What is said on the error channel; the server closes after it."""
        async with asyncio.timeout(_SECONDS):
            while await self._next():
                pass
        return self._status

    async def _next(self) -> bool:
        message = await self._socket.receive()
        if message.type != aiohttp.WSMsgType.BINARY:
            return False
        if message.data[0] == 1:
            self.output += message.data[1:]
        elif message.data[0] == 3:
            self._status += message.data[1:]
        return True
