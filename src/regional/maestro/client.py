"""Maestro's server as its callers see it: consumers, resource bundles, and a stream of their changes.

Bundles stay plain dicts, as they are in the API: callers pass most of them on. A write that got no answer may have
happened; creating and deleting are idempotent at the server, so a caller simply asks again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from regional.core.role import Backoff

log = logging.getLogger(__name__)

Document = dict[str, Any]

BASE = "/api/maestro/v1"
NOT_FOUND = "maestro-7"
PAGE = 400
SILENCE_SECONDS = 25.0  # the server's heartbeat comes every 10 s


class MaestroError(Exception):
    """An answer that says no: `code` is Maestro's own (`maestro-7` is not found), `reason` is for people."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(f"{reason} ({code or status})")
        self.status = status
        self.code = code
        self.reason = reason

    @property
    def not_found(self) -> bool:
        """The resource is not there. Any other 404 (a wrong path, another server) says nothing about it."""
        return self.status == 404 and self.code == NOT_FOUND

    @property
    def conflict(self) -> bool:
        return self.status == 409


class MaestroUnreachable(MaestroError):
    """No answer came, or one that says that the server itself cannot do it now: ask again later."""


class Change(msgspec.Struct, frozen=True):
    """A bundle after a change of its spec or status. One that is gone for good has `Deleted=True` in its conditions."""

    cursor: str
    bundle: Document


