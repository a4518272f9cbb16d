"""Refusals in the API's own dialect: `Status` objects whose texts clients compare, so each is written once, here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from regional.kube.schema.registry import Kind


class Named(Protocol):
    """What an error needs to know of a resource: `configmaps` or `widgets.demo.io`, ConfigMap or Widget.demo.io."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...


class Cause(msgspec.Struct, frozen=True):
    reason: str
    message: str
    field: str


class StatusError(Exception):
    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        metadata: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.headers = headers or {}

    def document(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


class PageNotFound(Exception):
    """An unknown path or group: the real server's mux answers in plain text, and RESTMappers rely on it."""


def qualified(resource: Named) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def qualified_kind(resource: Named) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def details_of(resource: Named, name: str = "", *, kind: bool = False, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    if named := resource.kind if kind else resource.plural:
        details["kind"] = named
    return details | more


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Named, name: str, why: str, causes: Sequence[Cause] = ()) -> StatusError:
    subject = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    details = details_of(resource, name)
    if causes:
        details["causes"] = msgspec.to_builtins(causes)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def not_found(resource: Named, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{qualified(resource)} "{name}" not found', details_of(resource, name))


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def no_such_form(available: str) -> StatusError:
    """No clause of Accept names a form that this path has at all."""
    text = f"406: Not Acceptable\n\nAvailable representations: {available}"
    return StatusError(406, "NotAcceptable", text, {})


def not_acceptable(accepted: str) -> StatusError:
    """The form is known, but not what it should show (`as=`)."""
    return StatusError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {accepted}",
    )


def wrong_shape(wanted: str, found: str, kind: Kind, go_kind: str) -> StatusError:
    """A list was asked for in the form of one object, or one object in the form of a list."""
    package = "unstructured" if kind.custom is not None else kind.group.partition(".")[0] or "core"
    text = f"you requested {wanted}, but the requested object is {found} (*{package}.{go_kind})"
    return StatusError(406, "NotAcceptable", text)


def unsupported_media_type(accepted: str) -> StatusError:
    """`accepted` is empty where the request does not get as far as a handler that would say it."""
    if not accepted:
        return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {accepted}",
    )


def already_exists(resource: Named, name: str, *, deleting: bool = False) -> StatusError:
    head = "object is being deleted: " if deleting else ""
    return StatusError(
        409, "AlreadyExists", f'{head}{qualified(resource)} "{name}" already exists', details_of(resource, name)
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: Named, name: str, why: str = MODIFIED) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}',
        details_of(resource, name),
    )


def precondition_failed(resource: Named, name: str, what: str, given: str, found: str) -> StatusError:
    """Preconditions name the kind, not the plural: the registry below the REST layer raises them."""
    tail = " The object might have been deleted and then recreated" if what == "UID" else ""
    tail = tail or " The object might have been modified"
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified_kind(resource)} "{name}": the {what} in the precondition '
        f"({given}) does not match the {what} in record ({found}).{tail}",
        details_of(resource, name, kind=True),
    )


def expired(message: str, token: str = "") -> StatusError:
    return StatusError(410, "Expired", message, metadata={"continue": token} if token else {})


def too_old(revision: int, oldest: int) -> StatusError:
    return expired(f"too old resource version: {revision} ({oldest})")


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def invalid(resource: Named, name: str, causes: Sequence[Cause]) -> StatusError:
    """The message says each thing once, however often the causes have it."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return StatusError(
        422,
        "Invalid",
        f'{qualified_kind(resource)} "{name}" is invalid: {text}',
        details_of(resource, name, kind=True, causes=msgspec.to_builtins(list(causes))),
    )


def revision_missing(resource: Named, name: str) -> StatusError:
    """An update of a kind that is never overwritten blindly; the storage layer knows only the plural."""
    cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion")
    return invalid(_Options(resource.plural, resource.group, resource.plural), name, [cause])


def bad_patch(result: str, why: str) -> StatusError:
    """A patch whose result does not decode: `result` is shown as the value of the field `patch`, of no kind."""
    body = f"Invalid value: {msgspec.json.encode(result).decode()}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": body, "field": "patch"}
    return StatusError(422, "Invalid", f' "" is invalid: patch: {body}', {"causes": [cause]})


def other_object(resource: Named, namespace: str, name: str, given: str, found: str, what: str = "UID") -> StatusError:
    """An update that names a uid is for that object alone."""
    group = resource.group if isinstance(resource, Kind) and resource.custom is not None else ""
    place = "/".join(part for part in ("/registry", group, resource.plural, namespace, name) if part)
    return conflict(
        resource,
        name,
        f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}",
    )


class _Options(msgspec.Struct, frozen=True):
    kind: str
    group: str = "meta.k8s.io"
    plural: str = ""


def invalid_options(kind: str, *causes: Cause) -> StatusError:
    """ListOptions, CreateOptions…: the query parameters, validated as if they were an object."""
    return invalid(_Options(kind), "", causes)


def unprocessable(message: str = "the server rejected our request due to an error in our request") -> StatusError:
    return StatusError(422, "Invalid", message, {})


def future_revision(revision: int, current: int) -> StatusError:
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {revision}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"retry-after": "1"},
    )


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def storage_refused(error: Exception) -> StatusError:
    """A write that did not reach the disk. For a full one, the words by which people know etcd's."""
    if getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_WRITE"):
        return internal("etcdserver: mvcc: database space exceeded: the disk that holds the cluster's data is full")
    return internal(f"the cluster's data file refused the write: {error}")
