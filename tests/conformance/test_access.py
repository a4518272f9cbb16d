"""Who may: credentials, refusals, impersonation, reviews, and that nobody grants what they do not hold."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import msgspec
import pytest

from .objects import config_map
from .wire import Http, Obj

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"
ME = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WHO = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def role(name: str, *rules: Obj, kind: str = "Role") -> Obj:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "rules": list(rules)}


def rule(*verbs: str, resources: str = "configmaps", names: list[str] | None = None, group: str = "") -> Obj:
    made: Obj = {"apiGroups": [group], "resources": resources.split(","), "verbs": list(verbs)}
    return made | ({"resourceNames": names} if names else {})


def binding(name: str, subject: Obj, role_name: str = "", kind: str = "RoleBinding", of: str = "Role") -> Obj:
    reference = {"apiGroup": GROUP, "kind": of, "name": role_name or name}
    head = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}}
    return head | {"roleRef": reference, "subjects": [subject]}


def user(name: str) -> Obj:
    return {"kind": "User", "name": name, "apiGroup": GROUP}


async def allow(http: Http, namespace: str, name: str, subject: Obj, *rules: Obj) -> None:
    (await http.post(f"{RBAC}/namespaces/{namespace}/roles", role(name, *rules))).ok(201)
    (await http.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding(name, subject))).ok(201)


@pytest.mark.check(121)
async def test_a_bad_token_is_nobody_at_all(http: Http, config_maps: str) -> None:
    for path in (config_maps, "/version"):
        answer = await http.get(path, user="", authorization="Bearer nonsense")
        answer.refused(401, "Unauthorized", "Unauthorized")


@pytest.mark.check(121)
async def test_nobody_may_look_at_little(http: Http, config_maps: str, namespace: str) -> None:
    assert (await http.get("/version", user="")).status == 200
    why = f'User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "{namespace}"'
    (await http.get(config_maps, user="")).refused(
        403, "Forbidden", f"configmaps is forbidden: {why}", {"kind": "configmaps"}
    )
    (await http.get("/metrics", user="")).refused(
        403, "Forbidden", 'forbidden: User "system:anonymous" cannot get path "/metrics"', {}
    )


@pytest.mark.check(121)
async def test_refusals_name_the_verb_the_resource_and_the_place(http: Http, namespace: str) -> None:
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    inside = f'in the namespace "{namespace}"'
    for method, path, subject, details, what in [
        ("GET", f"{core}/configmaps", "configmaps", {"kind": "configmaps"}, 'list resource "configmaps"'),
        (
            "GET",
            f"{core}/configmaps/c0",
            'configmaps "c0"',
            {"name": "c0", "kind": "configmaps"},
            'get resource "configmaps"',
        ),
        ("POST", f"{core}/configmaps", "configmaps", {"kind": "configmaps"}, 'create resource "configmaps"'),
        (
            "GET",
            f"{core}/configmaps?fieldSelector=metadata.name=only",
            'configmaps "only"',
            {"name": "only", "kind": "configmaps"},
            'list resource "configmaps"',
        ),
        (
            "DELETE",
            f"{core}/configmaps",
            "configmaps",
            {"kind": "configmaps"},
            'deletecollection resource "configmaps"',
        ),
    ]:
        answer = await http.call(method, path, {} if method == "POST" else None, user="joe")
        answer.refused(
            403, "Forbidden", f'{subject} is forbidden: User "joe" cannot {what} in API group "" {inside}', details
        )
    (await http.get(f"{apps}/deployments/d/scale", user="joe")).refused(
        403,
        "Forbidden",
        f'deployments.apps "d" is forbidden: User "joe" cannot get resource "deployments/scale" in API group "apps" '
        f"{inside}",
        {"name": "d", "group": "apps", "kind": "deployments"},
    )
    (await http.get("/api/v1/nodes", user="joe")).refused(
        403,
        "Forbidden",
        'nodes is forbidden: User "joe" cannot list resource "nodes" in API group "" at the cluster scope',
        {"kind": "nodes"},
    )


@pytest.mark.check(121)
async def test_a_rule_for_one_name_serves_lists_of_that_name(http: Http, config_maps: str, namespace: str) -> None:
    (await http.post(config_maps, config_map("only"))).ok(201)
    await allow(http, namespace, "named", user("joe"), rule("get", "list", "patch", names=["only"]))
    await http.until(f"{config_maps}/only", lambda answer: answer.status == 200, user="joe")
    assert (await http.get(f"{config_maps}/other", user="joe")).status == 403
    assert (await http.get(config_maps, user="joe")).status == 403
    listed = (await http.get(f"{config_maps}?fieldSelector=metadata.name=only", user="joe")).ok(200)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["only"]
    (await http.apply(f"{config_maps}/only", config_map("only", {"a": "1"}), "joe", user="joe")).ok(200)
    (await http.delete(f"{config_maps}/only")).ok(200)
    # To apply what is not there is to create it.
    answer = await http.apply(f"{config_maps}/only", config_map("only"), "joe", user="joe")
    assert answer.status == 403
    assert 'cannot create resource "configmaps"' in answer.message


@pytest.mark.check(122)
async def test_a_service_accounts_token_ends_with_it(http: Http, config_maps: str, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    made = (await http.post(accounts, {"metadata": {"name": "bot"}})).ok(201)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = (await http.post(f"{accounts}/bot/token", request)).ok(201)
    assert answer["spec"]["expirationSeconds"] == 3600
    token = answer["status"]["token"]
    claims = _claims(token)
    assert claims["sub"] == f"system:serviceaccount:{namespace}:bot"
    account = {"name": "bot", "uid": made["metadata"]["uid"]}
    assert claims["kubernetes.io"] == {"namespace": namespace, "serviceaccount": account}
    assert claims["aud"] == [claims["iss"]] and claims["exp"] - claims["iat"] == 3600
    bearer = {"user": "", "authorization": f"Bearer {token}"}
    told = (await http.post(ME, WHO, **bearer)).ok(201)["status"]["userInfo"]
    assert told == {
        "username": f"system:serviceaccount:{namespace}:bot",
        "uid": made["metadata"]["uid"],
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]},
    }
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": namespace}
    await allow(http, namespace, "reads", subject, rule("list"))
    await http.until(config_maps, lambda found: found.status == 200, **bearer)
    (await http.delete(f"{accounts}/bot")).ok(200)
    refused = await http.until(config_maps, lambda found: found.status == 401, **bearer)
    refused.refused(401, "Unauthorized", "Unauthorized")


def _claims(token: str) -> Any:
    part = token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.check(122)
async def test_a_token_request_is_checked(http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 10}}
    answer = await http.post(path, request)
    assert answer.status == 422
    assert (
        "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes" in answer.message
    )
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "bad"}}
    told = (await http.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).ok(201)
    assert told["status"] == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.check(123)
async def test_who_may_speak_for_others(http: Http, config_maps: str, namespace: str) -> None:
    headers = {"impersonate_user": "jane", "impersonate_group": "g1", "impersonate_extra_scopes": "a"}
    told = (await http.post(ME, WHO, **headers)).ok(201)["status"]["userInfo"]
    assert told == {"username": "jane", "groups": ["g1", "system:authenticated"], "extra": {"scopes": ["a"]}}
    account = f"system:serviceaccount:{namespace}:default"
    told = (await http.post(ME, WHO, impersonate_user=account)).ok(201)["status"]["userInfo"]
    assert told["groups"] == ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    answer = await http.get(config_maps, impersonate_user="jane")
    assert answer.status == 403 and 'User "jane" cannot list' in answer.message
    (await http.get(config_maps, user="joe", impersonate_user="admin")).refused(
        403,
        "Forbidden",
        'users "admin" is forbidden: User "joe" cannot impersonate resource "users" in API group "" at the cluster '
        "scope",
        {"name": "admin", "kind": "users"},
    )
    (await http.get(config_maps, impersonate_group="x")).refused(
        400, "BadRequest", "requested [{Group  x    }] without impersonating a user"
    )


@pytest.mark.check(123)
async def test_impersonation_is_granted_part_by_part(http: Http, config_maps: str) -> None:
    name, jane = f"speak-{uuid.uuid4().hex[:8]}", f"jane-{uuid.uuid4().hex[:8]}"
    only = rule("impersonate", resources="users", names=[jane])
    try:
        (await http.post(f"{RBAC}/clusterroles", role(name, only, kind="ClusterRole"))).ok(201)
        bound = binding(name, user("joe"), kind="ClusterRoleBinding", of="ClusterRole")
        (await http.post(f"{RBAC}/clusterrolebindings", bound)).ok(201)
        said = await http.until(
            config_maps,
            lambda answer: f'User "{jane}" cannot list' in answer.message,
            user="joe",
            impersonate_user=jane,
        )
        assert said.status == 403
        more = {"impersonate_extra_scopes": "x"}
        answer = await http.get(config_maps, user="joe", impersonate_user=jane, **more)
        answer.refused(
            403,
            "Forbidden",
            'userextras.authentication.k8s.io "x" is forbidden: User "joe" cannot impersonate resource '
            '"userextras/scopes" in API group "authentication.k8s.io" at the cluster scope',
            {"name": "x", "group": "authentication.k8s.io", "kind": "userextras"},
        )
        answer = await http.get(config_maps, user="joe", impersonate_user=jane, impersonate_group="devs")
        assert answer.message.startswith('groups "devs" is forbidden: User "joe" cannot impersonate resource "groups"')
    finally:
        await http.delete(f"{RBAC}/clusterrolebindings/{name}")
        await http.delete(f"{RBAC}/clusterroles/{name}")


@pytest.mark.check(124)
async def test_a_review_says_why(http: Http, namespace: str) -> None:
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": namespace}
    await allow(http, namespace, "rd", subject, rule("get", names=["only"]), rule("get", resources="pods/log"))
    name = f"system:serviceaccount:{namespace}:bot"

    async def ask(**attributes: str) -> Obj:
        spec = {"user": name, "resourceAttributes": {"namespace": namespace, "verb": "get"} | attributes}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = (await http.post(f"{REVIEWS}/subjectaccessreviews", body)).ok(201)
        assert answer["spec"] == spec
        told: Obj = answer["status"]
        return told

    while (told := await ask(resource="configmaps", name="only")) == {"allowed": False}:
        pass  # the real server learns of a binding a moment later
    why = f'RBAC: allowed by RoleBinding "rd/{namespace}" of Role "rd" to ServiceAccount "bot/{namespace}"'
    assert told == {"allowed": True, "reason": why}
    assert await ask(resource="configmaps", name="other") == {"allowed": False}
    assert await ask(resource="configmaps") == {"allowed": False}
    assert (await ask(resource="pods", subresource="log"))["allowed"] is True
    assert await ask(resource="pods") == {"allowed": False}


@pytest.mark.check(124)
async def test_a_review_needs_a_subject_and_a_question(http: Http) -> None:
    for spec, found in [
        (
            {"resourceAttributes": {"verb": "get", "resource": "x"}},
            [("spec.user", 'Invalid value: "": at least one of user or group must be specified')],
        ),
        (
            {"user": "x"},
            [
                (
                    "spec.resourceAttributes",
                    "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )
            ],
        ),
    ]:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await http.post(f"{REVIEWS}/subjectaccessreviews", body)
        assert answer.status == 422
        assert [(each["field"], each["message"]) for each in answer.body["details"]["causes"]] == found


@pytest.mark.check(125)
async def test_nobody_grants_what_they_do_not_hold(http: Http, namespace: str) -> None:
    roles, bindings = f"{RBAC}/namespaces/{namespace}/roles", f"{RBAC}/namespaces/{namespace}/rolebindings"
    writes = rule("create", "update", "patch", "get", resources="roles,rolebindings", group=GROUP)
    await allow(http, namespace, "writer", user("joe"), writes, rule("get", names=["only"]))
    await http.until(f"{roles}/writer", lambda answer: answer.status == 200, user="joe")
    head = (
        'user "joe" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not currently held'
    )
    answer = await http.post(roles, role("x", rule("get", resources="secrets")), user="joe")
    details = {"name": "x", "group": GROUP, "kind": "roles"}
    answer.refused(
        403,
        "Forbidden",
        f'roles.{GROUP} "x" is forbidden: {head}:\n{{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}}',
        details,
    )
    answer = await http.post(roles, role("x", rule("get", "list", resources="secrets,pods")), user="joe")
    assert answer.message.endswith(
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )
    (await http.post(roles, role("held", rule("get", names=["only"])), user="joe")).ok(201)
    (await http.post(bindings, binding("held", user("bob")), user="joe")).ok(201)
    admin = binding("x", user("joe"), "cluster-admin", of="ClusterRole")
    answer = await http.post(bindings, admin, user="joe")
    assert answer.status == 403
    assert '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in answer.message
    assert '{NonResourceURLs:["*"], Verbs:["*"]}' in answer.message
    answer = await http.patch(f"{bindings}/held", {"roleRef": {"name": "other"}})
    assert answer.status == 422
    (cause,) = answer.body["details"]["causes"]
    assert cause["field"] == "roleRef" and cause["message"].endswith(": cannot change roleRef")


@pytest.mark.check(126)
async def test_a_role_gathers_the_rules_of_others(http: Http) -> None:
    name = f"sum-{uuid.uuid4().hex[:8]}"
    label = {"matchLabels": {f"{name}.demo.io/part": "yes"}}
    total = role(name, kind="ClusterRole") | {"aggregationRule": {"clusterRoleSelectors": [label]}}
    part = role(f"{name}-part", rule("get", resources="things", group="demo.io"), kind="ClusterRole")
    part["metadata"]["labels"] = label["matchLabels"]
    path = f"{RBAC}/clusterroles/{name}"
    try:
        (await http.post(f"{RBAC}/clusterroles", total)).ok(201)
        (await http.post(f"{RBAC}/clusterroles", part)).ok(201)
        await http.until(path, lambda answer: answer.body.get("rules") == part["rules"])
        # What somebody writes there himself does not stay.
        (await http.patch(path, {"rules": [rule("list", resources="other")]})).ok(200)
        await http.until(path, lambda answer: answer.body.get("rules") == part["rules"])
        (await http.delete(f"{RBAC}/clusterroles/{name}-part")).ok(200)
        await http.until(path, lambda answer: not answer.body.get("rules"))
    finally:
        await http.delete(path)
        await http.delete(f"{RBAC}/clusterroles/{name}-part")


@pytest.mark.check(126)
async def test_a_role_labelled_for_it_widens_view_edit_and_admin(http: Http) -> None:
    name = f"looks-{uuid.uuid4().hex[:8]}"
    part = role(name, rule("get", resources="things", group=f"{name}.demo.io"), kind="ClusterRole")
    part["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    try:
        (await http.post(f"{RBAC}/clusterroles", part)).ok(201)
        for wider in ("view", "edit", "admin"):
            await http.until(f"{RBAC}/clusterroles/{wider}", lambda answer: part["rules"][0] in answer.body["rules"])
    finally:
        await http.delete(f"{RBAC}/clusterroles/{name}")
