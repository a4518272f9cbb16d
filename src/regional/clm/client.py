"""CLM's API as its callers see it. Resources stay plain dicts, as they are in the API: callers pass most of them on.

clm = ClmClient("http://clm-api.clm:8000")              # sees every tenant
clm.for_tenant("123456789012", actor=arn)               # the same connections, one tenant's view
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

Document = dict[str, Any]
Documents = list[Document]

BASE = "/api/hyperfleet/v1"
PLURALS = {
    "Cluster": "clusters",
    "NodePool": "nodepools",
    "ManagementCluster": "managementclusters",
    "Account": "accounts",
}


class ClmError(Exception):
    """An answer that says no. `code` is HyperFleet's, `errors` the faults of single fields."""

    def __init__(self, status: int, code: str, detail: str, errors: list[Document] | None = None) -> None:
        super().__init__(f"{detail} ({code or status})")
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors or []

    @property
    def not_found(self) -> bool:
        """The resource is not there; a wrong URL (NTF-000) is not that."""
        return self.status == 404 and self.code != "HYPERFLEET-NTF-000"

    @property
    def exists(self) -> bool:
        return self.code == "HYPERFLEET-CNF-001"


class ClmUnreachable(ClmError):
    """No answer, or one that says that CLM cannot do it now: ask again later. A write may have happened."""


