"""What a client sent, on its way to an object: type checks, fields nobody knows, patches."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import (
    Cause,
    StatusError,
    bad_patch,
    bad_request,
    invalid,
    invalid_options,
    unprocessable,
)
from regional.kube.apiserver.media import decode, from_json, is_textual, unrecognized
from regional.kube.apiserver.soundness import make_sound
from regional.kube.messages import Request
from regional.kube.schema import gojson, patches, strict, structural
from regional.kube.schema.registry import Kind, by_kind
from regional.kube.schema.types import Schema, schema_of


def copied(obj: Obj) -> Obj:
    """A deep copy; a round through the encoder is several times faster than copy.deepcopy."""
    again: Obj = msgspec.json.decode(msgspec.json.encode(obj))
    return again


def decode_object(call: Call, schema: Schema) -> Obj:
    """The body of a create or update, typed and rid of unknown fields."""
    kind = call.kind
    obj = decode(call.request, kind.kind, builtin=kind.custom is None)
    check_type(kind, obj, call.request.body)
    check_json_types(kind, obj, schema, call.request)
    make_sound(obj, schema, call.request.body)
    doubled = duplicates(call, obj)
    places = _places(obj) if doubled and kind.custom is None else {}
    unknown = structural.prune(obj, schema)
    if kind.custom is not None:
        unknown.sort()
    found = [(path, f'duplicate field "{path}"') for path in doubled]
    found += [(path, f'unknown field "{path}"') for path in unknown]
    # One decoder reads a built-in kind and objects as it goes; custom kinds are pruned after they are read.
    found.sort(key=lambda each: places.get(each[0], 0))
    report(call, [text for _, text in found], obj)
    return whole(obj)


def whole(obj: Obj) -> Obj:
    """The object itself, unless parts of it that would be stored were never read."""
    if isinstance(obj, gojson.Shallow) and gojson.depth(obj) > gojson.KEPT_DEPTH:
        raise bad_request("the object is nested too deeply")
    return obj


def _places(obj: Obj) -> dict[str, int]:
    """Path → its place in the order of the document."""
    places: dict[str, int] = {}

    def walk(value: Any, path: str) -> None:
        places[path] = len(places)
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    walk(obj, "")
    return places


def decode_body(request: Request, kind: Kind) -> Obj:
    """The body of something that is never stored (a review, a binding, a scale): its types are checked, no more."""
    obj = decode(request, kind.kind) if request.body else {}
    check_json_types(kind, obj, schema_of(kind), request)
    make_sound(obj, schema_of(kind), request.body)
    return obj


def duplicates(call: Call, obj: Obj) -> list[str]:
    if call.field_validation == "Ignore" or not is_textual(call.request):
        return []
    return strict.duplicate_fields(call.request.body, obj)


def report(call: Call, problems: list[str], obj: Obj) -> None:
    """Unknown and duplicate fields: refused, warned of, or passed over, as the client asks."""
    if not problems or call.field_validation == "Ignore":
        return
    if call.field_validation == "Strict":
        kind = call.kind
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(problems)}"
        )
    for problem in problems:
        call.warn(problem)


def check_type(kind: Kind, obj: Obj, body: bytes) -> None:
    """apiVersion and kind must be the path's; a built-in kind may leave them out."""
    given_kind, given_version = obj.get("kind"), obj.get("apiVersion")
    _check_type_names(kind, given_kind, given_version, body)
    if kind.custom is not None:
        if not given_kind:
            text = msgspec.json.encode(obj).decode()
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): "
                f"Object 'Kind' is missing in '{text[:1000]}' ({text[:30]} ...)"
            )
        if given_kind != kind.kind:
            text = f'Invalid value: "{given_kind}": must be {kind.kind}'
            name = (obj.get("metadata") or {}).get("name", "") if isinstance(obj.get("metadata"), dict) else ""
            as_given = msgspec.structs.replace(kind, kind=str(given_kind))
            raise invalid(as_given, str(name), [Cause("FieldValueInvalid", text, "kind")])
    elif given_kind not in (None, "", kind.kind):
        raise _cannot_handle(kind, given_kind, str(given_version or kind.api_version))
    if given_version != kind.api_version and (given_version or kind.custom is not None):
        if kind.custom is None and not _known(kind.kind, str(given_version)):
            raise _cannot_handle(kind, kind.kind, str(given_version))
        raise bad_request(
            f"the API version in the data ({given_version or ''}) does not match the expected API version "
            f"({kind.api_version})"
        )
    obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version


def _check_type_names(kind: Kind, given_kind: Any, given_version: Any, body: bytes) -> None:
    for field, value in (("kind", given_kind), ("apiVersion", given_version)):
        if value is not None and not isinstance(value, str):
            found = strict.json_kind(value)
            problem = f"json: cannot unmarshal {found} into Go struct field .{field} of type string"
            raise unrecognized(kind.kind, f"couldn't get version/kind; json parse error: {problem}", body)
    if str(given_version or "").count("/") > 1:
        raise unrecognized(kind.kind, f"unexpected GroupVersion string: {given_version}", body)


