"""The host's HTTP side: an ASGI application that hands calls to the engine's thread and answers after the sync."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from regional.cloud.host.calls import Call, kept_headers, sent_headers
from regional.cloud.host.engine import Answer, Engine
from regional.cloud.host.keys import KeyOwner, find_owner

log = logging.getLogger(__name__)

_BODY_LIMIT = 128 << 20
_KEYS = "/_regional/keys/"
# moto's own control surface: one POST there would wipe everything.
_HIDDEN = ("/moto-api", "/latest/")
# About this connection, not about the answer; uvicorn writes its own.
_HOP_HEADERS = frozenset({"connection", "transfer-encoding", "content-length", "date", "server"})

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class TooLarge(Exception):
    pass


class AwsApp:
    def __init__(self, engine: Engine, executor: ThreadPoolExecutor, lookup_token: str) -> None:
        self._engine = engine
        self._executor = executor
        self._token = lookup_token
        self.failed = asyncio.Event()  # the journal cannot be written: nothing may be acknowledged any more

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        try:
            if path == "/_regional/healthz":
                answer = self._health()
            elif path.startswith(_KEYS):
                answer = await self._look_up(path.removeprefix(_KEYS), scope)
            elif path.startswith(_HIDDEN):
                answer = _json(404, {"message": "not served here"})
            else:
                answer = await self._execute(scope, await _read_body(receive))
        except TooLarge:
            answer = _json(413, {"message": f"a body may have {_BODY_LIMIT} bytes"})
        except Exception:
            log.exception("request failed", extra={"path": path})
            answer = _json(500, {"__type": "InternalFailure", "message": "see the AWS host's log"})
        await _send(send, answer, scope["method"])

    async def _execute(self, scope: dict[str, Any], body: bytes) -> Answer:
        sent = sent_headers(scope["headers"])
        call = Call(
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1").partition("?")[0],
            query=scope["query_string"].decode("latin-1"),
            headers=kept_headers(sent),
            body=body,
            seed=b"",
            account="",
            time=0.0,
        )
        loop = asyncio.get_running_loop()
        try:
            # Shielded from a client that leaves: what moto did must reach the journal all the same.
            answer, position = await loop.run_in_executor(self._executor, self._engine.execute, call, sent)
            await self._synced(position)
        except OSError as error:
            log.critical("journal cannot be written", extra={"reason": str(error)})
            self.failed.set()
            return _json(500, {"__type": "InternalFailure", "message": f"the journal cannot be written: {error}"})
        return answer

    async def _synced(self, position: int) -> None:
        loop = asyncio.get_running_loop()
        on_disk: asyncio.Future[None] = loop.create_future()

        def settle(error: OSError | None) -> None:
            if on_disk.done():
                return
            if error is None:
                on_disk.set_result(None)
            else:
                on_disk.set_exception(error)

        def from_thread(error: OSError | None) -> None:
            loop.call_soon_threadsafe(settle, error)

        self._engine.journal.when_synced(position, from_thread)
        await on_disk

    async def _look_up(self, access_key: str, scope: dict[str, Any]) -> Answer:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        if not self._token or not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return _json(401, {"message": "this look-up needs its bearer token"})
        loop = asyncio.get_running_loop()
        owner: KeyOwner | None = await loop.run_in_executor(self._executor, find_owner, access_key)
        if owner is None or (owner.session_token and not self._engine.proven_session(access_key)):
            return _json(404, {"message": "no such access key"})
        return _json(200, owner)

    def _health(self) -> Answer:
        engine = self._engine
        return _json(
            200,
            {
                "status": "ok",
                "replayedCalls": engine.replayed,
                "mismatches": engine.mismatches,
                "journalBytes": engine.journal.size,
            },
        )


def _json(status: int, value: object) -> Answer:
    return Answer(status, [("content-type", "application/json")], msgspec.json.encode(value))


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _BODY_LIMIT:
            raise TooLarge
        if not message.get("more_body"):
            return bytes(body)


async def _send(send: Send, answer: Answer, method: str) -> None:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in answer.headers
        if name.lower() not in _HOP_HEADERS
    ]
    length = next((value for name, value in answer.headers if name.lower() == "content-length"), "")
    # S3's HEAD tells the object's size in a header of an answer without a body.
    headers.append((b"content-length", (length if method == "HEAD" and length else str(len(answer.body))).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})