class MaestroClient:
    def __init__(self, base_url: str, *, timeout: float = 10.0) -> None:
        self._base = base_url.rstrip("/") + BASE
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=3)
        self._session: aiohttp.ClientSession | None = None

    @property
    def base_url(self) -> str:
        """With the API's version: what paths such as `/consumers` are below of."""
        return self._base

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> MaestroClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- consumers ---------------------------------------------------------------------------------------------------

    async def consumers(self, *, search: str = "") -> list[Document]:
        return [item async for item in self._all("/consumers", search)]

    async def get_consumer(self, consumer_id: str) -> Document:
        return await self._call("GET", f"/consumers/{quote(consumer_id, safe='')}")

    async def create_consumer(self, name: str, labels: Mapping[str, str] | None = None) -> Document:
        """Raises a conflict if the name is taken."""
        return await self._call("POST", "/consumers", {"name": name} | ({"labels": dict(labels)} if labels else {}))

    async def delete_consumer(self, consumer_id: str) -> None:
        await self._call("DELETE", f"/consumers/{quote(consumer_id, safe='')}")

    # -- bundles -----------------------------------------------------------------------------------------------------

    async def create_bundle(
        self,
        consumer_name: str,
        manifests: Sequence[Document],
        *,
        id: str | None = None,  # noqa: A002
        name: str | None = None,
        source: str | None = None,
        metadata: Document | None = None,
        delete_option: Document | None = None,
        manifest_configs: Sequence[Document] | None = None,
        executer: Document | None = None,
        request_id: str | None = None,
    ) -> Document:
        """A bundle that exists with the same content is returned as it is; with another, that is a conflict."""
        given = {
            "consumer_name": consumer_name,
            "manifests": list(manifests),
            "id": id,
            "name": name,
            "source": source,
            "metadata": metadata,
            "delete_option": delete_option,
            "manifest_configs": None if manifest_configs is None else list(manifest_configs),
            "executer": executer,
        }
        return await self._call("POST", "/resource-bundles", _present(given), request_id=request_id)

    async def patch_bundle(
        self,
        bundle_id: str,
        *,
        version: int | None = None,
        manifests: Sequence[Document] | None = None,
        metadata: Document | None = None,
        delete_option: Document | None = None,
        manifest_configs: Sequence[Document] | None = None,
        request_id: str | None = None,
    ) -> Document:
        """What is given replaces what is stored; `version` makes it a compare-and-swap.

        No difference, no new version.
        """
        given = {
            "version": version,
            "manifests": None if manifests is None else list(manifests),
            "metadata": metadata,
            "delete_option": delete_option,
            "manifest_configs": None if manifest_configs is None else list(manifest_configs),
        }
        path = f"/resource-bundles/{quote(bundle_id, safe='')}"
        return await self._call("PATCH", path, _present(given), request_id=request_id)

    async def get_bundle(self, bundle_id: str) -> Document:
        return await self._call("GET", f"/resource-bundles/{quote(bundle_id, safe='')}")

    async def get_bundle_or_none(self, bundle_id: str) -> Document | None:
        try:
            return await self.get_bundle(bundle_id)
        except MaestroError as error:
            if error.not_found:
                return None
            raise

    async def delete_bundle(self, bundle_id: str, *, request_id: str | None = None) -> None:
        """Only asks for it: the bundle is gone when its agent has said so (`get_bundle` answers 404)."""
        await self._call("DELETE", f"/resource-bundles/{quote(bundle_id, safe='')}", request_id=request_id)

    async def bundle_history(self, bundle_id: str, *, size: int = 100) -> list[Document]:
        """Newest first: `{at, change, version, request_id?, note?}`; also of a bundle that is gone."""
        path = f"/resource-bundles/{quote(bundle_id, safe='')}/history"
        items: list[Document] = (await self._call("GET", path, query={"size": str(size)}))["items"]
        return items

    async def redeliver_bundle(self, bundle_id: str, *, request_id: str | None = None) -> Document:
        """Send it to its agent once more, applied or not, and wait for the agent's word again."""
        path = f"/resource-bundles/{quote(bundle_id, safe='')}/redeliver"
        return await self._call("POST", path, request_id=request_id)

    # -- what only agents know ---------------------------------------------------------------------------------------

    async def agent_works(self, *, consumer_name: str = "") -> Document:
        """Works that agents have and the server does not know, or only in an older version (`known_version`)."""
        query = {"consumer_name": consumer_name} if consumer_name else None
        return await self._call("GET", "/agent-works", query=query)

    async def ask_agents(self) -> None:
        """To say what they have; they do so by themselves every minute."""
        await self._call("POST", "/agent-works/ask", {})

    # -- lists and streams -------------------------------------------------------------------------------------------

    async def list_bundles(
        self, *, search: str = "", page: int = 1, size: int = 100, order_by: str = "", fields: str = ""
    ) -> Document:
        """One page, as the API gives it: `{kind, page, size, total, items}`."""
        query = {"page": str(page), "size": str(size), "search": search, "orderBy": order_by, "fields": fields}
        query["additions"] = "true"
        return await self._call("GET", "/resource-bundles", query={key: text for key, text in query.items() if text})

    async def all_bundles(self, *, search: str = "") -> list[Document]:
        return [item async for item in self._all("/resource-bundles", search)]

    async def watch(self, source: str = "", after: str = "") -> AsyncGenerator[Change, None]:
        """Without end. Without `after`, first every bundle of the source as it is, then each change.

        Cuts are mended inside: the stream goes on behind the last cursor. A cursor too old to go on from starts over
        with every bundle, so that nothing is missed except that a bundle came and went meanwhile.
        """
        backoff = Backoff(0.05, 2.0)
        complained = False
        while True:
            try:
                async with contextlib.aclosing(self._watch_once(source, after)) as changes:
                    async for change in changes:
                        backoff.reset()
                        complained = False
                        after = change.cursor
                        if change.bundle:
                            yield change
            except MaestroError as error:
                if error.status == 410:
                    after = ""
                elif not isinstance(error, MaestroUnreachable):
                    raise
                if not complained:
                    log.info("watch of bundles interrupted", extra={"source": source, "reason": str(error)})
                    complained = True
            await backoff.pause()

    async def _watch_once(self, source: str, after: str) -> AsyncGenerator[Change, None]:
        query = {key: text for key, text in (("source", source), ("after", after)) if text}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3, sock_read=SILENCE_SECONDS)
        try:
            async with self._open().get(
                f"{self._base}/resource-bundles/watch", params=query, timeout=timeout
            ) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, await answer.read())
                async for line in _lines(answer.content):
                    document = msgspec.json.decode(line)
                    yield Change(document["cursor"], document.get("bundle") or {})
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise MaestroUnreachable(0, "", f"{self._base}: {error or type(error).__name__}") from None

    # -- the wire ----------------------------------------------------------------------------------------------------

    async def _all(self, path: str, search: str) -> AsyncIterator[Document]:
        page = 1
        while True:
            query = {"page": str(page), "size": str(PAGE), "additions": "true"}
            query |= {"search": search} if search else {}
            found = await self._call("GET", path, query=query)
            for item in found["items"]:
                yield item
            if page * PAGE >= found["total"]:
                return
            page += 1

    async def _call(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        query: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> Document:
        headers = {"Content-Type": "application/json"} | ({"X-Request-Id": request_id} if request_id else {})
        content = None if body is None else msgspec.json.encode(body)
        try:
            async with self._open().request(
                method, self._base + path, params=query, data=content, headers=headers, timeout=self._timeout
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise MaestroUnreachable(0, "", f"{self._base}: {error or type(error).__name__}") from None
        if answer.status >= 300:
            raise _refusal(answer.status, text)
        decoded: Document = msgspec.json.decode(text) if text else {}
        return decoded

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # ThreadedResolver asks the loop, and the loop of a pod knows the cluster's names (core.loop).
            connector = aiohttp.TCPConnector(limit=64, keepalive_timeout=30, resolver=aiohttp.ThreadedResolver())
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


def _refusal(status: int, text: bytes) -> MaestroError:
    try:
        body = msgspec.json.decode(text)
        code, reason = str(body.get("code", "")), str(body.get("reason", ""))
    except (msgspec.DecodeError, AttributeError):
        code, reason = "", text[:200].decode(errors="replace")
    kind = MaestroUnreachable if status in (502, 503, 504) else MaestroError
    return kind(status, code, reason or f"Maestro answers {status}")


def _present(given: Document) -> Document:
    return {name: value for name, value in given.items() if value is not None}


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Of any length: aiohttp's own line reader refuses lines longer than its buffer."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
