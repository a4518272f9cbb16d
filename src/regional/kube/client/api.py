"""One Kubernetes API, spoken to in objects.

Small on purpose: the verbs of the API with plain dict objects, errors as `ApiError`, and nothing that hides a
conflict or repeats a write. Reconcilers decide about retries; only they know what a retry means.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from regional.kube.client.config import in_cluster_transport, kubeconfig_transport
from regional.kube.client.discovery import Discovered, discover
from regional.kube.client.errors import ApiError
from regional.kube.client.resources import Resource
from regional.kube.client.transport import Answer, Query, Transport
from regional.kube.objects import Obj, name_of, namespace_of

JSON = "application/json"
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
WATCH_SECONDS = 1500
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Client:
    def __init__(self, transport: Transport, *, user_agent: str = "regional") -> None:
        self._transport = transport
        self._user_agent = user_agent
        self._impersonated = ""
        self._discovered: dict[tuple[str, str], Resource] = {}

    def acting_as(self, user: str) -> Client:
        """The same connection, judged by another's rights (for which ours must include `impersonate`)."""
        other = Client(self._transport, user_agent=self._user_agent)
        other._impersonated, other._discovered = user, self._discovered
        return other

    @classmethod
    def from_kubeconfig(cls, path: str | Path, *, context: str | None = None, user_agent: str = "regional") -> Client:
        return cls(kubeconfig_transport(path, context), user_agent=user_agent)

    @classmethod
    def in_cluster(cls, *, user_agent: str = "regional") -> Client:
        return cls(in_cluster_transport(), user_agent=user_agent)

    @property
    def transport(self) -> Transport:
        return self._transport

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- bytes -------------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> tuple[int, dict[str, str], bytes]:
        """Any request; any status is an answer. Raises ApiUnreachable only when none came."""
        answer = await self._ask(method, path, query, body, content_type, accept)
        return answer.status, answer.headers, answer.body

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query | Mapping[str, str] | None,
        body: bytes | None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Answer:
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = content_type
        if self._impersonated:
            headers["Impersonate-User"] = self._impersonated
        return await self._transport.request(method, path, _pairs(query), headers, body)

    async def _call(
        self,
        method: str,
        path: str,
        query: Query | Mapping[str, str] | None = None,
        document: Any = None,
        content_type: str = JSON,
    ) -> Obj:
        body = None if document is None else _encode(document)
        answer = await self._ask(method, path, query, body, content_type)
        if answer.status >= 300:
            raise ApiError.from_answer(answer.status, answer.body, f"{method} {path}")
        decoded: Obj = _decode(answer.body) if answer.body else {}
        return decoded

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Obj:
        resource = await self.resource_for(api_version, kind)
        return await self._call("GET", resource.path(_scope(resource, namespace), name))

    async def get_or_none(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Obj | None:
        try:
            return await self.get(api_version, kind, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        limit: int = 500,
    ) -> builtins.list[Obj]:
        items, _ = await self.list_with_rv(api_version, kind, namespace, labels=labels, fields=fields, limit=limit)
        return items

    async def list_with_rv(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        limit: int = 500,
    ) -> tuple[builtins.list[Obj], str]:
        """All objects, page by page, and the resourceVersion to watch from."""
        path = (await self.resource_for(api_version, kind)).path(namespace)
        selectors = _selectors(labels, fields)
        items: builtins.list[Obj] = []
        token = ""
        while True:
            query = [*selectors, ("limit", str(limit))] + ([("continue", token)] if token else [])
            try:
                page = await self._call("GET", path, query)
            except ApiError as error:
                if not (error.gone and token):
                    raise
                # The snapshot behind our token was compacted away between two pages: take everything in one.
                items, token = [], ""
                page = await self._call("GET", path, selectors)
            for item in page.get("items") or []:
                # Items of built-in lists carry neither; whoever holds an object alone needs both.
                item.setdefault("apiVersion", api_version)
                item.setdefault("kind", kind)
                items.append(item)
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return items, metadata.get("resourceVersion", "")

    async def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        resource_version: str,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        bookmarks: bool = False,
        timeout_seconds: int = WATCH_SECONDS,
    ) -> AsyncGenerator[tuple[str, Obj], None]:
        """(type, object) until the server ends the stream; an ERROR event is raised as ApiError.

        BOOKMARK events are passed on only if asked for. Leave early with `contextlib.aclosing`, which hangs up.
        """
        path = (await self.resource_for(api_version, kind)).path(namespace)
        query = [
            *_selectors(labels, fields),
            ("watch", "true"),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(timeout_seconds)),
        ]
        stream = await self._transport.stream("GET", path, query, {"Accept": JSON, "User-Agent": self._user_agent})
        try:
            if stream.status >= 300:
                content = b"".join([chunk async for chunk in stream.chunks()])
                raise ApiError.from_answer(stream.status, content, f"GET {path}?watch")
            async for line in _lines(stream.chunks()):
                event = _decode(line)
                if event["type"] == "ERROR":
                    raise ApiError.from_status(event["object"])
                if bookmarks or event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
        finally:
            await stream.close()

    # -- writing -----------------------------------------------------------------------------------------------------

    async def create(self, obj: Obj, *, dry_run: bool = False, subresource: str | None = None) -> Obj:
        """With a subresource (`binding`, `eviction`, `token`) the object's name says whose."""
        resource, namespace = await self._place(obj)
        name = name_of(obj) if subresource else None
        return await self._call("POST", resource.path(namespace, name, subresource), _dry(dry_run), obj)

    async def create_in(
        self, api_version: str, kind: str, name: str, namespace: str | None, subresource: str, body: Obj
    ) -> Obj:
        """POST a body of another kind to a subresource: a Binding to `pods/binding`, a TokenRequest to `token`."""
        resource = await self.resource_for(api_version, kind)
        return await self._call("POST", resource.path(_scope(resource, namespace), name, subresource), None, body)

    async def update(self, obj: Obj, *, subresource: str | None = None, dry_run: bool = False) -> Obj:
        resource, namespace = await self._place(obj)
        return await self._call("PUT", resource.path(namespace, name_of(obj), subresource), _dry(dry_run), obj)

    async def update_status(self, obj: Obj) -> Obj:
        return await self.update(obj, subresource="status")

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None,
        patch: Any,
        *,
        type: Literal["merge", "strategic", "json"] = "merge",  # noqa: A002
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Obj:
        resource = await self.resource_for(api_version, kind)
        query = [("fieldManager", field_manager)] if field_manager else []
        path = resource.path(_scope(resource, namespace), name, subresource)
        return await self._call("PATCH", path, query, patch, PATCH_TYPES[type])

    async def apply(
        self,
        obj: Obj,
        *,
        field_manager: str,
        force: bool = False,
        dry_run: bool = False,
        subresource: str | None = None,
    ) -> Obj:
        """Server-side apply; a conflict is an ApiError 409 whose body names managers and fields."""
        resource, namespace = await self._place(obj)
        query = [("fieldManager", field_manager), ("force", "true" if force else "false"), *_dry(dry_run)]
        path = resource.path(namespace, name_of(obj), subresource)
        return await self._call("PATCH", path, query, obj, "application/apply-patch+yaml")

    async def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str | None = None,
        grace: int | None = None,
        uid: str | None = None,
        missing_ok: bool = False,
    ) -> Obj:
        """The Status when the object is gone, the object when it lingers; {} if it was missing and that is fine."""
        resource = await self.resource_for(api_version, kind)
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation:
            options["propagationPolicy"] = propagation
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            return await self._call("DELETE", resource.path(_scope(resource, namespace), name), None, options)
        except ApiError as error:
            if missing_ok and error.not_found:
                return {}
            raise

    async def delete_all(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        propagation: str | None = None,
    ) -> None:
        """deletecollection."""
        path = (await self.resource_for(api_version, kind)).path(namespace)
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation:
            options["propagationPolicy"] = propagation
        await self._call("DELETE", path, _selectors(labels, fields), options)

    # -- discovery ---------------------------------------------------------------------------------------------------

    async def resources(self) -> builtins.list[Discovered]:
        """Everything the server serves right now."""

        async def fetch(path: str, accept: str) -> Answer:
            return await self._ask("GET", path, None, None, accept=accept)

        found = await discover(fetch)
        self._discovered = {(entry.resource.api_version, entry.resource.kind): entry.resource for entry in found}
        return found

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        """Built-in kinds from a table, others by discovery, which is asked again when a kind is not known."""
        known = Resource.known(api_version, kind) or self._discovered.get((api_version, kind))
        if known is None:
            await self.resources()
            known = self._discovered.get((api_version, kind))
        if known is None:
            raise ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
        return known

    async def _place(self, obj: Obj) -> tuple[Resource, str | None]:
        resource = await self.resource_for(obj["apiVersion"], obj["kind"])
        return resource, _scope(resource, namespace_of(obj))


def _scope(resource: Resource, namespace: str | None) -> str | None:
    return (namespace or "default") if resource.namespaced else None


def _pairs(query: Query | Mapping[str, str] | None) -> builtins.list[tuple[str, str]]:
    if query is None:
        return []
    return list(query.items()) if isinstance(query, Mapping) else list(query)


def _dry(dry_run: bool) -> builtins.list[tuple[str, str]]:
    return [("dryRun", "All")] if dry_run else []


def _selectors(
    labels: str | Mapping[str, str] | None, fields: str | Mapping[str, str] | None
) -> builtins.list[tuple[str, str]]:
    chosen = (("labelSelector", labels), ("fieldSelector", fields))
    return [
        (name, value if isinstance(value, str) else ",".join(f"{key}={text}" for key, text in value.items()))
        for name, value in chosen
        if value
    ]


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines only: what follows the last newline of a stream that ended is half an event."""
    parts: builtins.list[bytes] = []
    async for chunk in chunks:
        if b"\n" not in chunk:
            parts.append(chunk)
            continue
        *lines, rest = (b"".join(parts) + chunk).split(b"\n")
        parts = [rest] if rest else []
        for line in lines:
            if line:
                yield line
