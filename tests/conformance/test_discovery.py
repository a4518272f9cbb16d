"""What the server tells about itself: versions, groups, resources."""

from __future__ import annotations

import re

import pytest

from .objects import Custom
from .servers import Cluster
from .wire import Answer, Http, Shell

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
BETA = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@pytest.mark.check(1, 2)
@pytest.mark.parametrize("path", ["/version", "/version/"])
async def test_the_version_is_told_to_anybody(http: Http, path: str) -> None:
    answer = await http.get(path, user="")
    version = answer.ok(200)
    assert (version["major"], version["minor"]) == ("1", "35")
    assert re.fullmatch(r"v1\.35\.\d+", version["gitVersion"])
    assert {"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} <= version.keys()
    assert answer.media == "application/json"
    assert answer.headers["cache-control"] == "no-cache, private"
    assert answer.headers["audit-id"]


@pytest.mark.check(3)
@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_is_plain_text(http: Http, path: str) -> None:
    answer = await http.get(path, user="")
    assert (answer.status, answer.content) == (200, b"ok")
    assert answer.media == "text/plain; charset=utf-8"
    verbose = (await http.get(f"{path}?verbose")).content.decode()
    assert verbose.startswith("[+]ping ok\n") and verbose.endswith(f"{path[1:]} check passed\n")


@pytest.mark.check(4)
async def test_the_old_form_names_core_versions_groups_and_resources(http: Http, widgets: Custom) -> None:
    core = (await http.get("/api")).ok(200)
    assert core["kind"] == "APIVersions" and core["versions"] == ["v1"]
    assert core["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"
    groups = (await http.get("/apis")).ok(200)
    assert (groups["kind"], groups["apiVersion"]) == ("APIGroupList", "v1")
    apps = {"groupVersion": "apps/v1", "version": "v1"}
    entry = {"name": "apps", "versions": [apps], "preferredVersion": apps}
    assert entry in groups["groups"]
    assert (await http.get("/apis/apps")).ok(200) == {"kind": "APIGroup", "apiVersion": "v1"} | entry
    listed = (await http.get("/apis/apps/v1")).ok(200)
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "apps/v1")
    rows = {row["name"]: row for row in listed["resources"]}
    main = rows["deployments"]
    assert main.pop("storageVersionHash")
    assert main == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": VERBS,
        "shortNames": ["deploy"],
        "categories": ["all"],
    }
    assert rows["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    custom = (await http.get(f"/apis/{widgets.api_version}")).ok(200)
    names = [row["name"] for row in custom["resources"]]
    assert sorted(names) == ["widgets", "widgets/scale", "widgets/status"]


@pytest.mark.check(5)
@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery_says_its_form_in_the_content_type(http: Http, path: str) -> None:
    answer = await http.get(path, accept=f"{V2},{BETA},application/json")
    document = answer.ok(200)
    assert answer.media == V2
    assert answer.headers["vary"] == "Accept"
    assert answer.headers["cache-control"] == "public"
    assert re.fullmatch(r'"[0-9A-F]{128}"', answer.headers["etag"])
    assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    assert document["metadata"] == {}
    if path == "/api":
        assert [item["metadata"] for item in document["items"]] == [{}]


@pytest.mark.check(5)
async def test_aggregated_discovery_has_a_custom_kind_with_its_subresources(http: Http, widgets: Custom) -> None:
    # The aggregated document follows the CRD by a moment.
    def there(answer: Answer) -> bool:
        return any(item["metadata"].get("name") == widgets.group for item in answer.body["items"])

    found = await http.until("/apis", there, accept=V2)
    item = next(each for each in found.body["items"] if each["metadata"].get("name") == widgets.group)
    (version,) = item["versions"]
    kind = {"group": widgets.group, "version": "v1", "kind": "Widget"}
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    (resource,) = version["resources"]
    parts = {part["subresource"]: part for part in resource.pop("subresources")}
    assert resource == {
        "resource": "widgets",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "widget",
        "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
    }
    assert parts["status"] == {"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert parts["scale"] == {"subresource": "scale", "responseKind": scale, "verbs": ["get", "patch", "update"]}


@pytest.mark.check(6)
@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_a_known_discovery_document_is_not_sent_again(http: Http, path: str) -> None:
    # A CRD of another test may change the document in between: then the tag has changed, too.
    for _ in range(20):
        tag = (await http.get(path, accept=V2)).headers["etag"]
        again = await http.get(path, accept=V2, if_none_match=tag)
        if again.status == 304:
            break
    assert (again.status, again.content, again.headers["etag"]) == (304, b"", tag)


@pytest.mark.check(7)
async def test_the_removed_beta_form_alone_is_not_acceptable(http: Http) -> None:
    answer = await http.get("/apis", accept=BETA)
    assert answer.status == 406
    assert (answer.body["reason"], answer.body["code"]) == ("NotAcceptable", 406)


@pytest.mark.check(8)
@pytest.mark.parametrize(
    "accept",
    [
        "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
        "application/json; v=v2; g=apidiscovery.k8s.io; as=APIGroupDiscoveryList",
        f"{BETA},{V2}",
    ],
)
async def test_the_order_of_accept_parameters_does_not_matter(http: Http, accept: str) -> None:
    answer = await http.get("/apis", accept=accept)
    assert (answer.status, answer.media) == (200, V2)


@pytest.mark.check(9)
@pytest.mark.parametrize("path", ["/apis/nope.io", "/apis/nope.io/v1", "/apis/nope.io/v1/things", "/nope"])
async def test_an_unknown_group_is_a_page_that_is_not_there(http: Http, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status, answer.content) == (404, b"404 page not found\n")
    assert answer.media == "text/plain; charset=utf-8"


@pytest.mark.check(9)
async def test_an_unserved_version_of_a_custom_kind_is_a_page_that_is_not_there(http: Http, widgets: Custom) -> None:
    answer = await http.get(f"/apis/{widgets.group}/v9/widgets")
    assert (answer.status, answer.content) == (404, b"404 page not found\n")


@pytest.mark.check(10)
@pytest.mark.parametrize("path", ["/apis/apps/v9", "/apis/apps/v1/nopes", "/api/v1/nopes", "/api/v9"])
async def test_an_unknown_part_of_a_known_group_is_a_status(http: Http, path: str) -> None:
    (await http.get(path)).refused(404, "NotFound", "the server could not find the requested resource", {})


@pytest.mark.check(11)
async def test_kubectl_lists_resources_with_their_short_names(kubectl: Shell) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in (await kubectl("api-resources")).splitlines()}
    assert rows["configmaps"] == ["cm", "v1", "true", "ConfigMap"]
    assert rows["deployments"] == ["deploy", "apps/v1", "true", "Deployment"]
    assert rows["customresourcedefinitions"] == [
        "crd,crds",
        "apiextensions.k8s.io/v1",
        "false",
        "CustomResourceDefinition",
    ]
    assert rows["leases"] == ["coordination.k8s.io/v1", "true", "Lease"]
    shown = await kubectl("api-resources --categories=all -o name")
    wanted = ["cronjobs.batch", "daemonsets.apps", "deployments.apps", "jobs.batch", "pods", "replicasets.apps"]
    assert {*wanted, "services", "statefulsets.apps", "horizontalpodautoscalers.autoscaling"} <= set(shown.split())


@pytest.mark.check(12)
async def test_kr8s_finds_the_resources(cluster: Cluster, kubectl: Shell, widgets: Custom) -> None:
    kr8s = pytest.importorskip("kr8s")
    api = await kr8s.asyncio.api(kubeconfig=str(kubectl.folder / "kubeconfig"))
    try:
        found = {(each["name"], each["version"]) for each in await api.api_resources()}
    finally:
        await api._session.aclose()  # kr8s keeps its clients, and has no way to close one
    assert {("configmaps", "v1"), ("deployments", "apps/v1"), ("widgets", widgets.api_version)} <= found


@pytest.mark.check(13)
def test_the_python_dynamic_client_finds_the_resources(kubectl: Shell, widgets: Custom, config_maps: str) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    dynamic = pytest.importorskip("kubernetes.dynamic")
    with kubernetes.config.new_client_from_config(str(kubectl.folder / "kubeconfig")) as client:
        api = dynamic.DynamicClient(client)
        found = api.resources.get(api_version="v1", kind="ConfigMap")
        assert [each.metadata.name for each in found.get(namespace=config_maps.split("/")[4]).items] == [
            "kube-root-ca.crt"
        ]
        assert api.resources.get(api_version=widgets.api_version, kind="Widget").name == "widgets"
