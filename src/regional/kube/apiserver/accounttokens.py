"""`serviceaccounts/token`: TokenRequest in, a signed token out, bound to a pod if asked."""

from __future__ import annotations

from datetime import UTC, datetime

from regional.core.clock import Clock, rfc3339
from regional.kube.apiserver.admission import Admission
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import Cause, StatusError, bad_request, conflict, invalid, not_found
from regional.kube.apiserver.incoming import decode_body
from regional.kube.apiserver.reads import Reader
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.store import Store
from regional.kube.apiserver.tokens import Bound, Claims, TokenIssuer
from regional.kube.messages import Response
from regional.kube.schema.openapi_validation import shown
from regional.kube.schema.registry import BODY_KINDS, Kind, by_plural

TOKEN_REQUEST = next(kind for kind in BODY_KINDS if kind.kind == "TokenRequest")
SHORTEST, DEFAULT, LONGEST = 600, 3600, 1 << 32
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class TokenRequests:
    def __init__(
        self,
        store: Store,
        reader: Reader,
        admission: Admission,
        tokens: TokenIssuer,
        renderer: Renderer,
        clock: Clock,
    ) -> None:
        self._store = store
        self._admission = admission
        self._reader = reader
        self._tokens = tokens
        self._renderer = renderer
        self._clock = clock

    async def create(self, call: Call) -> Response:
        sent = decode_body(call.request, TOKEN_REQUEST)
        self._admission.check_namespace(call.kind, call.namespace, call.target.name)
        if sent["metadata"].get("namespace") not in (None, "", call.namespace):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        account = self._reader.entry(call)
        if (name := sent["metadata"].get("name")) not in (None, "", account.name):
            text = f"Invalid value: {shown(name)}: must match the service account name if specified"
            raise invalid(TOKEN_REQUEST, account.name, [Cause("FieldValueInvalid", text, "metadata.name")])
        spec: Obj = sent.get("spec") or {}
        seconds = _seconds(spec.get("expirationSeconds"))
        audiences = spec.get("audiences") or [self._tokens.own_audience]
        bound = self._bound(call, spec.get("boundObjectRef"))
        pod, node, secret = (bound.get(kind) for kind in ("pod", "node", "secret"))
        claims = Claims(account.namespace, account.name, account.uid, pod=pod, node=node, secret=secret)
        token, expires = self._tokens.issue(claims, audiences, seconds)
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": account.name,
                "namespace": account.namespace,
                "creationTimestamp": rfc3339(self._clock.now()),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": token, "expirationTimestamp": rfc3339(datetime.fromtimestamp(expires, UTC))},
        }
        return self._renderer.document(201, answer, call.wanted)

    def _bound(self, call: Call, reference: Obj | None) -> dict[str, Bound]:
        if not reference:
            return {}
        kind = reference.get("kind")
        resource = _BINDABLE.get(str(kind))
        if resource is None:
            group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        name = str(reference.get("name") or "")
        entry = self._store.get(resource, "" if kind == "Node" else call.namespace, name)
        if entry is None:
            raise not_found(_kind_of(resource), name)
        if reference.get("uid") not in (None, "", entry.uid):
            why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record"
            raise conflict(
                _kind_of(resource), name, f"{why} ({entry.uid}). The object might have been deleted and then recreated"
            )
        bound = {str(kind).lower(): Bound(name, entry.uid)}
        node = entry.fields.get("spec.nodeName") if kind == "Pod" else None
        if node and (found := self._store.get("nodes", "", node)) is not None:
            bound["node"] = Bound(node, found.uid)
        return bound


def _kind_of(resource: str) -> Kind:
    kind = by_plural("", "v1", resource)
    assert kind is not None
    return kind


def _seconds(value: int | None) -> int:
    if value is None:
        return DEFAULT
    problem = ""
    if value < SHORTEST:
        problem = "may not specify a duration less than 10 minutes"
    elif value > LONGEST:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        raise _invalid(f"Invalid value: {value}: {problem}")
    return value


def _invalid(text: str) -> StatusError:
    return invalid(TOKEN_REQUEST, "", [Cause("FieldValueInvalid", text, "spec.expirationSeconds")])
