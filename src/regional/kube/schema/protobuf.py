"""Request bodies in Kubernetes' protobuf, decoded into the JSON objects everything else works on.

Go clients send protobuf for built-in kinds and do not fall back, so a server must read it (answers may be JSON). The
field table says for each number the JSON name and the Go type; Go's rules for what JSON then shows (omitempty,
pointers, inlined messages) are applied here, so that a protobuf body and its JSON twin give the same object.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.kube.schema.errors import DecodeError

MAGIC = b"k8s\x00"
MAX_DEPTH = 100

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_META = "apimachinery/pkg/apis/meta/v1"
_PACKAGES = {
    "": "api/core/v1",
    "apps": "api/apps/v1",
    "batch": "api/batch/v1",
    "rbac.authorization.k8s.io": "api/rbac/v1",
    "coordination.k8s.io": "api/coordination/v1",
    "authentication.k8s.io": "api/authentication/v1",
    "authorization.k8s.io": "api/authorization/v1",
    "certificates.k8s.io": "api/certificates/v1",
    "admissionregistration.k8s.io": "api/admissionregistration/v1",
    "policy": "api/policy/v1",
    "networking.k8s.io": "api/networking/v1",
    "discovery.k8s.io": "api/discovery/v1",
    "events.k8s.io": "api/events/v1",
    "scheduling.k8s.io": "api/scheduling/v1",
    "storage.k8s.io": "api/storage/v1",
    "autoscaling": "api/autoscaling/",
    "node.k8s.io": "api/node/v1",
    "apiextensions.k8s.io": "apiextensions-apiserver/pkg/apis/apiextensions/v1",
}
# Their meta kinds are sent under the group of whatever they act on.
_META_KINDS = {"DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "ListOptions", "GetOptions", "Status"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Wire = list[tuple[int, int, Any]]


def decode(body: bytes) -> Obj:
    """The object in a protobuf body, with apiVersion and kind; DecodeError if it cannot be read."""
    if not body:
        raise DecodeError("empty data")
    if body == MAGIC:
        raise DecodeError("empty body")
    if body[:4] != MAGIC:
        raise DecodeError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = wire_fields(body[4:])
        meta, raw = b"", b""
        for number, _, value in envelope:
            if number == 1:
                meta = value
            elif number == 2:
                raw = value
        names = {number: value.decode() for number, _, value in wire_fields(meta)}
        api_version, kind = names.get(1, ""), names.get(2, "")
        content = _Decoder().message(_message_name(api_version, kind), raw)
    except (IndexError, ValueError, OverflowError, struct.error, AttributeError, TypeError) as problem:
        raise DecodeError(str(problem)) from None  # an overflow: times that no calendar has
    except RecursionError:
        raise DecodeError("the object is nested too deeply") from None
    return {"kind": kind, "apiVersion": api_version, **content}


def _message_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    if kind in _META_KINDS:
        return f"{_META}#{kind}"
    package = _PACKAGES.get(group, "")
    name = f"{package}{version if package.endswith('/') else ''}#{kind}"
    if name not in field_table():
        message = f'no kind "{kind}" is registered for version "{api_version}" in the protobuf table'
        raise DecodeError(message)
    return name


@cache
def field_table() -> dict[str, dict[str, list[Any]]]:
    content = resources.files("regional.kube.schema").joinpath("data/protobuf.json").read_bytes()
    table: dict[str, dict[str, list[Any]]] = msgspec.json.decode(content)
    return table


# --- the wire format -----------------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint overflow")


def wire_fields(data: bytes) -> Wire:
    found: Wire = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("unexpected EOF")
            value = data[at : at + size]
            at += size
        elif wire == _FIXED64:
            value = data[at : at + 8]
            at += 8
        elif wire == _FIXED32:
            value = data[at : at + 4]
            at += 4
        else:
            raise ValueError(f"illegal wiretype {wire}")
        found.append((number, wire, value))
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


# --- messages ------------------------------------------------------------------------------------------------------


class _Decoder:
    def __init__(self) -> None:
        self._depth = 0

    def message(self, name: str, data: bytes) -> Obj:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("the message is nested too deeply")
        layout = field_table()[name]
        out: Obj = {}
        for number, wire, value in wire_fields(data):
            field = layout.get(str(number))
            if field is None:
                continue
            json_name, kind, omitempty = field
            if not json_name:
                out.update(self.message(kind, value))
            else:
                self._read(out, json_name, kind, omitempty, wire, value)
        self._depth -= 1
        return out

    def _read(self, out: Obj, name: str, kind: str, omitempty: int, wire: int, value: Any) -> None:
        if kind.startswith("[]"):
            items = out.setdefault(name, [])
            if wire == _BYTES and kind[2:] in _NUMBERS:
                items.extend(self._packed(kind[2:], value))
            else:
                items.append(self._value(kind[2:], value))
        elif kind.startswith("map:"):
            entry = {number: item for number, _, item in wire_fields(value)}
            key = entry.get(1, b"").decode()
            out.setdefault(name, {})[key] = self._value(kind[4:], entry.get(2, b""))
        elif kind.startswith("*"):
            out[name] = self._value(kind[1:], value)
        else:
            decoded = self._value(kind, value)
            # Go writes zero values of plain fields on the wire; JSON leaves them out, unless they always show.
            if decoded is not None and (decoded or not omitempty or "#" in kind):
                out[name] = decoded

    def _value(self, kind: str, value: Any) -> Any:
        if "#" in kind:
            return self.message(kind, value)
        if kind == "bytes":
            return base64.b64encode(value).decode()
        if kind == "string":
            return value.decode() if isinstance(value, bytes) else str(value)
        if kind in _NUMBERS:
            return _NUMBERS[kind](value)
        return _WELL_KNOWN[kind](self, value)

    def _packed(self, kind: str, data: bytes) -> list[Any]:
        out = []
        at = 0
        while at < len(data):
            value, at = _varint(data, at)
            out.append(_NUMBERS[kind](value))
        return out

    # --- types with a JSON form of their own -----------------------------------------------------------------------

    def time(self, data: bytes) -> str | None:
        seconds, _ = self._seconds(data)
        moment = _EPOCH + timedelta(seconds=seconds)
        return None if moment.year <= 1 else moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def microtime(self, data: bytes) -> str | None:
        seconds, nanos = self._seconds(data)
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
        return None if moment.year <= 1 else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _seconds(self, data: bytes) -> tuple[int, int]:
        parts = {number: value for number, _, value in wire_fields(data)}
        if not parts:
            # The zero time is an empty message; it must not become 1970.
            return -62135596800, 0
        return _signed(parts.get(1, 0)), _signed(parts.get(2, 0))

    def quantity(self, data: bytes) -> str:
        return _first(data).decode() or "0"

    def int_or_string(self, data: bytes) -> int | str:
        parts = {number: value for number, _, value in wire_fields(data)}
        if parts.get(1, 0):
            text: str = parts.get(3, b"").decode()
            return text
        return _int32(parts.get(2, 0))

    def raw(self, data: bytes) -> Any:
        content = _first(data)
        return msgspec.json.decode(content) if content else None

    def duration(self, data: bytes) -> str:
        nanos = _signed(_first(data) or 0) if data else 0
        return f"{nanos / 1e9:g}s"

    def empty(self, data: bytes) -> Obj:
        """A message without fields, which says something by being there."""
        return {}

    def strings(self, data: bytes) -> list[str]:
        return [value.decode() for _, _, value in wire_fields(data)]

    def schema_or_array(self, data: bytes) -> Any:
        parts = [(number, value) for number, _, value in wire_fields(data)]
        schemas = [self._schema(value) for number, value in parts if number == 2]
        single = [self._schema(value) for number, value in parts if number == 1]
        return schemas or (single[0] if single else None)

    def schema_or_bool(self, data: bytes) -> Any:
        parts = {number: value for number, _, value in wire_fields(data)}
        return self._schema(parts[2]) if 2 in parts else bool(parts.get(1))

    def schema_or_strings(self, data: bytes) -> Any:
        parts = [(number, value) for number, _, value in wire_fields(data)]
        schemas = [self._schema(value) for number, value in parts if number == 1]
        return schemas[0] if schemas else [value.decode() for number, value in parts if number == 2]

    def _schema(self, data: bytes) -> Obj:
        return self.message("apiextensions-apiserver/pkg/apis/apiextensions/v1#JSONSchemaProps", data)


def _first(data: bytes) -> Any:
    for number, _, value in wire_fields(data):
        if number == 1:
            return value
    return b""


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _double(value: Any) -> float | int:
    number: float = struct.unpack("<d", value)[0]
    return int(number) if number.is_integer() else number


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int32": _signed,
    "int64": _signed,
    "uint32": int,
    "uint64": int,
    "float64": _double,
}
_WELL_KNOWN: dict[str, Callable[[_Decoder, Any], Any]] = {
    "time": _Decoder.time,
    "microtime": _Decoder.microtime,
    "quantity": _Decoder.quantity,
    "intorstring": _Decoder.int_or_string,
    "raw": _Decoder.raw,
    "duration": _Decoder.duration,
    "empty": _Decoder.empty,
    "strings": _Decoder.strings,
    "schemaorarray": _Decoder.schema_or_array,
    "schemaorbool": _Decoder.schema_or_bool,
    "schemaorstrings": _Decoder.schema_or_strings,
}
