"""A request and its answer without HTTP, so that controllers and tests reach the API with no socket between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

MASTERS = "system:masters"


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = {}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
LOCAL = User("system:apiserver", (MASTERS, "system:authenticated"))


class Request(msgspec.Struct):
    method: str
    path: str
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}  # names in lower case
    body: bytes = b""
    user: User = LOCAL
    upgradable: bool = False  # the client's connection can go on as a stream of another protocol (`Response.tunnel`)

    def parameter(self, name: str, default: str = "") -> str:
        for key, value in self.query:
            if key == name:
                return value
        return default

    def flag(self, name: str) -> bool:
        """Given and not said to be false: the real server's reading of a switch."""
        return self.parameter(name, "false").lower() not in ("false", "0")


class Response(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes] = b""
    warnings: list[str] = []
    # For 101: goes on with the client's connection, whose answer is not written yet.
    tunnel: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None
    leave: Callable[[], None] | None = None  # to be called once the answer is out, or nobody wants it any more


def json_response(status: int, body: bytes, **headers: str) -> Response:
    return Response(
        status, {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}, body
    )


def text_response(status: int, text: str) -> Response:
    return Response(status, {"content-type": "text/plain; charset=utf-8"}, text.encode())
