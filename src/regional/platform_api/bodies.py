"""Bodies as they come in: bounded in size and depth before anybody looks at them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from regional.platform_api.errors import ApiError

BODY_BYTES = 1 << 20
DEPTH = 64
_HUGE = 10**300  # a database would keep it; no reader could


async def read_json(request: Request) -> Any:
    """The decoded body; None if there is none."""
    _check_media(request.headers.get("content-type", ""))
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ApiError(415, "unsupported-media-type", "the body must be sent as it is, without a Content-Encoding")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_BYTES:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise _too_large()
    return parse(bytes(body)) if body.strip() else None


def parse(body: bytes) -> Any:
    try:
        document = msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, "invalid-request", f"the body is not valid JSON: {error}") from None
    level: list[Any] = [document]
    for _ in range(DEPTH):
        level = [below for value in level for below in _inside(value)]
        if not level:
            return document
    raise _too_deep()


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list):
        return value
    if isinstance(value, str) and "\0" in value:
        raise ApiError(400, "invalid-request", "the body has a NUL character")
    if isinstance(value, int | float) and abs(value) > _HUGE:
        raise ApiError(400, "invalid-request", "the body has a number out of range")
    return []


def _check_media(given: str) -> None:
    """curl says `x-www-form-urlencoded` of whatever it sends, and awscurl may say nothing."""
    media = given.partition(";")[0].strip().lower()
    if media in ("", "application/json", "application/x-www-form-urlencoded") or media.endswith("+json"):
        return
    raise ApiError(415, "unsupported-media-type", f"the body must be application/json, not {media[:100]}")


def _too_large() -> ApiError:
    return ApiError(413, "request-too-large", f"the body may have at most {BODY_BYTES} bytes")


def _too_deep() -> ApiError:
    return ApiError(400, "invalid-request", f"the body is nested deeper than {DEPTH} levels")
