"""`regionctl serve platform-api`: liveness and readiness as the gateway's health check asks them; no resource yet."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import Dependency, Door, RoleSettings, keep_reaching, run_role
from regional.core.settings import load


class Settings(RoleSettings, kw_only=True, frozen=True):
    port: int = 8000
    clm_url: str = "http://clm-api.clm:8000"


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("platform-api", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    clm = Dependency("clm")
    await run_role(
        settings,
        [clm],
        [keep_reaching(f"{settings.clm_url}/healthz", clm)],
        doors=[Door(application(clm), settings.port)],
        says="it serves liveness and readiness, no resource yet",
    )


def application(clm: Dependency) -> Starlette:
    async def live(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        if await clm.check():
            return JSONResponse({"status": "unavailable"}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def not_found(request: Request, _: Exception) -> Response:
        body = {"kind": "Error", "code": "not-found", "reason": f"there is no {request.url.path}"}
        return JSONResponse(body, status_code=404)

    # Behind the gateway the path has /api; a load balancer's own health check has not.
    routes = [Route(f"{base}/live", live) for base in ("/v0", "/api/v0")]
    routes += [Route(f"{base}/ready", ready) for base in ("/v0", "/api/v0")]
    return Starlette(routes=routes, exception_handlers={404: not_found})
