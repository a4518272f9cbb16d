"""Is it there, and who am I: the operations that need no resource."""

from __future__ import annotations

from starlette.responses import Response

from regional.platform_api import shapes
from regional.platform_api.operations import Call, Operation, reply

_STATUS = shapes.record({"status": {"type": "string"}}, ("status",))


async def live(_: Call) -> Response:
    return reply({"status": "ok"})


async def ready(call: Call) -> Response:
    if await call.region.ready():
        return reply({"status": "unavailable"}, 503)
    return reply({"status": "ok"})


async def info(call: Call) -> Response:
    return reply({"arn": call.caller.arn, "account_id": call.caller.account})


OPERATIONS = (
    Operation(
        method="GET",
        path="/live",
        name="live",
        summary="The process turns.",
        run=live,
        who="anyone",
        answer=_STATUS,
    ),
    Operation(
        method="GET",
        path="/ready",
        name="ready",
        summary="It can answer; 503 if it cannot.",
        run=ready,
        who="anyone",
        answer=_STATUS,
    ),
    Operation(
        method="GET",
        path="/info",
        name="info",
        summary="Who you are to this region.",
        run=info,
        who="caller",
        answer=shapes.record({"arn": {"type": "string"}, "account_id": {"type": "string"}}),
    ),
)
