"""Who calls: the tenant whose resources are in view, or the region's own parts, which see all.

The headers are believed because only the region's own parts reach this door: customers come through the Platform API,
which puts them there after it has checked who they are.
"""

from __future__ import annotations

import re
import uuid

import msgspec
from starlette.requests import Request

from regional.clm.api.problems import Denied, Invalid
from regional.clm.specs import Fault

SYSTEM_ACTOR = "system@hyperfleet.local"
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,63}")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Caller(msgspec.Struct, frozen=True):
    tenant: str  # "" with `system`: every tenant
    system: bool
    actor: str
    request_id: str


def request_id_of(request: Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())


def caller_of(request: Request, request_id: str) -> Caller:
    """Raises Denied for a caller who says neither a tenant nor that it is the system."""
    system = request.headers.get("x-system") == "true"
    tenant = request.headers.get("x-tenant", "")
    if tenant and not _TENANT.fullmatch(tenant):
        raise Denied("the tenant in X-Tenant is not 1 to 63 characters of A-Z a-z 0-9 . _ -")
    if not tenant and not system:
        raise Denied("no tenant: the request has neither X-Tenant nor X-System")
    actor = request.headers.get("x-actor", "") or SYSTEM_ACTOR
    if len(actor) > 256 or not actor.isprintable():
        raise Invalid.because([Fault("X-Actor", "X-Actor must be at most 256 printable characters", None, "format")])
    return Caller(tenant, system, actor, request_id)


def demand_system(caller: Caller, what: str) -> None:
    if not caller.system:
        raise Denied(f"{what} is for the region's own parts (X-System)")
