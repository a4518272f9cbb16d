"""The routes. Trouble with the database is a 503 that says so: the caller asks again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from regional.maestro.server.connection import FAILURES
from regional.maestro.server.refusals import CATALOGUE, Refusal
from regional.maestro.server.rest import openapi
from regional.maestro.server.rest.agent_works import AgentWorkRoutes
from regional.maestro.server.rest.bundles import BundleRoutes
from regional.maestro.server.rest.consumers import ConsumerRoutes
from regional.maestro.server.rest.errors import (
    document,
    json_response,
    operation_id,
    refused,
    unknown_path,
)

log = logging.getLogger(__name__)

BASE = "/api/maestro/v1"
Handler = Callable[[Request], Awaitable[Response]]


def application(bundles: BundleRoutes, consumers: ConsumerRoutes, works: AgentWorkRoutes) -> Starlette:
    def route(path: str, **methods: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            return await handler(request) if handler else unknown_path(request)

        names = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        return Route(path, endpoint, methods=names, name=" ".join(methods))

    routes = [  # they are tried one by one: those asked for most often come first
        route(f"{BASE}/resource-bundles", GET=bundles.list, POST=bundles.create),
        route(f"{BASE}/resource-bundles/watch", GET=bundles.watch),
        route(f"{BASE}/resource-bundles/{{id}}/history", GET=bundles.history),
        route(f"{BASE}/resource-bundles/{{id}}/redeliver", POST=bundles.redeliver),
        route(f"{BASE}/resource-bundles/{{id}}", GET=bundles.get, PATCH=bundles.patch, DELETE=bundles.delete),
        route("/healthz", GET=_healthz),
        route("/api/maestro", GET=_api),
        route(BASE, GET=_version),
        route(f"{BASE}/openapi", GET=_openapi),
        route(f"{BASE}/errors", GET=_errors),
        route(f"{BASE}/errors/{{id}}", GET=_error),
        route(f"{BASE}/consumers", GET=consumers.list, POST=consumers.create),
        route(f"{BASE}/consumers/{{id}}", GET=consumers.get, PATCH=consumers.patch, DELETE=consumers.delete),
        route(f"{BASE}/agent-works", GET=works.list),
        route(f"{BASE}/agent-works/ask", POST=works.ask),
    ]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    app.add_exception_handler(404, _not_found)
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(asyncpg.DataError, _impossible)
    app.add_exception_handler(Exception, _broken)
    for failure in FAILURES:
        app.add_exception_handler(failure, _away)
    return app


class WithoutSlash:
    """A trailing slash means nothing here."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and len(scope["path"]) > 1 and scope["path"].endswith("/"):
            scope = scope | {"path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok")


async def _api(_: Request) -> Response:
    version = {"id": "v1", "href": BASE, "kind": "", "collections": None}
    return json_response({"id": "maestro", "kind": "API", "href": "/api/maestro", "versions": [version]})


async def _version(_: Request) -> Response:
    collections = [
        {"id": "consumers", "kind": "ConsumerList", "href": f"{BASE}/consumers"},
        {"id": "resource-bundles", "kind": "ResourceBundleList", "href": f"{BASE}/resource-bundles"},
    ]
    return json_response({"id": "v1", "kind": "APIVersion", "href": BASE, "collections": collections})


async def _openapi(_: Request) -> Response:
    return json_response(openapi.document())


async def _errors(_: Request) -> Response:
    items = [document(code, reason) for code, (_, reason) in CATALOGUE.items()]
    return json_response({"kind": "ErrorList", "page": 1, "size": len(items), "total": len(items), "items": items})


async def _error(request: Request) -> Response:
    wanted = request.path_params["id"]
    if not wanted.isdigit() or len(wanted) > 4 or int(wanted) not in CATALOGUE:
        raise Refusal(7, f"No error with id {wanted} exists")
    return json_response(document(int(wanted), CATALOGUE[int(wanted)][1]))


async def _not_found(request: Request, _: Exception) -> Response:
    return unknown_path(request)


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(request, error)


async def _impossible(request: Request, _: Exception) -> Response:
    """Such as an id that holds a NUL: no row can have it."""
    return refused(request, Refusal(21, "a value in the path or the query is not possible"))


async def _away(request: Request, error: Exception) -> Response:
    log.warning("a request could not be served", extra={"path": request.url.path, "reason": str(error)})
    empty = isinstance(error, asyncpg.UndefinedTableError)
    what = "the database's tables are being made" if empty else "the database cannot be reached"
    reason = f"{what}: {str(error) or type(error).__name__}"
    return refused(request, Refusal(9, reason, status=503))


async def _hung_up(_: Request, __: Exception) -> Response:
    return Response(status_code=400)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error, extra={"path": request.url.path, "request_id": operation_id(request)})
    return refused(request, Refusal(9, f"Unspecified error: {type(error).__name__}"))
