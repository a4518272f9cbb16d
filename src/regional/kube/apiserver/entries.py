"""Objects as the server keeps them in memory: encoded, with only what selectors ask for beside the bytes.

A stored body has neither `kind` nor `apiVersion`: they are spliced in front on the way out, since built-in list items
go without them and a custom resource may be asked for in any of its versions.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Obj = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for cluster scope), name

_NOTHING: dict[str, str] = {}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NON_ASCII = re.compile("[^\x00-\x7f]")


class Entry(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    revision: int
    uid: str
    body: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    def obj(self) -> Obj:
        """A fresh copy without kind and apiVersion."""
        decoded: Obj = _decode(self.body)
        return decoded


def entry_of(obj: Obj, selectable: tuple[str, ...], body: bytes | None = None) -> Entry:
    metadata = obj["metadata"]
    return Entry(
        metadata.get("namespace", ""),
        metadata["name"],
        int(metadata.get("resourceVersion", "0")),
        metadata.get("uid", ""),
        encode_body(obj) if body is None else body,
        metadata.get("labels") or _NOTHING,
        {path: field_text(obj, path) for path in selectable} if selectable else _NOTHING,
    )


class _Labelled(msgspec.Struct):
    labels: dict[str, str] | None = None


class _OnlyLabels(msgspec.Struct):
    metadata: _Labelled


_decode_labels = msgspec.json.Decoder(_OnlyLabels).decode


def stored_entry(namespace: str, name: str, revision: int, uid: str, body: bytes, selectable: tuple[str, ...]) -> Entry:
    """An entry from the file's row: of most objects only the labels need to be read."""
    if selectable:
        return entry_of(decode_body(body), selectable, body)
    labels = _decode_labels(body).metadata.labels
    return Entry(namespace, name, revision, uid, body, labels or _NOTHING, _NOTHING)


def encode_body(obj: Obj) -> bytes:
    return _encode({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})


def decode_body(body: bytes) -> Obj:
    decoded: Obj = _decode(body)
    return decoded


def encode(value: Any) -> bytes:
    return _encode(value)


# Selectors that do not spell the path they mean, and booleans whose absence means false.
_MEANT = {"source": "source.component", "status.successful": "status.succeeded"}
_ABSENT = {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.successful": "0"}


def field_text(obj: Obj, path: str) -> str:
    """A selectable field's value in the selector's form; absent and empty are the same."""
    return _text(obj, _MEANT.get(path, path)) or _ABSENT.get(path, "")


def _text(obj: Obj, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(part)
    if value is None or isinstance(value, (dict, list)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def at_revision(entry: Entry, revision: int) -> Entry:
    """The same content under another revision."""
    obj = decode_body(entry.body)
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.structs.replace(entry, revision=revision, body=encode_body(obj))


def splice(kind: str, api_version: str, body: bytes) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b",%b' % (kind.encode(), api_version.encode(), body[1:])


def ascii_only(data: bytes) -> bytes:
    """U+2028, U+2029 and U+0085 end a line for some clients' stream readers: nothing beyond ASCII goes on a stream."""
    if data.isascii():
        return data
    return _NON_ASCII.sub(_escape, data.decode("utf-8", "replace")).encode()


def _escape(match: re.Match[str]) -> str:
    raw = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2))
