"""Bodies in and out: which form the client accepts, and how what it sent becomes an object."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import bad_request, not_acceptable, unsupported_media_type
from regional.kube.messages import Request
from regional.kube.schema import protobuf
from regional.kube.schema.registry import Kind

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_ACCEPTED = f"{JSON}, {YAML}, {PROTOBUF}"


class Wanted(msgspec.Struct, frozen=True):
    """`shape`: object, table, partial (a single PartialObjectMetadata) or partials (its list)."""

    format: str = JSON
    shape: str = "object"


_SHAPES = {"Table": "table", "PartialObjectMetadata": "partial", "PartialObjectMetadataList": "partials"}


def clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for clause in accept.split(","):
        media, *parameters = [part.strip() for part in clause.split(";")]
        if media:
            pairs = (parameter.partition("=") for parameter in parameters)
            found.append((media.lower(), {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}))
    return found


def wanted(request: Request) -> Wanted:
    """The first clause that we can answer; 406 if there is none."""
    accept = clauses(request.headers.get("accept", ""))
    if not accept:
        return Wanted()
    for media, parameters in accept:
        if media in ("*/*", "application/*"):
            media = JSON
        if media in ("text/yaml", "application/x-yaml"):
            media = YAML
        if media not in (JSON, YAML):
            continue
        asked = parameters.get("as", "")
        if not asked:
            return Wanted(media)
        if asked in _SHAPES and parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1"):
            return Wanted(media, _SHAPES[asked])
    raise not_acceptable(_ACCEPTED)


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def patch_type(request: Request, kind: Kind) -> str:
    known = [media for media, name in PATCHES.items() if kind.custom is None or name != "strategic"]
    media = content_type(request)
    if media not in known:
        raise unsupported_media_type(", ".join(known))
    return PATCHES[media]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML the way JSON is meant: a timestamp stays the text it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_yaml(body: bytes) -> Any:
    try:
        return yaml.load(body, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise bad_request(f"error parsing YAML: {error}") from None


def from_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def decode(request: Request, *, builtin: bool = True) -> Obj:
    """The object in the body, whatever the format; a 400 if it is none."""
    media = content_type(request) or JSON
    if media == JSON:
        value = from_json(request.body)
    elif media in (YAML, "application/apply-patch+yaml"):
        value = from_yaml(request.body) if request.body[:1] != b"{" else from_json(request.body)
    elif media == PROTOBUF and builtin:
        value = protobuf.decode(request.body)
    else:
        raise unsupported_media_type(_ACCEPTED)
    if not isinstance(value, dict):
        raise bad_request(
            "the object provided is unrecognized (must be of type Object): expected a JSON or YAML object"
        )
    return value


def is_textual(request: Request) -> bool:
    """JSON, where a key can be given twice."""
    return content_type(request) in ("", JSON)
