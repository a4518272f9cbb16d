"""The query parameters of lists and watches, checked the way the real server checks them."""

from __future__ import annotations

import base64
import re

import msgspec

from regional.kube.apiserver.entries import Key
from regional.kube.apiserver.errors import Cause, StatusError, bad_request, invalid_options
from regional.kube.messages import Request
from regional.kube.schema import gojson


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
    send = any(name == "sendInitialEvents" for name, _ in request.query)
    token = request.parameter("continue")
    causes = _watch_problems(match, send, token) if watch else _list_problems(text, match, send, token)
    if causes:
        raise invalid_options("ListOptions", *causes)
    whole = text.isascii() and text.isdigit()
    if text and (not whole or len(text) > 20 or int(text) >= 1 << 64):
        head = "" if watch else "invalid resource version: "
        why = "value out of range" if whole else "invalid syntax"
        raise bad_request(f'{head}resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}')
    seconds = whole_number(request, "timeoutSeconds")
    return ListOptions(
        watch,
        max(0, whole_number(request, "limit") or 0),
        token,
        int(text) if text else None,
        match,
        request.flag("sendInitialEvents") if send else None,
        request.flag("allowWatchBookmarks"),
        float(seconds) if seconds else None,
    )


def whole_number(request: Request, name: str) -> int | None:
    text = request.parameter(name)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if not -(1 << 63) <= number < 1 << 63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


_MATCH = "resourceVersionMatch"


def _forbidden(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def _unsupported(match: str, *known: str) -> Cause:
    listed = ", ".join(f'"{each}"' for each in known)
    return Cause("FieldValueNotSupported", f'Unsupported value: "{match}": supported values: {listed}', _MATCH)


def _watch_problems(match: str, send: bool, token: str) -> list[Cause]:
    found = []
    if send and match != "NotOlderThan":
        found.append(_forbidden(_MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match and not send:
        found.append(
            _forbidden(_MATCH, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        )
    if match not in ("", "NotOlderThan"):
        found.append(_unsupported(match, "NotOlderThan"))
    if token:
        found.append(_forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
    return found


def _list_problems(revision: str, match: str, send: bool, token: str) -> list[Cause]:
    found = []
    if match:
        if not revision:
            found.append(_forbidden(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if token:
            found.append(_forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            found.append(_unsupported(match, "Exact", "NotOlderThan", ""))
        if match == "Exact" and revision == "0":
            found.append(_forbidden(_MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if send:
        found.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return found


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


_VERSION = "meta.k8s.io/v1"
_ALPHABET = re.compile(r"[A-Za-z0-9_-]*")


def continue_token(revision: int, last: Key, namespace: str) -> str:
    start = f"{'' if namespace else last[0]}/{last[1]}\0"
    raw = msgspec.json.encode(_Token(_VERSION, revision, start))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_token(text: str, namespace: str) -> tuple[int, Key]:
    """The revision of the first page (-1: whatever is there now) and the key to go on from."""
    token = _decoded(text)
    if token.v != _VERSION:
        raise _bad_token(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not token.start:
        raise _bad_token(f"encoded start key empty (version {_VERSION})")
    if any(part in ("", ".", "..") for part in token.start.removeprefix("/").split("/")):
        raise _bad_token(token.start)
    place, _, name = token.start.partition("/") if "/" in token.start else ("", "", token.start)
    return token.rv, (namespace or place, name)


def _decoded(text: str) -> _Token:
    good = len((_ALPHABET.match(text) or [""])[0])
    if good < len(text) or len(text) % 4 == 1:
        raise _bad_token(f"illegal base64 data at input byte {good if good < len(text) else good - 1}")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return msgspec.json.decode(raw, type=_Token)
    except (ValueError, msgspec.MsgspecError):
        raise _bad_token(gojson.syntax_problem(raw) or "unexpected end of JSON input") from None


def _bad_token(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
