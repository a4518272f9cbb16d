"""The way to an API server in the same process: a function call instead of a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from regional.kube.client.transport import Answer, Query, Stream
from regional.kube.messages import MASTERS, Request, Response, User

Handle = Callable[[Request], Awaitable[Response]]


class LocalTransport:
    def __init__(self, handle: Handle, *, user: User | None = None) -> None:
        """Whoever can call the server's code is its owner, hence the default user's group."""
        self._handle = handle
        self._user = user or User(name="system:kube-controller-manager", groups=(MASTERS, "system:authenticated"))

    async def _call(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        return await self._handle(
            Request(
                method=method,
                path=path,
                query=list(query),
                headers={name.lower(): value for name, value in headers.items()},
                body=body or b"",
                user=self._user,
            )
        )

    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        response = await self._call(method, path, query, headers, body)
        content = response.body
        if not isinstance(content, bytes):
            content = b"".join([chunk async for chunk in content])
        return Answer(response.status, response.headers, content)

    async def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> Stream:
        return _LocalStream(await self._call(method, path, query, headers, None))

    async def close(self) -> None:
        """Nothing is held open."""


class _LocalStream:
    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def chunks(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            yield self._body
            return
        async for chunk in self._body:
            yield chunk

    async def close(self) -> None:
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()
