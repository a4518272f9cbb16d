"""A client that costs next to nothing, so that the bench measures the server: HTTP/1.1 over a blocking TLS socket.

The same bytes go to either server. Requests are made beforehand where the clock must not see it.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Endpoint:
    address: str
    port: int
    pki: Path  # ca.crt, admin.crt, admin.key

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        return context

    def dial(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        raw = socket.create_connection((self.address, self.port), timeout=60)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return (context or self.context()).wrap_socket(raw, server_hostname=self.address)


def request(method: str, path: str, body: Any = None, media: str = "application/json") -> bytes:
    content = b"" if body is None else msgspec.json.encode(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: kubernetes\r\nAccept: application/json\r\nUser-Agent: bench\r\n"
    if body is not None:
        head += f"Content-Type: {media}\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


class Connection:
    def __init__(self, endpoint: Endpoint) -> None:
        self._socket = endpoint.dial()
        self._received = bytearray()

    def close(self) -> None:
        self._socket.close()

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """(status, body)"""
        self._socket.sendall(data)
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            self._more()
        head = bytes(self._received[:end]).lower()
        del self._received[: end + 4]
        status = int(head[9:12])
        place = head.find(b"\r\ncontent-length:")
        if place >= 0:
            return status, self._take(int(head[place + 17 :].split(b"\r\n", 1)[0]))
        return status, self._chunked()

    def must(self, data: bytes) -> bytes:
        status, body = self.ask(data)
        if status >= 300:
            raise SystemExit(f"{data.split(b' HTTP', 1)[0].decode()}: {status} {body[:500].decode(errors='replace')}")
        return body

    def _more(self) -> None:
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._received += data

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _chunked(self) -> bytes:
        parts = []
        while True:
            while (end := self._received.find(b"\r\n")) < 0:
                self._more()
            size = int(self._take(end + 2), 16)
            parts.append(self._take(size))
            self._take(2)
            if not size:
                return b"".join(parts)
