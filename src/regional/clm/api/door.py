"""The HTTP door: routes of every entity, flat and under its parent, and the generic ones for any kind.

    /clusters            GET list, POST
    /clusters/ID         GET, PATCH, DELETE; /force-delete, /statuses[/ADAPTER], /history
    /clusters/ID/nodepools[/…]   the same for a child;  /nodepools[/…] and /resources[/…] too

Whatever comes in, what goes out is an answer of the contract: a fault of ours is a 500 with the request's id and a
log line with the traceback.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import prometheus_client
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from regional.clm.api.bodies import read_json
from regional.clm.api.caller import caller_of, request_id_of
from regional.clm.api.calls import Call, Where
from regional.clm.api.handlers import Handlers
from regional.clm.api.openapi import document as openapi_document
from regional.clm.api.openapi import page as openapi_page
from regional.clm.api.problems import NoRoute, NotFound, Refusal, Unavailable
from regional.clm.entities import Registry
from regional.core.database import Database

log = logging.getLogger(__name__)

BASE = "/api/hyperfleet/v1"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_AWAY = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a connection that was cut in the middle of an answer
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)
_BUSY = (asyncpg.TooManyConnectionsError, asyncpg.CannotConnectNowError, TimeoutError)
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_requests = prometheus_client.Counter("hyperfleet_api_requests_total", "Requests answered", ["method", "path", "code"])
_duration = prometheus_client.Histogram(
    "hyperfleet_api_request_duration_seconds", "Time to answer a request", ["method", "path"]
)

Handler = Callable[[Call, Any], Awaitable[Response]]


class Application:
    """An ASGI application. `database` may come and go."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._database = database
        self._registry = registry
        self._handlers = Handlers(registry)
        self._openapi = openapi_document(registry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        started = time.perf_counter()
        request_id = request_id_of(request)
        path = "-"
        try:
            path, methods, where = self._route(scope["path"])
            response = await self._answer(request, request_id, methods, where)
        except ClientDisconnect:
            return
        except Refusal as refusal:
            trace = "" if isinstance(refusal, NoRoute) else request_id
            response = refusal.response(scope["path"], trace)
        except Exception:
            log.exception("request failed", extra={"request_id": request_id, "path": path})
            response = Refusal("the request could not be answered; the log has the reason").response(
                scope["path"], request_id
            )
        response.headers["X-Request-Id"] = request_id
        response.headers["Vary"] = "Authorization"
        taken = time.perf_counter() - started
        _requests.labels(request.method, path, str(response.status_code)).inc()
        _duration.labels(request.method, path).observe(taken)
        level = logging.DEBUG if request.method in ("GET", "HEAD") else logging.INFO
        extra = {"method": request.method, "path": scope["path"], "status": response.status_code}
        log.log(level, "answered", extra=extra | {"ms": round(taken * 1000, 2), "request_id": request_id})
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    # -- routes ------------------------------------------------------------------------------------------------------

    def _route(self, path: str) -> tuple[str, dict[str, Handler], Where]:
        """(the route's name for metrics, handlers by method, what the path names). Raises NoRoute or NotFound."""
        if path in ("/healthz", "/api/hyperfleet", "/api/hyperfleet/"):
            return path, {}, Where()
        parts = path.removeprefix(BASE).strip("/").split("/") if path.startswith(f"{BASE}/") else []
        if parts in (["openapi"], ["openapi.html"]):
            return f"{BASE}/{parts[0]}", {}, Where()
        if parts == ["reconcile"]:
            return f"{BASE}/reconcile", {"POST": self._handlers.reconcile}, Where()
        if not parts or "" in parts:
            raise NoRoute(f"there is no {path[:200]}")
        where, rest = self._place(parts, path)
        name = "/".join([BASE, *("-" if _UUID.fullmatch(part) else part for part in parts[:5])])
        handlers = self._handlers
        methods: dict[str, Handler]
        match rest:
            case [] if not where.resource_id:
                methods = {"GET": handlers.list, "POST": handlers.create}
            case []:
                methods = {"GET": handlers.get, "PATCH": handlers.patch, "DELETE": handlers.delete}
            case ["force-delete"]:
                methods = {"POST": handlers.force_delete}
            case ["statuses"]:
                methods = {"GET": handlers.list_reports, "PUT": handlers.put_report}
            case ["statuses", adapter]:
                name = name.rpartition("/")[0] + "/-"
                where = msgspec.structs.replace(where, adapter=adapter)
                methods = {"GET": handlers.get_report}
            case ["history"]:
                methods = {"GET": handlers.history}
            case _:
                raise NoRoute(f"there is no {path[:200]}")
        return name, methods, where

    def _place(self, parts: list[str], path: str) -> tuple[Where, list[str]]:
        if parts[0] == "resources":
            return Where(entity=None, resource_id=_identifier(parts, 1, "Resource")), parts[2:]
        entity = self._registry.of_plural(parts[0])
        if entity is None:
            raise NoRoute(f"there is no {path[:200]}")
        child = self._registry.of_plural(parts[2]) if len(parts) > 2 else None
        if child is not None and child.parent_kind == entity.kind:
            owner = _identifier(parts, 1, entity.kind)
            return Where(child, _identifier(parts, 3, child.kind), owner), parts[4:]
        return Where(entity, _identifier(parts, 1, entity.kind)), parts[2:]

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _answer(self, request: Request, request_id: str, methods: dict[str, Handler], where: Where) -> Response:
        fixed = self._fixed(request.url.path)
        allowed = {"GET": None} if fixed is not None else methods
        method = "GET" if request.method == "HEAD" else request.method
        if method not in allowed:
            names = sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])})
            return PlainTextResponse("Method Not Allowed", 405, headers={"Allow": ", ".join(names)})
        if fixed is not None:
            return fixed
        caller = caller_of(request, request_id)
        self._handlers.admit(caller, where)
        # Read before a connection is taken: a slow sender must not hold one.
        document = await read_json(request) if method in ("POST", "PATCH", "PUT") else {}
        call = Call(caller, where, request.query_params, document, request.headers.get("if-match", ""))
        return await self._with_connection(methods[method], call)

    def _fixed(self, path: str) -> Response | None:
        match path.rstrip("/"):
            case "/healthz":
                return PlainTextResponse("ok")
            case "/api/hyperfleet":
                return self._handlers.metadata()
            case found if found == f"{BASE}/openapi":
                return Response(self._openapi, media_type="application/json")
            case found if found == f"{BASE}/openapi.html":
                return Response(openapi_page(self._registry), media_type="text/html")
        return None

    async def _with_connection(self, handler: Handler, call: Call) -> Response:
        for attempt in range(3):
            pool = self._database.pool
            if pool is None:
                raise Unavailable("the database is not reachable at the moment")
            try:
                async with pool.acquire(timeout=5) as connection:
                    return await handler(call, connection)
            except _AGAIN:
                log.info("trying again", extra={"request_id": call.caller.request_id, "attempt": attempt + 1})
                await asyncio.sleep(0.01 * (attempt + 1))
            except _BUSY:
                raise Unavailable("the database is busy at the moment") from None
            except _AWAY as error:
                log.warning("database away", extra={"request_id": call.caller.request_id, "reason": str(error)})
                raise Unavailable("the database is not reachable at the moment") from None
        raise Unavailable("the resource is being changed by others at the moment")


def _identifier(parts: list[str], index: int, kind: str) -> str:
    """Ids are compared as they are written: lower case, as they were given out."""
    if len(parts) <= index:
        return ""
    if not _UUID.fullmatch(parts[index]):
        raise NotFound(f"{kind} with id='{parts[index][:100]}' not found")
    return parts[index]
