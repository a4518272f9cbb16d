"""How these tests speak to a server: by calls, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from regional.core import pki
from regional.kube.apiserver.server import ApiServer
from regional.kube.messages import LOCAL, Request, Response, User

Obj = dict[str, Any]

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def make_pki(folder: Path, address: str = "127.0.0.1") -> Path:
    authority = pki.create_authority("kubernetes")
    folder.mkdir(parents=True, exist_ok=True)

    def put(name: str, pair: pki.KeyPair) -> None:
        (folder / f"{name}.crt").write_text(pair.certificate)
        (folder / f"{name}.key").write_text(pair.key)

    put("ca", authority)
    put("apiserver", pki.issue(authority, "kube-apiserver", server=True, addresses=[address], names=["kubernetes"]))
    put("kubelet-client", pki.issue(authority, "kube-apiserver-kubelet-client", organizations=["system:masters"]))
    put("kubelet", pki.issue(authority, "node", server=True, addresses=[address]))
    put("admin", pki.issue(authority, "admin", organizations=["system:masters"]))
    put("joe", pki.issue(authority, "joe", organizations=["devs"]))
    (folder / "sa.key").write_text(pki.new_key()[1])
    return folder


class Answer(msgspec.Struct):
    status: int
    body: Any
    headers: dict[str, str]
    warnings: list[str]

    @property
    def message(self) -> str:
        return str(self.body["message"])


class Api:
    """Speaks to a server in the test's own words: `api.post("/api/v1/namespaces/default/configmaps", {...})`."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def raw(self, method: str, url: str, body: Any = None, *, user: User = LOCAL, **headers: str) -> Response:
        path, _, query = url.partition("?")
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        names.setdefault("user-agent", "tests/1.0")
        return await self.server.handle(
            Request(method, path, parse_qsl(query, keep_blank_values=True), names, content, user)
        )

    async def call(self, method: str, url: str, body: Any = None, *, user: User = LOCAL, **headers: str) -> Answer:
        response = await self.raw(method, url, body, user=user, **headers)
        content = response.body
        if not isinstance(content, bytes):
            content = b"".join([chunk async for chunk in content])
        decoded = content
        if response.headers.get("content-type", "").startswith("application/json") and content:
            decoded = msgspec.json.decode(content)
        return Answer(response.status, decoded, response.headers, response.warnings)

    async def get(self, url: str, **options: Any) -> Answer:
        return await self.call("GET", url, **options)

    async def post(self, url: str, body: Any, **options: Any) -> Answer:
        return await self.call("POST", url, body, **options)

    async def put(self, url: str, body: Any, **options: Any) -> Answer:
        return await self.call("PUT", url, body, **options)

    async def delete(self, url: str, body: Any = None, **options: Any) -> Answer:
        return await self.call("DELETE", url, body, **options)

    async def patch(self, url: str, body: Any, how: str = "merge", **options: Any) -> Answer:
        return await self.call("PATCH", url, body, content_type=PATCHES[how], **options)

    async def apply(self, url: str, body: Any, manager: str = "tester", more: str = "", **options: Any) -> Answer:
        return await self.patch(f"{url}?fieldManager={manager}{more}", body, "apply", **options)

    async def watch(self, url: str, **headers: str) -> Watch:
        response = await self.raw("GET", url + ("&" if "?" in url else "?") + "watch=true", **headers)
        assert response.status == 200, response.body
        assert not isinstance(response.body, bytes)
        return Watch(response.body)


class Watch:
    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._lines: list[Obj] = []

    async def next(self) -> Obj:
        while not self._lines:
            async with asyncio.timeout(60):
                chunk = await anext(self._stream)
            assert chunk.endswith(b"\n")
            self._lines += [msgspec.json.decode(line) for line in chunk.splitlines()]
        return self._lines.pop(0)

    async def take(self, count: int) -> list[Obj]:
        return [await self.next() for _ in range(count)]

    async def ended(self) -> bool:
        try:
            async with asyncio.timeout(60):
                await anext(self._stream)
        except StopAsyncIteration:
            return True
        return False

    async def close(self) -> None:
        await self._stream.aclose()  # type: ignore[attr-defined]


async def start_server(data: Path, keys: Path, **options: Any) -> ApiServer:
    server = ApiServer(data, keys, service_cidr="127.64.1.0/24", **options)
    await server.start()
    return server


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name} | metadata, "data": data or {}}
