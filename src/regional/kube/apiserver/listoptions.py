"""The query parameters of lists and watches, checked the way the real server checks them."""

from __future__ import annotations

import base64
import binascii

import msgspec

from regional.kube.apiserver.entries import Key
from regional.kube.apiserver.errors import Cause, StatusError, bad_request, invalid_options
from regional.kube.messages import Request


class ListOptions(msgspec.Struct, frozen=True):
    watch: bool = False
    limit: int = 0
    token: str = ""
    revision: int | None = None  # None: not given
    match: str = ""
    send_initial: bool | None = None
    bookmarks: bool = False
    timeout: float | None = None


def list_options(request: Request, *, watch: bool) -> ListOptions:
    text = request.parameter("resourceVersion")
    match = request.parameter("resourceVersionMatch")
    send = request.parameter("sendInitialEvents")
    token = request.parameter("continue")
    _check(text, match, send, token, watch)
    if text and not (text.isascii() and text.isdigit()):
        raise bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    seconds = _number(request, "timeoutSeconds")
    return ListOptions(
        watch,
        max(0, _number(request, "limit") or 0),
        token,
        int(text) if text else None,
        match,
        None if not send else send in ("true", "1"),
        request.flag("allowWatchBookmarks"),
        float(seconds) if seconds else None,
    )


def _number(request: Request, name: str) -> int | None:
    text = request.parameter(name)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 1 << 64
    if abs(number) >= 1 << 63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return number


def _forbidden(field: str, why: str) -> StatusError:
    return invalid_options("ListOptions", Cause("FieldValueForbidden", f"Forbidden: {why}", field))


def _check(revision: str, match: str, send: str, token: str, watch: bool) -> None:
    field = "resourceVersionMatch"
    if watch:
        if send and match != "NotOlderThan":
            raise _forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if match and not send:
            raise _forbidden(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return
    if send:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if token and revision and revision != "0":
        raise bad_request("specifying resource version is not allowed when using continue")
    if not match:
        return
    if token:
        raise _forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
    if not revision:
        raise _forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match not in ("Exact", "NotOlderThan"):
        text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise invalid_options("ListOptions", Cause("FieldValueNotSupported", text, field))
    if match == "Exact" and revision == "0":
        raise _forbidden(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def continue_token(revision: int, last: Key, namespace: str) -> str:
    start = f"{'' if namespace else last[0]}/{last[1]}\0"
    raw = msgspec.json.encode(_Token("meta.k8s.io/v1", revision, start))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_token(text: str, namespace: str) -> tuple[int, Key]:
    """The revision of the first page (-1: whatever is there now) and the key to go on from."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise bad_request("continue key is not valid: it is not a token of this server") from None
    place, slash, name = token.start.partition("/")
    if token.v != "meta.k8s.io/v1" or token.rv == 0 or not slash:
        raise bad_request("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    return token.rv, (namespace or place, name)
