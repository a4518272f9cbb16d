"""A request and its answer without HTTP, so that controllers and tests reach the API with no socket between."""

from __future__ import annotations

from collections.abc import AsyncIterator

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

    def parameter(self, name: str, default: str = "") -> str:
        for key, value in self.query:
            if key == name:
                return value
        return default

    def flag(self, name: str) -> bool:
        return self.parameter(name) in ("true", "1")


class Response(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes] = b""
    warnings: list[str] = []


def json_response(status: int, body: bytes, **headers: str) -> Response:
    return Response(
        status, {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}, body
    )


def text_response(status: int, text: str) -> Response:
    return Response(status, {"content-type": "text/plain; charset=utf-8"}, text.encode())
