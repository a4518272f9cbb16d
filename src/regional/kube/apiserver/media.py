"""Bodies in and out: which form the client accepts, and how what it sent becomes an object."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import (
    StatusError,
    bad_request,
    no_such_form,
    not_acceptable,
    unsupported_media_type,
)
from regional.kube.messages import Request
from regional.kube.schema import gojson, protobuf
from regional.kube.schema.errors import DecodeError
from regional.kube.schema.registry import Kind
from regional.kube.schema.strict import json_kind

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_APPLY = "application/apply-patch+yaml"
_ACCEPTED = f"{JSON}, {YAML}, {PROTOBUF}"
_STREAMS = f", {JSON};stream=watch, {PROTOBUF};stream=watch"


class Wanted(msgspec.Struct, frozen=True):
    """`shape`: object, table, partial (a single PartialObjectMetadata) or partials (its list)."""

    format: str = JSON
    shape: str = "object"
    version: str = "v1"


_SHAPES = {"Table": "table", "PartialObjectMetadata": "partial", "PartialObjectMetadataList": "partials"}


def clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for clause in accept.split(","):
        media, *parameters = [part.strip() for part in clause.split(";")]
        if media:
            pairs = (parameter.partition("=") for parameter in parameters)
            found.append((media.lower(), {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}))
    return found


def wanted(request: Request, *, streams: bool = False) -> Wanted:
    """The first clause that we can answer; 406 if there is none. `streams`: the path can be watched."""
    accept = clauses(request.headers.get("accept", ""))
    if not accept:
        return Wanted()
    known = False
    for media, parameters in accept:
        if media in ("*/*", "application/*"):
            media = JSON
        if media in ("text/yaml", "application/x-yaml"):
            media = YAML
        known = known or media == PROTOBUF
        if media not in (JSON, YAML):
            continue
        known = True
        asked = parameters.get("as", "")
        if not asked:
            return Wanted(media)
        if asked in _SHAPES and parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1"):
            return Wanted(media, _SHAPES[asked], parameters["v"])
    if not known:
        raise no_such_form(_ACCEPTED + (_STREAMS if streams else ""))
    raise not_acceptable(_ACCEPTED)


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def patch_type(request: Request, kind: Kind) -> str:
    known = [media for media, name in PATCHES.items() if kind.custom is None or name != "strategic"]
    media = content_type(request)
    if media not in known:
        raise unsupported_media_type(", ".join(known) if kind.custom is not None else "")
    return PATCHES[media]


def from_yaml(body: bytes) -> Any:
    """Raises ValueError with the real parser's words."""
    from regional.kube.apiserver import yamlbodies

    return yamlbodies.read(body)


def from_json(body: bytes) -> Any:
    """Raises ValueError with the words of Go's decoder, which also takes some bodies that ours refuses."""
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        return from_json(body.decode("utf-8", "replace").encode())
    except (msgspec.DecodeError, RecursionError):
        return gojson.lenient(body)


def unrecognized(kind: str, problem: object, body: bytes) -> StatusError:
    """A body of which not even the kind could be read."""
    summary = gojson.summary(body)
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {problem} ({summary})")


def decode(request: Request, kind: str, *, builtin: bool = True) -> Obj:
    """The object in the body, whatever the format; a 400 if it is none. `kind` is what messages say it should be."""
    media, body = content_type(request) or JSON, request.body
    if media not in (JSON, YAML, _APPLY) and not (media == PROTOBUF and builtin):
        raise unsupported_media_type(_ACCEPTED)
    try:
        value = _read(media, body)
    except (ValueError, DecodeError) as problem:
        if media == _APPLY:
            raise bad_request(f"error decoding YAML: error converting YAML to JSON: {problem}") from None
        raise unrecognized(kind, problem, body) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        if media == _APPLY:
            found = f"json: cannot unmarshal {json_kind(value)} into Go value of type map[string]interface {{}}"
            raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {found}")
        raise unrecognized(kind, _VERSION_KIND + gojson.wrong_shape(value), body)
    return value


_VERSION_KIND = "couldn't get version/kind; json parse error: "


def _read(media: str, body: bytes) -> Any:
    if media == PROTOBUF:
        return protobuf.decode(body)
    if media != JSON:
        try:
            # Clients send JSON as YAML, which it is; the quick parser reads it many times faster.
            return msgspec.json.decode(body) if body[:1] == b"{" else from_yaml(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return from_yaml(body)
    try:
        return from_json(body)
    except ValueError as problem:
        raise ValueError(f"{_VERSION_KIND}{problem}") from None


def is_textual(request: Request) -> bool:
    """JSON, where a key can be given twice."""
    return content_type(request) in ("", JSON)
