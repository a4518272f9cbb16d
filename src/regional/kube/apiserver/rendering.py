"""From stored bytes to what the client asked for: another version, a Table, only the metadata, YAML.

The common case (JSON, the object itself) only splices bytes; everything else decodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from regional.core.clock import Clock
from regional.kube.apiserver.catalogue import Catalogue
from regional.kube.apiserver.entries import Entry, Obj, ascii_only, encode, encode_body, splice
from regional.kube.apiserver.errors import bad_request, wrong_shape
from regional.kube.apiserver.media import YAML, Wanted
from regional.kube.messages import Response
from regional.kube.schema import builtin, structural, tables
from regional.kube.schema.openapi_validation import shown
from regional.kube.schema.registry import Kind

_INCLUDED = ("", "Metadata", "Object", "None")
PIECE = 500  # objects of a list between two turns of others


class _OnlyMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_metadata_decoder = msgspec.json.Decoder(_OnlyMetadata)


class Renderer:
    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock

    # --- one object ----------------------------------------------------------------------------------------------

    def body(self, kind: Kind, entry: Entry) -> bytes:
        """The stored bytes as `kind` wants them: read through its schema if they may be older than it."""
        if kind.store != (kind.group, kind.plural):
            return encode_body(builtin.from_storage(kind, entry.obj()))
        custom = self._catalogue.custom(kind)
        if custom is None or custom.clean(entry.revision):
            return entry.body
        return encode_body(self._reread(kind, entry))

    def _reread(self, kind: Kind, entry: Entry) -> Obj:
        obj = self._typed(kind, entry.obj())
        custom, schema = self._catalogue.custom(kind), self._catalogue.schema(kind)
        if custom is None or custom.storage == kind.version:
            structural.prune(obj, schema)
            structural.default(obj, schema)
        else:  # defaults are those of the version that is stored; another version adds none of its own
            structural.default(obj, custom.stored_schema)
            structural.prune(obj, schema)
        return obj

    def obj(self, kind: Kind, entry: Entry) -> Obj:
        """A fresh object with kind and apiVersion, to work on."""
        if kind.store != (kind.group, kind.plural):
            return self._typed(kind, builtin.from_storage(kind, entry.obj()))
        custom = self._catalogue.custom(kind)
        if custom is None or custom.clean(entry.revision):
            return self._typed(kind, entry.obj())
        return self._reread(kind, entry)

    @staticmethod
    def _typed(kind: Kind, obj: Obj) -> Obj:
        return {"kind": kind.kind, "apiVersion": kind.api_version} | obj

    def json(self, kind: Kind, entry: Entry) -> bytes:
        return splice(kind.kind, kind.api_version, self.body(kind, entry))

    def single(self, status: int, kind: Kind, entry: Entry, wanted: Wanted, include: str = "") -> Response:
        if wanted.shape == "object":
            return self.answer(status, self.json(kind, entry), wanted)
        if wanted.shape == "table":
            meta = {"resourceVersion": str(entry.revision)}
            table = self._table(kind, [entry], meta, include, with_columns=True, version=wanted.version)
            return self.answer(status, encode(table), wanted)
        if wanted.shape == "partials":
            raise wrong_shape("PartialObjectMetadataList", "not a list", kind, kind.kind)
        return self.answer(status, self._partial(entry, wanted.version), wanted)

    def view(self, kind: Kind, obj: Obj, wanted: Wanted, include: str) -> Response:
        """An object that is not stored as such, in any form that stored ones come in."""
        if wanted.shape == "table":
            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            _check_included(include)
            table = tables.table(
                kind, [obj], self._clock.now(), list_meta=meta, include=include or "Metadata", version=wanted.version
            )
            return self.document(200, table, wanted)
        if wanted.shape == "partials":
            raise wrong_shape("PartialObjectMetadataList", "not a list", kind, kind.kind)
        if wanted.shape == "partial":
            version = f"meta.k8s.io/{wanted.version}"
            obj = {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": obj["metadata"]}
        return self.document(200, obj, wanted)

    def document(self, status: int, document: Any, wanted: Wanted) -> Response:
        return self.answer(status, encode(document), wanted)

    @staticmethod
    def answer(status: int, body: bytes, wanted: Wanted) -> Response:
        if wanted.format == YAML:
            text = yaml.safe_dump(msgspec.json.decode(body), sort_keys=False, allow_unicode=True)
            return Response(status, {"content-type": YAML}, text.encode())
        return Response(status, {"content-type": "application/json"}, body)

    @staticmethod
    def _partial(entry: Entry, version: str) -> bytes:
        metadata = bytes(_metadata_decoder.decode(entry.body).metadata)
        return splice("PartialObjectMetadata", f"meta.k8s.io/{version}", b'{"metadata":' + metadata + b"}")

    # --- lists ---------------------------------------------------------------------------------------------------

    async def listing(self, kind: Kind, entries: list[Entry], meta: Obj, wanted: Wanted, include: str) -> Response:
        """Whole, as one answer; a long one is made in pieces, and others get their turn in between."""
        if wanted.shape == "table":
            version = wanted.version
            empty = encode(self._table(kind, [], meta, include, with_columns=True, version=version))
            rows = await _in_pieces(entries, lambda piece: self._rows(kind, piece, include, version))
            body = b"%b%b]}" % (empty[:-2], b",".join(rows))
        elif wanted.shape == "partial":
            raise wrong_shape("PartialObjectMetadata", "a list", kind, kind.list_kind)
        elif wanted.shape == "partials":
            items = await _in_pieces(entries, lambda piece: [self._partial(entry, wanted.version) for entry in piece])
            body = _list("PartialObjectMetadataList", f"meta.k8s.io/{wanted.version}", meta, items, empty=b"null")
        else:
            items = await _in_pieces(entries, lambda piece: self._items(kind, piece))
            body = _list(kind.list_kind, kind.api_version, meta, items)
        if wanted.format == YAML and len(entries) > PIECE:
            return await asyncio.to_thread(self.answer, 200, body, wanted)
        return self.answer(200, body, wanted)

    def _rows(self, kind: Kind, entries: list[Entry], include: str, version: str) -> list[bytes]:
        table = self._table(kind, entries, {}, include, with_columns=False, version=version)
        return [encode(row) for row in table["rows"]]

    def _items(self, kind: Kind, entries: list[Entry]) -> list[bytes]:
        """Built-in items go without kind and apiVersion."""
        if kind.custom is not None:
            return [self.json(kind, entry) for entry in entries]
        if kind.store == (kind.group, kind.plural):
            return [entry.body for entry in entries]
        return [self.body(kind, entry) for entry in entries]

    def _table(
        self, kind: Kind, entries: list[Entry], meta: Obj, include: str, *, with_columns: bool, version: str = "v1"
    ) -> Obj:
        _check_included(include)
        objects = [self.obj(kind, entry) for entry in entries]
        return tables.table(
            kind,
            objects,
            self._clock.now(),
            list_meta=meta,
            include=include or "Metadata",
            with_columns=with_columns,
            version=version,
        )

    # --- watch lines ---------------------------------------------------------------------------------------------

    def plain_line(self, type_: str, kind: Kind, entry: Entry) -> bytes:
        return wrap(type_, self.json(kind, entry))

    def table_line(self, type_: str, kind: Kind, entry: Entry, include: str, *, first: bool) -> bytes:
        meta = {"resourceVersion": str(entry.revision)}
        table = self._table(kind, [entry], meta, include, with_columns=first)
        return wrap(type_, encode(table))

    def partial_line(self, type_: str, kind: Kind, entry: Entry) -> bytes:
        return wrap(type_, self._partial(entry, "v1"))


def _check_included(include: str) -> None:
    if include not in _INCLUDED:
        why = f"includeObject: Invalid value: {shown(include)}: must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {why}")


async def _in_pieces(entries: list[Entry], made: Callable[[list[Entry]], list[bytes]]) -> list[bytes]:
    if len(entries) <= PIECE:
        return made(entries)
    whole: list[bytes] = []
    for first in range(0, len(entries), PIECE):
        whole += made(entries[first : first + PIECE])
        await asyncio.sleep(0)
    return whole


def wrap(type_: str, body: bytes) -> bytes:
    return ascii_only(b'{"type":"%b","object":%b}\n' % (type_.encode(), body))


def _list(kind: str, api_version: str, meta: Obj, items: list[bytes], *, empty: bytes = b"[]") -> bytes:
    """In one copy, since lists are large: the ends go with the first and the last item."""
    head = splice(kind, api_version, b'{"metadata":' + encode(meta) + b',"items":[')
    if not items:
        return head[:-1] + empty + b"}"
    items[0] = head + items[0]
    items[-1] += b"]}"
    return b",".join(items)
