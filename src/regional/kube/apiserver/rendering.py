"""From stored bytes to what the client asked for: another version, a Table, only the metadata, YAML.

The common case (JSON, the object itself) only splices bytes; everything else decodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from regional.core.clock import Clock
from regional.kube.apiserver.catalogue import Catalogue
from regional.kube.apiserver.entries import Entry, Obj, ascii_only, encode, encode_body, splice
from regional.kube.apiserver.media import YAML, Wanted
from regional.kube.apiserver.shelf import Event
from regional.kube.messages import Response
from regional.kube.schema import builtin, structural, tables
from regional.kube.schema.registry import Kind


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
        schema = self._catalogue.schema(kind)
        structural.prune(obj, schema)
        structural.default(obj, schema)
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
            table = self._table(kind, [entry], meta, include, with_columns=True)
            return self.answer(status, encode(table), wanted)
        return self.answer(status, self._partial(kind, entry), wanted)

    def document(self, status: int, document: Any, wanted: Wanted) -> Response:
        return self.answer(status, encode(document), wanted)

    @staticmethod
    def answer(status: int, body: bytes, wanted: Wanted) -> Response:
        if wanted.format == YAML:
            text = yaml.safe_dump(msgspec.json.decode(body), sort_keys=False, allow_unicode=True)
            return Response(status, {"content-type": YAML}, text.encode())
        return Response(status, {"content-type": "application/json"}, body)

    def _partial(self, kind: Kind, entry: Entry) -> bytes:
        metadata = bytes(_metadata_decoder.decode(entry.body).metadata)
        return splice("PartialObjectMetadata", "meta.k8s.io/v1", b'{"metadata":' + metadata + b"}")

    # --- lists ---------------------------------------------------------------------------------------------------

    def listing(self, kind: Kind, entries: list[Entry], meta: Obj, wanted: Wanted, include: str) -> Response:
        if wanted.shape == "table":
            return self.answer(200, encode(self._table(kind, entries, meta, include, with_columns=True)), wanted)
        if wanted.shape in ("partial", "partials"):
            items: Iterable[bytes] = (self._partial(kind, entry) for entry in entries)
            return self.answer(200, _list("PartialObjectMetadataList", "meta.k8s.io/v1", meta, items), wanted)
        if kind.custom is not None:
            items = (self.json(kind, entry) for entry in entries)
        else:
            items = (self.body(kind, entry) for entry in entries)
        return self.answer(200, _list(kind.list_kind, kind.api_version, meta, items), wanted)

    def _table(self, kind: Kind, entries: list[Entry], meta: Obj, include: str, *, with_columns: bool) -> Obj:
        objects = [self.obj(kind, entry) for entry in entries]
        return tables.table(
            kind,
            objects,
            self._clock.now(),
            list_meta=meta,
            include=include or "Metadata",
            with_columns=with_columns,
        )

    # --- watch lines ---------------------------------------------------------------------------------------------

    def line(self, type_: str, kind: Kind, event: Event, entry: Entry) -> bytes:
        """One line of a plain watch; made once for an event and shared by all who watch in the same version."""
        place = (type_, kind.kind, kind.api_version)
        line = event.rendered.get(place)
        if line is None or entry is not event.entry:
            line = self.plain_line(type_, kind, entry)
            if entry is event.entry:
                event.rendered[place] = line
        return line

    def plain_line(self, type_: str, kind: Kind, entry: Entry) -> bytes:
        return wrap(type_, self.json(kind, entry))

    def table_line(self, type_: str, kind: Kind, entry: Entry, include: str, *, first: bool) -> bytes:
        meta = {"resourceVersion": str(entry.revision)}
        table = self._table(kind, [entry], meta, include, with_columns=first)
        return wrap(type_, encode(table))

    def partial_line(self, type_: str, kind: Kind, entry: Entry) -> bytes:
        return wrap(type_, self._partial(kind, entry))


def wrap(type_: str, body: bytes) -> bytes:
    return ascii_only(b'{"type":"%b","object":%b}\n' % (type_.encode(), body))


def _list(kind: str, api_version: str, meta: Obj, items: Iterable[bytes]) -> bytes:
    head = splice(kind, api_version, b'{"metadata":' + encode(meta))
    return b'%b,"items":[%b]}' % (head, b",".join(items))
