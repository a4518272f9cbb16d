"""Request bodies: bounded in size and depth, and checked so that one answer names everything that is wrong.

Nothing that reaches the database can be refused there: PostgreSQL's jsonb does not take NUL characters, nor numbers
beyond its own range.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request

from regional.clm.api.problems import Invalid, Malformed, TooLarge, WrongMediaType
from regional.clm.entities import Entity
from regional.clm.specs import Fault, check_spec, without_nulls

BODY_BYTES = 1024 * 1024
DEPTH = 64
LABELS = 100
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HUGE = 10**300  # jsonb would keep it; no reader could


class Draft(msgspec.Struct, frozen=True):
    """What a caller asks for. None: not said."""

    spec: dict[str, Any] | None = None
    labels: dict[str, str] | None = None
    references: dict[str, Any] | None = None
    name: str = ""


async def read_json(request: Request) -> dict[str, Any]:
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media not in ("application/json", ""):
        raise WrongMediaType(f"the body must be application/json, not {media[:100]}")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_BYTES:
        raise TooLarge(f"the body may have at most {BODY_BYTES} bytes")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise TooLarge(f"the body may have at most {BODY_BYTES} bytes")
    return parse(bytes(body))


def parse(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except RecursionError:
        raise Malformed(f"the body is nested deeper than {DEPTH} levels") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid.because([Fault("", "field '' must be an object", None, "format")])
    _bound(document)
    return document


def _bound(document: Any) -> None:
    level: list[Any] = [document]
    for _ in range(DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if any("\0" in key for key in value):
                    raise Malformed("the body has a NUL character")
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                if "\0" in value:
                    raise Malformed("the body has a NUL character")
            elif isinstance(value, int | float) and abs(value) > _HUGE:
                raise Malformed("the body has a number out of range")
        if not below:
            return
        level = below
    raise Malformed(f"the body is nested deeper than {DEPTH} levels")


def draft_of_create(document: dict[str, Any], entity: Entity) -> Draft:
    """Unknown fields are ignored, as the contract has it. Raises Invalid with every fault."""
    faults: list[Fault] = []
    kind = _typed(document, "kind", str, "a string", faults)
    if kind is None:
        _require("kind", document, faults)
    elif kind != entity.kind:
        faults.append(Fault("kind", f"kind must be '{entity.kind}'", kind[:100], "enum"))
    name = _typed(document, "name", str, "a string", faults)
    if name is None:
        _require("name", document, faults)
    else:
        faults += _name_faults(name, entity)
    spec = _typed(document, "spec", dict, "an object", faults)
    if spec is None:
        _require("spec", document, faults)
    else:
        faults += check_spec(spec, entity.spec_schema)
    labels, references = _common(document, faults)
    if faults:
        raise Invalid.because(faults, f"Invalid {entity.kind}Spec" if _only_spec(faults) else "")
    return Draft(without_nulls(spec, entity.spec_schema), labels, references, name or "")


def draft_of_patch(document: dict[str, Any], entity: Entity) -> Draft:
    """`spec` and `labels` replace what is there. An unknown field is refused: a typing error must not be a success."""
    unknown = sorted(set(document) - {"spec", "labels", "references"})
    if unknown:
        faults = [Fault(name[:100], f"unknown field {name[:100]!r}") for name in unknown[:20]]
        raise Malformed(f"unknown field: {', '.join(fault.field for fault in faults)}", faults)
    faults = []
    spec = _typed(document, "spec", dict, "an object", faults)
    labels, references = _common(document, faults)
    if spec is not None:
        faults += check_spec(spec, entity.spec_schema)
    if faults:
        raise Invalid.because(faults, f"Invalid {entity.kind}Spec" if _only_spec(faults) else "")
    if spec is None and labels is None and references is None:
        raise Invalid("at least one field must be provided for update")
    return Draft(without_nulls(spec, entity.spec_schema), labels, references)


def reason_of_force_delete(document: dict[str, Any]) -> str:
    faults: list[Fault] = []
    reason = _typed(document, "reason", str, "a string", faults)
    if reason is None:
        _require("reason", document, faults)
    elif not 1 <= len(reason) <= 1024:
        faults.append(Fault("reason", "reason must have 1 to 1024 characters", None, "max_length"))
    if faults or reason is None:
        raise Invalid.because(faults)
    return str(reason)


def immutable_faults(entity: Entity, old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    return [
        Fault(f"spec.{path}", f"spec.{path} cannot be changed")
        for path in entity.immutable
        if _at(old, path) != _at(new, path)
    ]


def _only_spec(faults: list[Fault]) -> bool:
    return len(faults) > 1 and all(fault.field.startswith("spec") for fault in faults)


def _typed(document: dict[str, Any], field: str, kind: type, says: str, faults: list[Fault]) -> Any:
    value = document.get(field)
    if value is None or isinstance(value, kind):
        return value
    faults.append(Fault(field, f"field '{field}' must be {says}", None, "format"))
    return None


def _require(field: str, document: dict[str, Any], faults: list[Fault]) -> None:
    if document.get(field) is None:
        faults.append(Fault(field, f"{field} is required", None, "required"))


def _name_faults(name: str, entity: Entity) -> list[Fault]:
    if not name:
        return [Fault("name", "name is required", None, "required")]
    if len(name) < entity.name_min_len:
        return [Fault("name", f"name must be at least {entity.name_min_len} characters", name, "min_length")]
    if len(name) > entity.name_max_len:
        return [Fault("name", f"name must be at most {entity.name_max_len} characters", name[:100], "max_length")]
    if not _NAME.fullmatch(name):
        message = (
            "name must start and end with lowercase letter or number, and contain only"
            " lowercase letters, numbers, and hyphens"
        )
        return [Fault("name", message, name, "pattern")]
    return []


def _common(document: dict[str, Any], faults: list[Fault]) -> tuple[dict[str, str] | None, dict[str, Any] | None]:
    labels = _typed(document, "labels", dict, "an object", faults)
    if labels is not None:
        faults += _label_faults(labels)
    references = _typed(document, "references", dict, "an object", faults)
    for name in list(references or ())[:20]:
        faults.append(Fault(f"references.{name[:100]}", "unknown reference type", None, "enum"))
    return labels, references


def _label_faults(labels: dict[str, Any]) -> list[Fault]:
    if len(labels) > LABELS:
        return [Fault("labels", f"there may be at most {LABELS} labels", None, "max")]
    faults = []
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        good = _LABEL_NAME.fullmatch(name) and len(key) <= 255
        if slash:
            good = good and len(prefix) <= 253 and all(_DNS_LABEL.fullmatch(part) for part in prefix.split("."))
        if not good:
            message = "a label's key is an optional DNS prefix, '/', and a name of letters, digits, '.', '_' and '-'"
            faults.append(Fault(f"labels.{key[:100]}", message, None, "pattern"))
        if not isinstance(value, str):
            faults.append(Fault(f"labels.{key[:100]}", f"label '{key[:100]}' must be a string", None, "format"))
        elif not _LABEL_VALUE.fullmatch(value):
            message = "a label's value has at most 63 characters: letters, digits, '.', '_' and '-'"
            faults.append(Fault(f"labels.{key[:100]}", message, value[:100], "pattern"))
    return faults


def _at(document: dict[str, Any], path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
