"""The HTTP side: routes from the table of operations, the checks before each, and one log line after it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterable

import msgspec
import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from regional.clm.client import ClmError
from regional.maestro.client import MaestroError
from regional.platform_api import (
    clusters,
    management_clusters,
    nodepools,
    openapi,
    provisioned,
    rebuild,
    service,
    timeline,
    work,
)
from regional.platform_api.bodies import read_json
from regional.platform_api.errors import ApiError, from_clm, from_maestro, invalid
from regional.platform_api.identity import Caller, GatewaySecret, caller_of
from regional.platform_api.operations import BASE, RESOURCE_HEADER, Call, Operation, Region, demand_known
from regional.platform_api.schema import faults_of

log = logging.getLogger(__name__)

OPERATIONS: tuple[Operation, ...] = (
    *service.OPERATIONS,
    *clusters.OPERATIONS,
    *timeline.OPERATIONS,
    *nodepools.OPERATIONS,
    *management_clusters.OPERATIONS,
    *work.OPERATIONS,
    *rebuild.OPERATIONS,
    *provisioned.OPERATIONS,
)
SPAN = "platform_api.request"
_NOBODY = Caller("", "")
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_requests = prometheus_client.Counter("platform_api_requests_total", "Requests answered", ["operation", "status"])
_duration = prometheus_client.Histogram("platform_api_request_duration_seconds", "Time to answer", ["operation"])


class Api:
    def __init__(self, region: Region, secret: GatewaySecret) -> None:
        self._region = region
        self._secret = secret
        self._document = msgspec.json.encode(openapi.document(OPERATIONS))

    def application(self) -> Starlette:
        by_path: dict[str, list[Operation]] = {}
        for operation in OPERATIONS:
            by_path.setdefault(BASE + operation.path, []).append(operation)
            if operation.who == "anyone":
                by_path[f"/v0{operation.path}"] = [operation]  # a load balancer's own check has no /api
        routes = [self._route(path, operations) for path, operations in by_path.items()]
        routes.append(Route(f"{BASE}/openapi", self._describe))
        app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route, Exception: _broken})
        app.router.redirect_slashes = False
        return app

    def _route(self, path: str, operations: Iterable[Operation]) -> Route:
        by_method = {operation.method: operation for operation in operations}

        async def endpoint(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            return await self._answer(request, by_method[method])  # type: ignore[index]

        return Route(path, endpoint, methods=list(by_method))

    async def _describe(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def _answer(self, request: Request, operation: Operation) -> Response:
        started = time.perf_counter()
        given = request.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        caller = _NOBODY
        try:
            if operation.who != "anyone":
                caller = caller_of(request, self._secret)
            response = await self._run(request, operation, caller, request_id)
        except ApiError as error:
            response = error.response()
        except ClmError as error:
            response = from_clm(error).response()
        except MaestroError as error:
            response = from_maestro(error).response()
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("request failed", extra={"request_id": request_id, "operation": operation.name})
            response = ApiError(500, "internal-error", f"the request failed; its id is {request_id}").response()
        response.headers["X-Request-Id"] = request_id
        self._tell(request, operation, caller, request_id, response, time.perf_counter() - started)
        return response

    def _tell(
        self,
        request: Request,
        operation: Operation,
        caller: Caller,
        request_id: str,
        response: Response,
        taken: float,
    ) -> None:
        _requests.labels(operation.name, str(response.status_code)).inc()
        _duration.labels(operation.name).observe(taken)
        if operation.who == "anyone":
            return  # probes ask every second
        line = {
            "span": SPAN,
            "request_id": request_id,
            "account": caller.account,
            "operation": operation.name,
            "resource": response.headers.get(RESOURCE_HEADER) or str(request.path_params.get("id", ""))[:64],
            "status": response.status_code,
            "ms": round(taken * 1000, 2),
        }
        log.info("request", extra=line)

    async def _run(self, request: Request, operation: Operation, caller: Caller, request_id: str) -> Response:
        if operation.who in ("account", "privileged"):
            await self._region.accounts.demand(caller.account, privileged=operation.who == "privileged")
            demand_known(request.query_params, operation)
        body = await self._body(request, operation) if operation.body is not None else None
        path = {name: str(value) for name, value in request.path_params.items()}
        return await operation.run(Call(self._region, caller, request_id, path, request.query_params, body))

    async def _body(self, request: Request, operation: Operation) -> object:
        body = await read_json(request)
        if body is None:
            if operation.body_required:
                raise ApiError(400, "invalid-request", "the request needs a body, a JSON object")
            return None
        faults = faults_of(body, operation.body or {}) if operation.checked else []
        if faults:
            raise invalid(faults)
        return body


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        reason = f"{request.url.path[:200]} does not take {request.method[:20]}"
        return ApiError(405, "method-not-allowed", reason).response(dict(error.headers or {}))
    return ApiError(404, "not-found", f"there is no {request.url.path[:200]}").response()


async def _broken(_: Request, __: Exception) -> Response:
    return ApiError(500, "internal-error", "the request failed").response()
