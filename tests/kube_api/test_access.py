"""Who may do what: anonymous, RBAC, service-account tokens, reviews, impersonation, escalation."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from regional.core.clock import ManualClock
from regional.kube.apiserver.authn import authenticate
from regional.kube.apiserver.errors import StatusError
from regional.kube.apiserver.tokens import Bound, Claims, TokenIssuer
from regional.kube.messages import ANONYMOUS, User

from .harness import Api, config_map

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
JOE = User("joe", ("devs", "system:authenticated"))


async def _grant(api: Api, rules: list[dict[str, object]], subject: dict[str, str], namespace: str = "default") -> None:
    place = f"{RBAC}/namespaces/{namespace}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "rd"}, "rules": rules}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "rd"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "rd"},
        "roleRef": reference,
        "subjects": [subject],
    }
    assert (await api.post(f"{place}/roles", role)).status == 201
    assert (await api.post(f"{place}/rolebindings", binding)).status == 201


async def test_nobody_may_look_at_objects_but_everybody_at_the_version(api: Api) -> None:
    assert (await api.get("/version", user=ANONYMOUS)).body["gitVersion"].startswith("v1.35")
    refused = await api.get(f"{CONFIG_MAPS}/a", user=ANONYMOUS)
    assert refused.status == 403
    assert refused.message == (
        'configmaps "a" is forbidden: User "system:anonymous" cannot get resource "configmaps" in API group "" '
        'in the namespace "default"'
    )
    listed = await api.get("/apis/apps/v1/deployments", user=ANONYMOUS)
    assert listed.message == (
        'deployments.apps is forbidden: User "system:anonymous" cannot list resource "deployments" in API group "apps" '
        "at the cluster scope"
    )
    path = await api.get("/metrics", user=ANONYMOUS)
    assert path.message == 'forbidden: User "system:anonymous" cannot get path "/metrics"'
    assert path.body["details"] == {}


async def test_role_opens_exactly_what_it_says_at_once(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.get(f"{CONFIG_MAPS}/a", user=JOE)).status == 403
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get", "watch"]}]
    await _grant(api, rules, {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "devs"})
    assert (await api.get(f"{CONFIG_MAPS}/a", user=JOE)).status == 200
    assert (await api.get(f"{CONFIG_MAPS}/b", user=JOE)).status == 403
    assert (await api.get(CONFIG_MAPS, user=JOE)).status == 403
    assert (await api.delete(f"{CONFIG_MAPS}/a", user=JOE)).status == 403
    by_name = await api.raw("GET", f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Da", user=JOE)
    assert by_name.status == 200
    await by_name.body.aclose()  # type: ignore[union-attr]
    await api.delete(f"{RBAC}/namespaces/default/rolebindings/rd")
    assert (await api.get(f"{CONFIG_MAPS}/a", user=JOE)).status == 403


async def test_service_account_token_lives_and_dies_with_its_account(api: Api) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}
    await api.post(accounts, body)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await api.post(f"{accounts}/bot/token", asked)
    assert answer.status == 201 and answer.body["status"]["expirationTimestamp"]
    token = answer.body["status"]["token"]
    headers = {"authorization": f"Bearer {token}"}
    user = authenticate(headers, None, api.server.tokens)
    assert user.name == "system:serviceaccount:default:bot"
    assert set(user.groups) == {"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert (await api.post(reviews, review)).body["status"]["user"]["username"] == user.name
    await api.delete(f"{accounts}/bot")
    await api.post(accounts, body)  # the same name, another account
    with pytest.raises(StatusError) as refused:
        authenticate(headers, None, api.server.tokens)
    assert refused.value.code == 401
    assert (await api.post(reviews, review)).body["status"] == {"user": {}, "error": "invalid bearer token"}
    short = await api.post(f"{accounts}/bot/token", {"spec": {"expirationSeconds": 60}})
    assert short.status == 422


async def test_a_token_that_was_good_ends_with_its_time_and_with_what_it_is_bound_to(keys: Path) -> None:
    clock, uids = ManualClock(), {"serviceaccounts": "u1", "pods": "p1"}
    tokens = TokenIssuer(keys / "sa.key", lambda resource, *_: uids[resource], clock)
    bound = Claims("default", "bot", "u1", pod=Bound("web", "p1"))
    token, _ = tokens.issue(bound, [tokens.own_audience], 600)
    for _ in range(2):
        claims = tokens.verify(token, tokens.own_audience)
        assert claims is not None and (claims.name, claims.pod) == ("bot", bound.pod)
        assert tokens.verify(token, "another") is None
    uids["pods"] = "p2"
    assert tokens.verify(token, tokens.own_audience) is None
    uids["pods"] = "p1"
    await clock.advance(599)
    assert tokens.verify(token, tokens.own_audience) is not None
    await clock.advance(1)
    assert tokens.verify(token, tokens.own_audience) is None
    other = TokenIssuer(
        keys / "sa.key", lambda resource, *_: uids[resource], ManualClock(datetime(2025, 1, 1, tzinfo=UTC))
    )
    assert other.verify(token, other.own_audience) is None, "not yet"


async def test_bad_tokens_are_401_not_anonymous(api: Api) -> None:
    for header in ("Bearer nonsense", "Bearer a.b.c"):
        with pytest.raises(StatusError) as refused:
            authenticate({"authorization": header}, None, api.server.tokens)
        assert refused.value.document()["message"] == "Unauthorized"
    # Nothing that could be checked is nothing at all.
    for header in ("Bearer ", "Basic abc", ""):
        assert authenticate({"authorization": header}, None, api.server.tokens) == ANONYMOUS
    assert authenticate({}, None, api.server.tokens) == ANONYMOUS


async def test_access_reviews_say_why(api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]
    await _grant(api, rules, {"kind": "ServiceAccount", "name": "bot", "namespace": "default"})

    async def ask(subresource: str) -> dict[str, object]:
        attributes = {"verb": "get", "resource": "pods", "subresource": subresource, "namespace": "default"}
        spec = {"user": "system:serviceaccount:default:bot", "resourceAttributes": attributes}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        assert answer.status == 201
        return answer.body["status"]  # type: ignore[no-any-return]

    assert await ask("log") == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "rd/default" of Role "rd" to ServiceAccount "bot/default"',
    }
    assert await ask("") == {"allowed": False}
    mine = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, user=JOE)
    assert mine.body["status"]["userInfo"]["username"] == "joe"


async def test_nobody_grants_more_than_they_hold(api: Api) -> None:
    rules = [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    await _grant(api, rules, {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "joe"})

    async def role(name: str, resource: str) -> tuple[int, str]:
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
        }
        answer = await api.post(f"{RBAC}/namespaces/default/roles", body, user=JOE)
        return answer.status, answer.body.get("message", "")

    assert (await role("held", "configmaps"))[0] == 201
    status, message = await role("more", "secrets")
    assert status == 403
    assert message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "joe" (groups=["devs" "system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )


async def test_impersonation_needs_the_right_to_it(api: Api) -> None:
    whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    as_joe = await api.post(whoami, {}, impersonate_user="joe", impersonate_group="devs")
    assert as_joe.body["status"]["userInfo"] == {"username": "joe", "groups": ["devs", "system:authenticated"]}
    refused = await api.post(whoami, {}, user=JOE, impersonate_user="admin")
    assert refused.status == 403 and 'cannot impersonate resource "users"' in refused.message
    assert (await api.post(whoami, {}, impersonate_group="devs")).status == 400


async def test_node_identity_can_do_its_work_and_no_more(api: Api) -> None:
    node = User("system:node:n1", ("system:nodes", "system:authenticated"))
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert (await api.post("/api/v1/nodes", body, user=node)).status == 201
    assert (await api.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", user=node)).status == 200
    spc = "/apis/secrets-store.csi.x-k8s.io/v1/secretproviderclasses"
    assert (await api.get(spc, user=node)).status == 200
    assert (await api.post(CONFIG_MAPS, config_map("a"), user=node)).status == 403