class _Wire:
    """The connections, shared by all views of one client."""

    def __init__(self, base_url: str, timeout: float) -> None:
        self.base = base_url.rstrip("/")
        self.timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=3)
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # ThreadedResolver asks the loop, and the loop of a pod knows the cluster's names (core.loop).
            connector = aiohttp.TCPConnector(limit=64, keepalive_timeout=30, resolver=aiohttp.ThreadedResolver())
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class ClmClient:
    def __init__(self, base_url: str, tenant: str | None = None, *, actor: str = "", timeout: float = 10.0) -> None:
        """Without a tenant the client is one of the region's own parts, which see all."""
        self._wire = _Wire(base_url, timeout)
        self._headers = _headers(tenant, actor)

    def for_tenant(self, tenant: str | None, *, actor: str = "") -> ClmClient:
        """The same API in another's view; `close` of any view closes the connections of all."""
        view = object.__new__(ClmClient)
        view._wire = self._wire
        view._headers = _headers(tenant, actor)
        return view

    async def close(self) -> None:
        await self._wire.close()

    async def __aenter__(self) -> ClmClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- resources ---------------------------------------------------------------------------------------------------

    async def create(
        self,
        kind: str,
        name: str,
        spec: Document,
        *,
        labels: Mapping[str, str] | None = None,
        parent_id: str = "",
        request_id: str = "",
    ) -> Document:
        """A child is made under its parent: `parent_id`. Raises ClmError (`exists` if the name is taken)."""
        body: Document = {"kind": kind, "name": name, "spec": spec} | ({"labels": dict(labels)} if labels else {})
        return await self.call("POST", _collection(kind, parent_id), body, request_id=request_id)

    async def get(self, kind: str, resource_id: str, *, request_id: str = "") -> Document:
        return await self.call("GET", _item(kind, resource_id), request_id=request_id)

    async def get_with_etag(self, kind: str, resource_id: str, *, request_id: str = "") -> tuple[Document, str]:
        """With the ETag that makes a `patch` of what was read a compare-and-swap."""
        found, headers = await self._exchange("GET", _item(kind, resource_id), request_id=request_id)
        return found, headers["ETag"]

    async def get_or_none(self, kind: str, resource_id: str, *, request_id: str = "") -> Document | None:
        try:
            return await self.get(kind, resource_id, request_id=request_id)
        except ClmError as error:
            if error.not_found:
                return None
            raise

    async def find(self, kind: str, name: str, *, parent_id: str = "") -> Document | None:
        """The living resource of that name."""
        search = f"name = '{name.replace(chr(39), '')}' and deleted_time is null"
        found = await self.list(kind, search=search, size=1, parent_id=parent_id)
        return found["items"][0] if found["items"] else None

    async def list(
        self,
        kind: str,
        *,
        page: int = 1,
        size: int = 20,
        search: str = "",
        order: str = "",
        parent_id: str = "",
        request_id: str = "",
    ) -> Document:
        """One page, as the API gives it: `{items, page, size, total}`. Resources being deleted are in it."""
        query = {"page": str(page), "size": str(size), "search": search, "order": order}
        given = {name: text for name, text in query.items() if text}
        return await self.call("GET", _collection(kind, parent_id), query=given, request_id=request_id)

    async def all(self, kind: str, *, search: str = "", parent_id: str = "") -> AsyncIterator[Document]:
        """Every resource, newest first; what is created meanwhile does not make others come twice."""
        query = {"size": "100"} | ({"search": search} if search else {})
        while True:
            page = await self.call("GET", _collection(kind, parent_id), query=query)
            for item in page["items"]:
                yield item
            if len(page["items"]) < 100:
                return
            query["after"] = page["items"][-1]["id"]

    async def patch(
        self,
        kind: str,
        resource_id: str,
        *,
        spec: Document | None = None,
        labels: Mapping[str, str] | None = None,
        if_match: str = "",
        request_id: str = "",
    ) -> Document:
        """What is given replaces what is there. `if_match` (an ETag) makes it a compare-and-swap: else 412."""
        body: Document = {} if spec is None else {"spec": spec}
        if labels is not None:
            body["labels"] = dict(labels)
        headers = {"If-Match": if_match} if if_match else {}
        return await self.call("PATCH", _item(kind, resource_id), body, headers=headers, request_id=request_id)

    async def delete(self, kind: str, resource_id: str, *, request_id: str = "") -> Document:
        """Marks it for deletion; it is gone when its adapters have finalized it."""
        return await self.call("DELETE", _item(kind, resource_id), request_id=request_id)

    async def force_delete(self, kind: str, resource_id: str, reason: str, *, request_id: str = "") -> None:
        path = f"{_item(kind, resource_id)}/force-delete"
        await self.call("POST", path, {"reason": reason}, request_id=request_id)

    async def reconcile(self, *, request_id: str = "") -> int:
        """Have every resource looked at now; how many there are."""
        answer = await self.call("POST", "/reconcile", {}, request_id=request_id)
        return int(answer["resources"])

    async def history(self, kind: str, resource_id: str, *, page: int = 1, size: int = 100) -> Document:
        """Newest first; also of a resource that is gone."""
        query = {"page": str(page), "size": str(size)}
        return await self.call("GET", f"{_item(kind, resource_id)}/history", query=query)

    # -- statuses ----------------------------------------------------------------------------------------------------

    async def put_status(
        self, kind: str, resource_id: str, report: Document, *, request_id: str = ""
    ) -> Document | None:
        """None if the report was older than what is known."""
        answer = await self.call("PUT", f"{_item(kind, resource_id)}/statuses", report, request_id=request_id)
        return answer or None

    async def statuses(self, kind: str, resource_id: str) -> Documents:
        """What each adapter last reported, secrets masked."""
        found = await self.call("GET", f"{_item(kind, resource_id)}/statuses", query={"size": "100"})
        items: Documents = found["items"]
        return items

    async def status_of(self, kind: str, resource_id: str, adapter: str) -> Document | None:
        """One adapter's report whole: `data.kubeconfig` of a cluster's `hypershift` is the customer's (base64)."""
        try:
            return await self.call("GET", f"{_item(kind, resource_id)}/statuses/{quote(adapter, safe='')}")
        except ClmError as error:
            if error.not_found:
                return None
            raise

    # -- the wire ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str = "",
        timeout: float | None = None,
    ) -> Document:
        """Any route below `/api/hyperfleet/v1`. An answer without a body is an empty document."""
        answer, _ = await self._exchange(
            method, path, body, query=query, headers=headers, request_id=request_id, timeout=timeout
        )
        return answer

    async def _exchange(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str = "",
        timeout: float | None = None,
    ) -> tuple[Document, Mapping[str, str]]:
        """The answer and its headers."""
        sent = {**self._headers, **(headers or {}), "Content-Type": "application/json"}
        if request_id:
            sent["X-Request-Id"] = request_id
        content = None if body is None else msgspec.json.encode(body)
        limit = self._wire.timeout if timeout is None else aiohttp.ClientTimeout(total=timeout)
        url = f"{self._wire.base}{BASE}{path}"
        try:
            async with self._wire.session().request(
                method, url, params=query, data=content, headers=sent, timeout=limit
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClmUnreachable(0, "", f"{self._wire.base}: {error or type(error).__name__}") from None
        if answer.status >= 300:
            raise _refusal(answer.status, text)
        decoded: Document = msgspec.json.decode(text) if text else {}
        return decoded, answer.headers


def _headers(tenant: str | None, actor: str) -> dict[str, str]:
    who = {"X-System": "true"} if tenant is None else {"X-Tenant": tenant}
    return who | ({"X-Actor": actor} if actor else {})


def _collection(kind: str, parent_id: str) -> str:
    plural = PLURALS[kind]
    return f"/clusters/{quote(parent_id, safe='')}/{plural}" if parent_id else f"/{plural}"


def _item(kind: str, resource_id: str) -> str:
    return f"/{PLURALS[kind]}/{quote(resource_id, safe='')}"


def _refusal(status: int, text: bytes) -> ClmError:
    try:
        body = msgspec.json.decode(text)
        code, detail, errors = str(body.get("code", "")), str(body.get("detail", "")), body.get("errors")
    except (msgspec.DecodeError, AttributeError):
        code, detail, errors = "", text[:200].decode(errors="replace"), None
    kind = ClmUnreachable if status in (502, 503, 504) else ClmError
    return kind(status, code, detail or f"CLM answers {status}", errors)