def _known(name: str, api_version: str) -> bool:
    group, _, version = api_version.rpartition("/")
    return by_kind(group, version, name) is not None


def _cannot_handle(kind: Kind, given_kind: str, given_version: str) -> StatusError:
    """The words of the real server's decoder, which knows every built-in kind and the Go type behind it."""
    version = given_version.rpartition("/")[2]
    if _known(given_kind, given_version):
        package = kind.group.partition(".")[0] or "core"
        why = f"converting ({version}.{given_kind}) to ({package}.{kind.kind}): unknown conversion"
    else:
        scheme = "pkg/runtime/scheme.go:111"
        why = f'no kind "{given_kind}" is registered for version "{given_version}" in scheme "{scheme}"'
    return bad_request(f'{given_kind} in version "{version}" cannot be handled as a {kind.kind}: {why}')


def check_json_types(kind: Kind, obj: Obj, schema: Schema, request: Request | None = None) -> None:
    """A Go decoder stops at the first value of the wrong JSON type: 400, before anything else is looked at."""
    metadata = obj.setdefault("metadata", {})
    if metadata is None:
        obj["metadata"] = {}
    # A custom kind is untyped but for its metadata; what its schema says is checked, and told, later.
    custom = kind.custom is not None
    wrong = strict.metadata_error(obj, schema) if custom else strict.type_error(obj, schema)
    if wrong is None and not isinstance(obj["metadata"], dict):
        found = strict.json_kind(obj["metadata"])
        wrong = f"json: cannot unmarshal {found} into Go struct field {kind.kind}.metadata of type v1.ObjectMeta"
    if wrong is None:
        return
    if "number" in wrong and not custom and request is not None and is_textual(request):
        # Said again with the number as it was written (1e2, not 100.0).
        with contextlib.suppress(ValueError):
            wrong = strict.type_error(gojson.lenient(request.body), schema) or wrong
    raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong}')


# --- patches -----------------------------------------------------------------------------------------------------


def decode_patch(call: Call, how: str) -> Any:
    lead = "" if how == "strategic" else "error decoding patch: "
    try:
        patch = from_json(call.request.body)
    except ValueError as problem:
        raise bad_request(f"{lead}{problem}") from None
    if how != "json" and not isinstance(patch, dict):
        if patch is None:
            raise bad_request("Invalid JSON Patch")
        found = strict.json_kind(patch)
        raise bad_request(f"{lead}json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
    return patch


def patched(how: str, doc: Obj, patch: Any, schema: Schema) -> Obj:
    if how == "json":
        result = patches.json_patch(doc, patch)
    elif how == "merge":
        result = patches.merge_patch(doc, patch)
    else:
        result = patches.strategic_patch(doc, patch, schema)
    if not isinstance(result, dict):
        raise unprocessable()
    if isinstance(patch, gojson.Shallow):
        return whole(gojson.Shallow(result))
    return result


def check_fields(call: Call, new: Obj, schema: Schema, *, patch: Any, how: str) -> None:
    """The patched object, checked like one that was sent; in patches strictness is a 422 on the field `patch`."""
    try:
        check_type(call.kind, new, call.request.body)
        check_json_types(call.kind, new, schema)
    except StatusError as error:
        why = error.message.partition(f" cannot be handled as a {call.kind.kind}: ")[2]
        if error.code != 400 or not why:
            raise
        raise bad_patch(_shown(new, patch, how), why) from None
    make_sound(new, schema, call.request.body)
    result = _shown(new, patch, how) if call.field_validation == "Strict" else ""
    problems = [f'unknown field "{path}"' for path in structural.prune(new, schema)]
    if problems and call.field_validation == "Strict":
        raise bad_patch(result, f"strict decoding error: {', '.join(problems)}")
    report(call, problems, new)


def _shown(result: Obj, patch: Any, how: str) -> str:
    """What a refusal shows: the patched document, or of a strategic patch the patch, as Go prints a map."""
    if how == "strategic":
        return _go_value(patch)
    return msgspec.json.encode(result, order="sorted").decode()


def _go_value(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_value(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_value(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- apply -------------------------------------------------------------------------------------------------------


def decode_applied(call: Call, schema: Schema) -> Obj:
    if not call.request.parameter("fieldManager"):
        cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
        raise invalid_options("PatchOptions", cause)
    applied = decode(call.request, call.kind.kind)
    metadata = applied.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    kind = call.kind
    if applied.get("kind") != kind.kind or applied.get("apiVersion") != kind.api_version:
        group, _, version = str(applied.get("apiVersion") or "").rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={applied.get('kind') or ''}")
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    metadata.pop("managedFields", None)
    make_sound(applied, schema, call.request.body)
    return applied
