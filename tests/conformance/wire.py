"""How these tests speak to the server: raw HTTP that hides nothing, and programs run in a shell."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from regional.core.paths import tools

from .servers import Cluster

Obj = dict[str, Any]

PATIENCE = 120.0
"""Seconds any single wait may take: generous, because the machine may be slow and busy."""

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Answer(msgspec.Struct):
    status: int
    headers: CIMultiDictProxy[str]
    content: bytes

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.content)

    @property
    def media(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def warnings(self) -> list[str]:
        return self.headers.getall("warning", [])

    def ok(self, *codes: int) -> Any:
        """The body of an answer that must be good."""
        assert self.status in (codes or (200, 201)), f"{self.status} {self.content[:2000]!r}"
        return self.body

    def refused(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        """The whole Status document of a refusal, to the letter."""
        status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status |= {"message": message, "reason": reason, "code": code}
        if details is not None:
            status["details"] = details
        assert self.body == status
        assert self.status == code


class Http:
    """One client. `user` is a name the cluster knows (`admin`, `joe`) or "" for nobody; header names as keywords,
    `_` for `-`: `http.get(path, accept="application/yaml")`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def _session(self, user: str) -> aiohttp.ClientSession:
        # One pool of connections per user: a kept connection carries the certificate it was opened with.
        if user not in self._sessions:
            connector = aiohttp.TCPConnector(ssl=self.cluster.tls(user), limit=0, resolver=aiohttp.ThreadedResolver())
            self._sessions[user] = aiohttp.ClientSession(
                connector=connector,
                skip_auto_headers=["Content-Type"],
                headers={"User-Agent": "conformance/1.0"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE),
            )
        return self._sessions[user]

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def _send(self, method: str, path: str, body: Any, user: str, headers: dict[str, str]) -> Any:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        content: Any = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        if content is not None and not any(name.lower() == "content-type" for name in names):
            names["content-type"] = JSON
        token = self.cluster.users[user].token
        if token:
            names.setdefault("authorization", f"Bearer {token}")
        url = URL(self.cluster.url + path, encoded=True)
        if content is not None and len(content) > 1_000_000:
            content = io.BytesIO(content)  # aiohttp warns of large bodies that are bytes
        return self._session(user).request(method, url, data=content, headers=names, allow_redirects=False)

    async def call(self, method: str, path: str, body: Any = None, *, user: str = "admin", **headers: str) -> Answer:
        async with asyncio.timeout(PATIENCE), self._send(method, path, body, user, headers) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.call("POST", path, body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.call("PUT", path, body, **options)

    async def delete(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.call("DELETE", path, body, **options)

    async def patch(self, path: str, body: Any, how: str = "merge", **options: Any) -> Answer:
        return await self.call("PATCH", path, body, content_type=PATCHES[how], **options)

    async def apply(self, path: str, body: Any, manager: str = "tester", more: str = "", **options: Any) -> Answer:
        return await self.patch(f"{path}?fieldManager={manager}{more}", body, "apply", **options)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, *, user: str = "admin", **headers: str) -> AsyncIterator[Watch]:
        """The stream of `path` with `watch=true` added; its status and headers are there before any event."""
        path += ("&" if "?" in path else "?") + "watch=true"
        async with asyncio.timeout(PATIENCE):
            answer = await self._send("GET", path, None, user, headers)
        try:
            yield Watch(answer)
        finally:
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()  # a TLS goodbye would wait for a peer that still sends
            answer.close()

    async def until(self, path: str, condition: Callable[[Answer], bool], **options: Any) -> Answer:
        """GET again and again until `condition(answer)` holds."""
        last: Answer | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    last = await self.get(path, **options)
                    if condition(last):
                        return last
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(
                f"{path}: {last.status if last else ''} {last.content[:2000] if last else ''!r}"
            ) from None


class Watch:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.status, self.headers = answer.status, answer.headers
        self._content = answer.content
        self._rest = b""

    async def line(self) -> bytes:
        """The next event as it was sent, without its newline; b"" if the stream has ended."""
        async with asyncio.timeout(PATIENCE):
            while b"\n" not in self._rest:
                chunk = await self._content.readany()
                if not chunk:
                    assert not self._rest, f"cut in the middle of an event: {self._rest[:200]!r}"
                    return b""
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def next(self) -> Obj:
        line = await self.line()
        assert line, "the stream has ended"
        event: Obj = msgspec.json.decode(line)
        return event

    async def take(self, count: int) -> list[Obj]:
        return [await self.next() for _ in range(count)]

    async def ended(self) -> bool:
        return await self.line() == b""


class Shell:
    """Runs programs as a user of the cluster, in a folder and home of their own."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        self.folder = folder
        (folder / "kubeconfig").write_text(kubeconfig)
        self._env = {
            "PATH": f"{tools() / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
        }

    async def run(self, command: str, *, stdin: str = "", fails: bool = False) -> str:
        """Standard output and error together; `fails` says that it must fail."""
        process = await asyncio.create_subprocess_shell(
            command,
            env=self._env,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                output, _ = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode != 0) == fails, f"{command}\n{output.decode()}"
        return output.decode()

    async def __call__(self, arguments: str, *, stdin: str = "", fails: bool = False) -> str:
        return await self.run(f"kubectl {arguments}", stdin=stdin, fails=fails)
