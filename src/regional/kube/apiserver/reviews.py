"""Questions asked by POST and never stored: may this subject do that, whose token is this, who am I."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from regional.core.clock import Clock, rfc3339
from regional.kube.apiserver.authn import service_account_user
from regional.kube.apiserver.authz import Attributes, Authorizer
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import Cause, bad_request, invalid
from regional.kube.apiserver.incoming import decode_body
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.tokens import TokenIssuer
from regional.kube.messages import MASTERS, Response, User
from regional.kube.schema import apply
from regional.kube.schema.openapi_validation import shown
from regional.kube.schema.registry import Kind
from regional.kube.schema.types import schema_of


class Reviews:
    def __init__(self, authorizer: Authorizer, tokens: TokenIssuer, renderer: Renderer, clock: Clock) -> None:
        self._authorizer = authorizer
        self._tokens = tokens
        self._renderer = renderer
        self._clock = clock
        self._answers: dict[str, Callable[[Call, Obj], Obj]] = {
            "SubjectAccessReview": self._subject_access,
            "LocalSubjectAccessReview": self._subject_access,
            "SelfSubjectAccessReview": self._self_access,
            "SelfSubjectRulesReview": self._self_rules,
            "SelfSubjectReview": self._self,
            "TokenReview": self._token,
        }

    def handles(self, kind: Kind) -> bool:
        return kind.kind in self._answers and not kind.stored

    async def create(self, call: Call) -> Response:
        review = decode_body(call.request, call.kind)
        spec: Obj = review.get("spec") or {}
        metadata: Obj = {}
        if call.kind.namespaced:
            if review["metadata"].get("namespace") not in (None, "", call.namespace):
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = call.namespace
        if call.kind.kind == "SelfSubjectReview":
            metadata["creationTimestamp"] = rfc3339(self._clock.now())
        answer: Obj = {"kind": call.kind.kind, "apiVersion": call.kind.api_version, "metadata": metadata}
        if call.kind.kind == "SelfSubjectRulesReview":
            answer["spec"] = {}
        elif call.kind.kind != "SelfSubjectReview":
            answer["spec"] = spec
            answer = apply.track_update(
                None,
                answer,
                call.manager,
                schema=schema_of(call.kind),
                api_version=call.kind.api_version,
                now=rfc3339(self._clock.now()),
            )
        answer["status"] = self._answers[call.kind.kind](call, spec)
        return self._renderer.document(201, answer, call.wanted)

    def _subject_access(self, call: Call, spec: Obj) -> Obj:
        name, groups = str(spec.get("user") or ""), spec.get("groups") or []
        problems = _attribute_problems(spec)
        asked, path = spec.get("resourceAttributes") or {}, spec.get("nonResourceAttributes")
        if call.kind.kind.startswith("Local") and path is not None and not asked:
            text = f"Invalid value: {shown(_go_path(path))}: disallowed on this kind of request"
            problems.append(Cause("FieldValueInvalid", text, "spec.nonResourceAttributes"))
        if not name and not groups:
            text = 'Invalid value: "": at least one of user or group must be specified'
            problems.append(Cause("FieldValueInvalid", text, "spec.user"))
        if call.kind.kind.startswith("Local") and asked and asked.get("namespace") != call.namespace:
            text = f"Invalid value: {shown(asked.get('namespace') or '')}: must match metadata.namespace"
            problems.append(Cause("FieldValueInvalid", text, "spec.resourceAttributes.namespace"))
        _refuse(call, problems)
        user = User(name, tuple(str(group) for group in groups), str(spec.get("uid") or ""))
        return self._verdict(call, user, spec)

    def _self_access(self, call: Call, spec: Obj) -> Obj:
        _refuse(call, _attribute_problems(spec))
        return self._verdict(call, call.user, spec)

    def _verdict(self, call: Call, user: User, spec: Obj) -> Obj:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        asked: Obj = resource if resource is not None else path or {}
        words = {key: str(value) for key, value in asked.items() if isinstance(value, str)}
        if resource is None:
            attributes = Attributes(user, words.get("verb", ""), path=words.get("path", "") or "/")
        else:
            attributes = Attributes(
                user,
                words.get("verb", ""),
                words.get("group", ""),
                words.get("resource", ""),
                words.get("subresource", ""),
                words.get("namespace", ""),
                words.get("name", ""),
            )
        verdict = self._authorizer.check(attributes)
        status: Obj = {"allowed": verdict.allowed}
        return status | {"reason": verdict.reason} if verdict.reason else status

    def _self_rules(self, call: Call, spec: Obj) -> Obj:
        namespace = str(spec.get("namespace") or "")
        if not namespace:
            raise bad_request("no namespace on request")
        resource_rules: list[Obj] = []
        path_rules: list[Obj] = []
        if MASTERS in call.user.groups:
            resource_rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
            path_rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
        for binding, _ in self._authorizer.bindings_of(call.user, namespace):
            for rule in self._authorizer.role_rules(binding):
                if rule.paths:
                    path_rules.append({"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)})
                else:
                    found = {
                        "verbs": sorted(rule.verbs),
                        "apiGroups": sorted(rule.groups),
                        "resources": sorted(rule.resources),
                    }
                    resource_rules.append(found | ({"resourceNames": sorted(rule.names)} if rule.names else {}))
        return {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}

    def _self(self, call: Call, spec: Obj) -> Obj:
        return {"userInfo": user_info(call.user)}

    def _token(self, call: Call, spec: Obj) -> Obj:
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        audiences = spec.get("audiences") or [self._tokens.own_audience]
        claims = self._tokens.verify(str(spec.get("token") or ""), *(str(each) for each in audiences))
        if claims is None:
            return {"user": {}, "error": "invalid bearer token"}
        user = service_account_user(claims.namespace, claims.name, claims.uid, claims.extra())
        return {"authenticated": True, "user": user_info(user), "audiences": list(claims.audiences)}


def _nameless(kind: Kind) -> Kind:
    """Refused reviews say their group and no kind."""
    return msgspec.structs.replace(kind, kind="")


def user_info(user: User) -> Obj:
    info: Obj = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": user.extra}
    return {key: value for key, value in info.items() if value}


def _attribute_problems(spec: Obj) -> list[Cause]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    field = "spec.resourceAttributes"
    if resource is not None and path is not None:
        text = f"Invalid value: {shown(_go_path(path))}: cannot be specified in combination with resourceAttributes"
        return [Cause("FieldValueInvalid", text, "spec.nonResourceAttributes")]
    if resource is None and path is None:
        text = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [Cause("FieldValueInvalid", text, field)]
    return []


def _go_path(path: Obj) -> Obj:
    return {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}


def _refuse(call: Call, problems: list[Cause]) -> None:
    if problems:
        raise invalid(_nameless(call.kind), "", problems)
