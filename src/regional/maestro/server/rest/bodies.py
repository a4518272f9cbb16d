"""Request bodies, read only as far as they may be long."""

from __future__ import annotations

from starlette.requests import Request

from regional.maestro.server.refusals import Refusal


async def body_of(request: Request, largest: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > largest:
        raise _too_long(int(declared), largest)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise _too_long(size, largest)
        parts.append(part)
    return b"".join(parts)


def _too_long(size: int, largest: int) -> Refusal:
    return Refusal(8, f"the body has {size} bytes or more, at most {largest} are read")
