"""An operation of the API: its route, who may call it, what goes in and comes out, and the function that does it.

One table of them makes the routes, the checks and the OpenAPI document, so that the three cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response

from regional.clm.client import ClmClient
from regional.maestro.client import MaestroClient
from regional.platform_api.accounts import Accounts
from regional.platform_api.errors import ApiError, not_found
from regional.platform_api.identity import Caller
from regional.platform_api.schema import Schema

BASE = "/api/v0"
RESOURCE_HEADER = "X-Resource-Id"  # of what a create made, so that logs on the way can name it
_IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Region(msgspec.Struct, frozen=True):
    """What operations work with."""

    clm: ClmClient  # sees every account
    maestro: MaestroClient
    accounts: Accounts
    ready: Callable[[], Awaitable[str]]  # "" or the reason why not


class Call(msgspec.Struct, frozen=True):
    """One request after all checks."""

    region: Region
    caller: Caller
    request_id: str
    path: dict[str, str]
    query: QueryParams
    body: Any

    @property
    def clm(self) -> ClmClient:
        """The caller's own view: other accounts' resources are not there."""
        return self.region.clm.for_tenant(self.caller.account, actor=self.caller.arn)

    @property
    def clm_of_region(self) -> ClmClient:
        return self.region.clm.for_tenant(None, actor=self.caller.arn)

    def identifier(self, what: str) -> str:
        """The id in the path. Whatever is not an id names nothing."""
        if not self.has_identifier:
            raise not_found(what, self.path["id"])
        return self.path["id"]

    @property
    def has_identifier(self) -> bool:
        return is_identifier(self.path["id"])

    def number(self, name: str, default: int, most: int, least: int = 1) -> int:
        """A paging parameter. By contract a bad one is the default, not an error."""
        given = self.query.get(name, "")
        value = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else default
        return value if least <= value <= most else default


def is_identifier(text: str) -> bool:
    return _IDENTIFIER.fullmatch(text) is not None


Handler = Callable[[Call], Awaitable[Response]]


class Parameter(msgspec.Struct, frozen=True):
    name: str
    description: str
    schema: Schema = msgspec.field(default_factory=lambda: {"type": "string"})


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str  # below BASE
    name: str
    summary: str
    run: Handler
    # anyone: no identity; caller: proven by the edge; account: provisioned here; privileged: may run the region
    who: Literal["anyone", "caller", "account", "privileged"] = "account"
    body: Schema | None = None
    body_required: bool = True
    checked: bool = True  # against `body`, before it runs
    query: tuple[Parameter, ...] = ()
    success: int = 200
    answer: Schema | None = None
    media: str = "application/json"
    refusals: tuple[int, ...] = ()


def reply(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def made(body: dict[str, Any]) -> Response:
    response = reply(body, 201)
    response.headers[RESOURCE_HEADER] = str(body["id"])
    return response


def demand_known(query: QueryParams, operation: Operation) -> None:
    """A misspelt filter must not silently be no filter."""
    known = {parameter.name for parameter in operation.query}
    unknown = sorted(set(query) - known)
    if unknown:
        listed = f"; parameters are {', '.join(sorted(known))}" if known else ""
        raise ApiError(400, "invalid-request", f"there is no parameter {unknown[0][:100]!r}{listed}")
