"""The API without HTTP: a request in, a response out. Authenticates nothing; asks RBAC about everything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import uuid
from pathlib import Path

import msgspec

from regional.core.clock import Clock, SystemClock
from regional.core.queue_metrics import exposition
from regional.kube.apiserver.accounttokens import TokenRequests
from regional.kube.apiserver.addresses import ServiceAddresses
from regional.kube.apiserver.admission import Admission
from regional.kube.apiserver.authn import impersonate
from regional.kube.apiserver.authz import Attributes, Authorizer, denial
from regional.kube.apiserver.bootstrapping import bootstrap
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.catalogue import Catalogue, store_name
from regional.kube.apiserver.crds import Undertaker
from regional.kube.apiserver.deletes import Deleter
from regional.kube.apiserver.discovery import Discovery
from regional.kube.apiserver.entries import encode
from regional.kube.apiserver.errors import (
    PageNotFound,
    StatusError,
    bad_request,
    forbidden,
    internal,
    method_not_allowed,
    no_such_resource,
    storage_refused,
    too_large,
)
from regional.kube.apiserver.evictions import Budgets
from regional.kube.apiserver.health import health
from regional.kube.apiserver.kubelets import Kubelets
from regional.kube.apiserver.media import Wanted, wanted
from regional.kube.apiserver.podactions import PodActions
from regional.kube.apiserver.podlogs import PodLogs
from regional.kube.apiserver.podstreams import PodStreams
from regional.kube.apiserver.reads import Reader
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.reviews import Reviews
from regional.kube.apiserver.routing import Target, path_verb, resource_target
from regional.kube.apiserver.scaling import Scaler
from regional.kube.apiserver.store import Store
from regional.kube.apiserver.tokens import ISSUER, TokenIssuer
from regional.kube.apiserver.watching import Watcher
from regional.kube.apiserver.writes import Writer
from regional.kube.messages import Request, Response, User, text_response
from regional.kube.schema.errors import Refusal
from regional.kube.schema.registry import Kind

log = logging.getLogger(__name__)

BODY_LIMIT = 3 * 1024 * 1024
DATA_FILE = "kube.db"


class ApiServer:
    def __init__(
        self,
        data: Path,
        pki: Path,
        *,
        service_cidr: str,
        address: str = "127.0.0.1",
        port: int = 6443,
        issuer: str = "",
        clock: Clock | None = None,
        exclusive: bool = True,
    ) -> None:
        clock = clock or SystemClock()
        self.address, self.port = address, port
        self.catalogue = Catalogue()
        self.store = Store(data / DATA_FILE, self.catalogue.selectable, exclusive=exclusive)
        self.catalogue.attach(self.store)
        self.authorizer = Authorizer(self.store)
        self.tokens = TokenIssuer(pki / "sa.key", self._uid_of, clock, issuer or ISSUER)
        self.addresses = ServiceAddresses(self.store, service_cidr)
        self._discovery = Discovery(self.catalogue, f"{address}:{port}")
        renderer = Renderer(self.catalogue, clock)
        admission = Admission(self.store, self.catalogue, self.authorizer, self.addresses, clock)
        self._reader = Reader(self.store, renderer, clock)
        self._watcher = Watcher(self.store, renderer)
        self._writer = Writer(self.store, self.catalogue, admission, renderer, clock)
        self._deleter = Deleter(self.store, self._reader, renderer, clock)
        self._scaler = Scaler(self._reader, self._writer, renderer)
        self._pods = PodActions(self._writer, self._deleter, renderer, clock, Budgets(self.store, clock))
        kubelets = Kubelets(self.store, pki)
        self._logs = PodLogs(kubelets, self._reader)
        self._streams = PodStreams(kubelets, self._reader)
        self._token_requests = TokenRequests(self.store, self._reader, admission, self.tokens, renderer, clock)
        self._reviews = Reviews(self.authorizer, self.tokens, renderer, clock)
        self._undertaker = Undertaker(self.store, self.handle)
        self._tasks: list[asyncio.Task[None]] = []
        self.ready = False

    def _uid_of(self, resource: str, namespace: str, name: str) -> str:
        entry = self.store.get(resource, namespace, name)
        return entry.uid if entry is not None else ""

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(self, *, bootstrapped: bool = False) -> None:
        """`bootstrapped`: what this version brings is known to be in the store already."""
        self.store.start()
        if not bootstrapped:
            await bootstrap(self)
        self._tasks.append(asyncio.create_task(self._undertaker.run()))
        self.ready = True

    async def stop(self) -> None:
        self.ready = False
        self.store.close_watches()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._logs.close()
        await asyncio.to_thread(self.store.close)

    # --- requests ------------------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Response:
        warnings: list[str] = []
        try:
            response = await self._dispatch(request, warnings)
        except PageNotFound:
            response = text_response(404, "404 page not found\n")
        except Refusal as refusal:
            details = refusal.details() if refusal.causes or refusal.status == 422 else None
            error = StatusError(refusal.status, refusal.reason, refusal.message, details)
            response = _refused(error, request)
        except StatusError as error:
            response = _refused(error, request)
        except RecursionError:
            response = _refused(bad_request("the object is nested too deeply"), request)
        except sqlite3.Error as error:
            response = _refused(storage_refused(error), request)
        except Exception as error:
            log.exception("a request failed", extra={"method": request.method, "path": request.path})
            response = _refused(internal(f"{type(error).__name__}"), request)
        response.warnings = warnings
        return signed(response)

    def refusal(self, request: Request) -> Response | None:
        """Of one who may not ask this, whatever the body says; None if it has to be read."""
        try:
            user, target = self._speaker(request), resource_target(request)
            if target is not None and target.verb:
                self._authorize(user, target, request)
        except StatusError as error:
            return signed(_refused(error, request))
        except PageNotFound:
            pass
        return None

    async def _dispatch(self, request: Request, warnings: list[str]) -> Response:
        if len(request.body) > BODY_LIMIT:
            raise too_large(BODY_LIMIT)
        user = self._speaker(request)
        target = resource_target(request)
        if target is None:
            return self._page(request, user)
        if not target.verb:
            raise method_not_allowed()
        self._authorize(user, target, request)
        kind = self.catalogue.find(target.group, target.version, target.plural)
        if target.namespace and not kind.namespaced and kind.plural != "namespaces":
            raise no_such_resource()
        if kind.group == "" and kind.kind == "Namespace":
            name = target.name or target.namespace
            target = Target(target.verb, "", target.version, "", "namespaces", name, target.subresource, target.rest)
        streams = target.verb in ("list", "watch")
        call = Call(request, target, kind, user, wanted(request, streams=streams), warnings)
        if kind.deprecation:
            call.warn(kind.deprecation)
        return await self._serve(call)

    def _speaker(self, request: Request) -> User:
        def allowed(user: User, group: str, resource: str, namespace: str, name: str) -> bool:
            resource, _, part = resource.partition("/")
            asked = Attributes(user, "impersonate", group, resource, part, namespace, name)
            return self.authorizer.check(asked).allowed

        user, refused = impersonate(request.user, request.headers, allowed)
        if refused:
            group, resource, namespace, name = refused[0]
            asked = Attributes(request.user, "impersonate", group, resource, "", namespace, name)
            plural = resource.partition("/")[0]
            what = Kind(group, "v1", plural, plural, plural, bool(namespace))
            raise forbidden(what, name, denial(asked))
        return user

    def _authorize(self, user: User, target: Target, request: Request) -> None:
        name = target.name
        if target.verb in ("list", "watch") and not name:
            name = _selected_name(request)
        asked = Attributes(user, target.verb, target.group, target.plural, target.subresource, target.namespace, name)
        verdict = self.authorizer.check(asked)
        if verdict.allowed and target.verb == "patch" and not target.subresource and _applies(request):
            # Creating by apply needs the right to create.
            kind = self.catalogue.find(target.group, target.version, target.plural)
            if self._uid_of(store_name(kind), target.namespace if kind.namespaced else "", target.name) == "":
                asked = Attributes(user, "create", target.group, target.plural, "", target.namespace, name)
                verdict = self.authorizer.check(asked)
        if not verdict.allowed:
            what = Kind(target.group, target.version, target.plural, target.plural, "", True)
            raise forbidden(what, name, denial(asked))

    # --- paths that are no resources -------------------------------------------------------------------------------

    def _page(self, request: Request, user: User) -> Response:
        asked = Attributes(user, path_verb(request.method), path=request.path)
        if not self.authorizer.check(asked).allowed:
            raise StatusError(403, "Forbidden", f"forbidden: {denial(asked)}", {})
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        path = request.path.rstrip("/")
        if path.split("/")[1:2] in (["healthz"], ["livez"], ["readyz"]):
            return health(path, request, self.ready, self.store.writable)
        if path == "/metrics":
            return Response(200, {"content-type": "text/plain; version=0.0.4; charset=utf-8"}, exposition().encode())
        if path == "":
            return Renderer.answer(200, encode({"paths": self._paths()}), wanted(request))
        if path == "/.well-known/openid-configuration":
            return Renderer.answer(200, encode(self.tokens.configuration()), wanted(request))
        if path == "/openid/v1/jwks":
            return Response(200, {"content-type": "application/jwk-set+json"}, encode(self.tokens.key_set()))
        answer = self._discovery.answer(request)
        if answer is None:
            raise PageNotFound
        return answer

    def _paths(self) -> list[str]:
        paths = ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis"]
        for group, versions in self.catalogue.versions().items():
            if group:
                paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        paths += ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz"]
        return [*paths, "/version"]

    # --- resources -----------------------------------------------------------------------------------------------

    async def _serve(self, call: Call) -> Response:
        target, kind = call.target, call.kind
        if kind.kind == "Endpoints":
            call.warn("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        if target.subresource:
            return await self._serve_subresource(call)
        if target.verb not in kind.verbs:
            raise method_not_allowed()
        if kind.namespaced and not target.namespace:
            if target.name:
                raise no_such_resource()
            if target.verb in ("create", "deletecollection"):
                raise method_not_allowed()
        match target.verb:
            case "get":
                return await self._reader.get(call)
            case "list":
                return await self._reader.listing(call)
            case "watch":
                return self._watcher.open(call)
            case "create":
                if target.name:
                    raise method_not_allowed()
                if self._reviews.handles(kind):
                    return await self._reviews.create(call)
                if kind.kind == "Binding" and not kind.stored:
                    return await self._pods.bind_by_name(call)
                return await self._writer.create(call)
            case "delete":
                return await self._deleter.delete(call)
            case "deletecollection":
                return await self._deleter.collection(call)
        if not target.name:
            raise method_not_allowed()
        return await (self._writer.update(call) if target.verb == "update" else self._writer.patch(call))

    async def _serve_subresource(self, call: Call) -> Response:
        target, kind = call.target, call.kind
        part = kind.subresource(target.subresource)
        if part is None:
            raise no_such_resource()
        if target.verb not in part.verbs:
            raise method_not_allowed()
        match part.name, target.verb:
            case (("status" | "approval"), "get"):
                return await self._reader.get(call)
            case (("status" | "approval"), "update"):
                return await self._writer.update(call)
            case (("status" | "approval"), "patch"):
                return await self._writer.patch(call)
            case "finalize", "update":
                return await self._writer.finalize(call)
            case "scale", "get":
                return await self._scaler.get(call)
            case "scale", "update":
                return await self._scaler.update(call)
            case "scale", "patch":
                return await self._scaler.patch(call)
            case "log", "get":
                return await self._logs.get(call)
            case (("exec" | "attach" | "portforward"), ("get" | "create")):
                # A browser can open WebSockets with GET only; running a command still needs the right to create.
                self._authorize(call.user, msgspec.structs.replace(target, verb="create"), call.request)
                return await self._streams.open(call)
            case "binding", "create":
                return await self._pods.bind(call)
            case "eviction", "create":
                return await self._pods.evict(call)
            case "token", "create":
                return await self._token_requests.create(call)
        raise no_such_resource()


def signed(response: Response) -> Response:
    response.headers.setdefault("cache-control", "no-cache, private")
    response.headers.setdefault("audit-id", str(uuid.uuid4()))
    return response


def _refused(error: StatusError, request: Request) -> Response:
    """A refusal comes in the form that the answer would have had, where that is known."""
    try:
        form = wanted(request)
    except StatusError:
        form = Wanted()
    response = Renderer.answer(error.code, encode(error.document()), form)
    response.headers |= error.headers
    return response


def _selected_name(request: Request) -> str:
    """`fieldSelector=metadata.name=x` gives a list or watch a name, which RBAC may have allowed."""
    for term in request.parameter("fieldSelector").split(","):
        field, _, value = term.replace("==", "=").partition("=")
        if field == "metadata.name":
            return value
    return ""


def _applies(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("application/apply-patch")
