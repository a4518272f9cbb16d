"""Create, update, patch: names, revisions, generations, conflicts, strictness."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from .harness import Api, config_map

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SERVICES = "/api/v1/namespaces/default/services"


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "regional/regional:1"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


async def test_create_gives_uid_time_and_revision_whatever_the_client_sent(api: Api) -> None:
    sent = config_map("a", {"k": "v"}, uid="mine", resourceVersion="1", creationTimestamp="2001-01-01T00:00:00Z")
    del sent["metadata"]["resourceVersion"]
    made = await api.post(CONFIG_MAPS, sent)
    assert made.status == 201
    metadata = made.body["metadata"]
    assert made.body["kind"] == "ConfigMap" and made.body["apiVersion"] == "v1"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert metadata["creationTimestamp"] > "2020" and metadata["namespace"] == "default"
    assert int(metadata["resourceVersion"]) == api.server.store.revision
    assert (await api.get(f"{CONFIG_MAPS}/a")).body == made.body


async def test_second_create_is_refused_with_the_real_servers_words(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    again = await api.post(CONFIG_MAPS, config_map("a"))
    assert again.status == 409
    assert again.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


async def test_generated_names_differ_and_a_name_is_required(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "job-"}}
    names = {(await api.post(CONFIG_MAPS, body)).body["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"job-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    nameless = await api.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    assert nameless.status == 422
    assert "metadata.name: Required value: name or generateName is required" in nameless.message


async def test_other_namespace_or_kind_or_bad_name_is_refused(api: Api) -> None:
    elsewhere = await api.post(CONFIG_MAPS, config_map("a", namespace="kube-system"))
    assert elsewhere.status == 400
    assert elsewhere.message == "the namespace of the provided object does not match the namespace sent on the request"
    assert (await api.post(CONFIG_MAPS, deployment("a"))).status == 400
    assert (await api.post(CONFIG_MAPS, config_map("Bad_Name"))).status == 422
    lost = await api.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (lost.status, lost.message) == (404, 'namespaces "nowhere" not found')


async def test_unknown_fields_warn_or_refuse_or_pass_as_asked(api: Api) -> None:
    body = config_map("a") | {"junk": 1}
    warned = await api.post(CONFIG_MAPS, body)
    assert warned.status == 201 and warned.warnings == ['unknown field "junk"'] and "junk" not in warned.body
    strict = await api.post(f"{CONFIG_MAPS}?fieldValidation=Strict", body | {"metadata": {"name": "b"}})
    assert strict.status == 400
    assert strict.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "junk"'
    )
    silent = await api.post(f"{CONFIG_MAPS}?fieldValidation=Ignore", body | {"metadata": {"name": "c"}})
    assert silent.status == 201 and silent.warnings == []
    doubled = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"data":{"a":"1","a":"2"}}'
    assert (await api.post(CONFIG_MAPS, doubled)).warnings == ['duplicate field "data.a"']


async def test_dry_run_goes_all_the_way_and_stores_nothing(api: Api) -> None:
    before = api.server.store.revision
    tried = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
    assert tried.status == 201 and tried.body["metadata"]["uid"] and "resourceVersion" not in tried.body["metadata"]
    assert (await api.get(f"{CONFIG_MAPS}/a")).status == 404
    assert api.server.store.revision == before
    assert (await api.post(f"{CONFIG_MAPS}?dryRun=Some", config_map("a"))).status == 422


async def test_stale_update_conflicts_and_unconditional_update_overwrites(api: Api) -> None:
    first = (await api.post(CONFIG_MAPS, config_map("a", {"n": "1"}))).body
    await api.put(f"{CONFIG_MAPS}/a", first | {"data": {"n": "2"}})
    stale = await api.put(f"{CONFIG_MAPS}/a", first | {"data": {"n": "3"}})
    assert stale.status == 409
    assert stale.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    forced = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"n": "4"}))
    assert forced.status == 200 and forced.body["data"] == {"n": "4"}
    assert forced.body["metadata"]["uid"] == first["metadata"]["uid"]


async def test_put_may_create_a_lease_but_no_config_map(api: Api) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert (await api.put(f"{leases}/l", lease)).status == 201
    assert (await api.put(f"{leases}/l", lease)).status == 422  # a Lease is never overwritten unseen
    assert (await api.put(f"{CONFIG_MAPS}/a", config_map("a"))).status == 404


async def test_write_that_changes_nothing_keeps_the_revision(api: Api) -> None:
    made = (await api.post(CONFIG_MAPS, config_map("a", {"n": "1"}))).body
    assert (await api.put(f"{CONFIG_MAPS}/a", made)).body == made
    assert (await api.patch(f"{CONFIG_MAPS}/a", {"data": {"n": "1"}})).body == made
    applied = (await api.apply(f"{CONFIG_MAPS}/b", config_map("b", {"n": "1"}))).body
    assert (await api.apply(f"{CONFIG_MAPS}/b", config_map("b", {"n": "1"}))).body == applied


async def test_generation_counts_spec_only(api: Api) -> None:
    made = (await api.post(DEPLOYMENTS, deployment("d"))).body
    assert made["metadata"]["generation"] == 1 and made["spec"]["replicas"] == 1
    labelled = (await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"x": "y"}}})).body
    assert labelled["metadata"]["generation"] == 1
    reported = await api.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 3}, "spec": {"replicas": 9}})
    assert reported.body["metadata"]["generation"] == 1
    assert reported.body["status"]["replicas"] == 3 and reported.body["spec"]["replicas"] == 1
    scaled = (await api.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 2}, "status": {"replicas": 7}})).body
    assert scaled["metadata"]["generation"] == 2 and scaled["status"]["replicas"] == 3


async def test_json_patch_failing_test_is_refused_and_null_deletes_in_a_merge(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a", {"x": "1", "y": "2"}))
    failed = await api.patch(f"{CONFIG_MAPS}/a", [{"op": "test", "path": "/data/x", "value": "9"}], "json")
    assert failed.status == 422
    assert failed.message == "the server rejected our request due to an error in our request"
    merged = await api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": None, "z": "3"}})
    assert merged.body["data"] == {"y": "2", "z": "3"}
    renamed = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"name": "b"}})
    assert renamed.status == 400
    stale = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"resourceVersion": "1"}, "data": {"q": "1"}})
    assert stale.status == 409
    assert (await api.patch(f"{CONFIG_MAPS}/nothing", {"data": {}})).status == 404


async def test_strategic_patch_merges_containers_by_name(api: Api) -> None:
    await api.post(DEPLOYMENTS, deployment("d"))
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "regional/regional:2"}]}}}}
    patched = await api.patch(f"{DEPLOYMENTS}/d", sidecar, "strategic")
    assert sorted(c["name"] for c in patched.body["spec"]["template"]["spec"]["containers"]) == ["main", "side"]


async def test_scale_is_read_and_written_through_its_own_door(api: Api) -> None:
    await api.post(DEPLOYMENTS, deployment("d", replicas=2))
    scale = (await api.get(f"{DEPLOYMENTS}/d/scale")).body
    assert scale["kind"] == "Scale" and scale["apiVersion"] == "autoscaling/v1"
    assert scale["spec"] == {"replicas": 2} and scale["status"]["selector"] == "app=d"
    scale["spec"]["replicas"] = 5
    assert (await api.put(f"{DEPLOYMENTS}/d/scale", scale)).body["spec"] == {"replicas": 5}
    whole = (await api.get(f"{DEPLOYMENTS}/d")).body
    assert whole["spec"]["replicas"] == 5 and whole["metadata"]["generation"] == 2
    assert (await api.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}})).status == 422


async def test_a_scale_that_is_applied_respects_who_owns_the_number(api: Api) -> None:
    await api.apply(f"{DEPLOYMENTS}/d", deployment("d", replicas=3), "chart")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 9}}
    refused = await api.apply(f"{DEPLOYMENTS}/d/scale", scale, "scaler")
    assert refused.status == 409
    assert refused.message == 'Apply failed with 1 conflict: conflict with "chart": .spec.replicas'
    forced = await api.apply(f"{DEPLOYMENTS}/d/scale", scale, "scaler", "&force=true")
    assert forced.body["spec"] == {"replicas": 9}
    taken = await api.apply(f"{DEPLOYMENTS}/d", deployment("d", replicas=4), "chart")
    assert 'conflict with "scaler" with subresource "scale"' in taken.message
    assert (await api.apply(f"{DEPLOYMENTS}/d", deployment("d"), "chart")).body["spec"]["replicas"] == 9


async def test_apply_creates_shares_conflicts_and_is_forced(api: Api) -> None:
    url = f"{CONFIG_MAPS}/a"
    created = await api.apply(url, config_map("a", {"x": "1"}), "alice")
    assert created.status == 201
    assert (await api.apply(url, config_map("a", {"x": "1"}), "bob")).status == 200
    conflict = await api.apply(url, config_map("a", {"x": "2"}), "bob")
    assert conflict.status == 409
    assert conflict.message == 'Apply failed with 1 conflict: conflict with "alice": .data.x'
    assert conflict.body["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    forced = await api.apply(url, config_map("a", {"x": "2"}), "bob", "&force=true")
    assert forced.body["data"] == {"x": "2"}
    dropped = await api.apply(url, config_map("a"), "bob")
    assert not dropped.body.get("data")
    assert (await api.call("PATCH", url, config_map("a"), content_type="application/apply-patch+yaml")).status == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/namespaces/default/secrets/x", {"kind": "Secret", "data": {"a": "not base64"}}),
        ("/api/v1/namespaces/default/configmaps/x", {"kind": "ConfigMap", "binaryData": {"a": "YWI"}}),
        (f"{SERVICES}/x", {"kind": "Service", "spec": {"ports": [{"port": 80.5}]}}),
        (f"{SERVICES}/x", {"kind": "Service", "spec": {"ports": [{"port": 80, "targetPort": 8.5}]}}),
        (f"{SERVICES}/x", {"kind": "Service", "spec": {"ports": [{"port": 80, "targetPort": True}]}}),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
            {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "spec": {"renewTime": "yesterday"}},
        ),
        (
            "/api/v1/namespaces/default/pods/x",
            {
                "kind": "Pod",
                "spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "much"}}}]},
            },
        ),
    ],
)
async def test_nothing_is_stored_that_a_typed_client_could_not_read(api: Api, path: str, body: dict[str, Any]) -> None:
    """One such object would fail every list of its kind; apply knows the schema only, not the types behind it."""
    obj = {"apiVersion": "v1"} | body | {"metadata": {"name": "x"}}
    applied = await api.apply(path, obj)
    assert applied.status == 422
    assert applied.message.startswith("failed to convert new object (/x; ")
    assert (await api.post(path.removesuffix("/x"), obj)).status == 400
    assert (await api.get(path)).status == 404


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports} | spec}


async def test_services_get_an_address_keep_it_and_never_share_it(api: Api) -> None:
    services = SERVICES
    kubernetes = (await api.get(f"{services}/kubernetes")).body
    assert kubernetes["spec"]["clusterIP"] == "127.64.1.1" and kubernetes["spec"]["ports"][0]["port"] == 6443
    first = (await api.post(services, service("one"))).body
    address = first["spec"]["clusterIP"]
    assert address.startswith("127.64.1.") and first["spec"]["clusterIPs"] == [address]
    taken = await api.post(services, service("two", clusterIP=address))
    assert taken.status == 422 and "provided IP is already allocated" in taken.message
    assert (await api.post(services, service("two", clusterIP="10.0.0.1"))).status == 422
    assert (await api.post(services, service("none", clusterIP="None"))).body["spec"]["clusterIP"] == "None"
    replaced = await api.put(f"{services}/one", service("one", selector={"a": "b"}))
    assert replaced.body["spec"]["clusterIP"] == address
    moved = await api.patch(f"{services}/one", {"spec": {"clusterIP": "127.64.1.77", "clusterIPs": ["127.64.1.77"]}})
    assert moved.status == 422 and "may not change once set" in moved.message
    await api.delete(f"{services}/one")
    assert (await api.post(services, service("two", clusterIP=address))).status == 201


async def test_services_made_at_once_share_no_address(api: Api) -> None:
    made = await asyncio.gather(*(api.post(SERVICES, service(f"s{number}")) for number in range(40)))
    assert len({answer.body["spec"]["clusterIP"] for answer in made}) == 40


async def test_services_that_were_not_stored_keep_no_address(api: Api) -> None:
    range_size = 254
    for number in range(range_size):
        tried = await api.post(f"{SERVICES}?dryRun=All", service(f"tried-{number}"))
        assert tried.status == 201, tried.message
    asked = await api.post(f"{SERVICES}?dryRun=All", service("asked", clusterIP="127.64.1.99"))
    assert asked.body["spec"]["clusterIP"] == "127.64.1.99"
    assert (await api.post(SERVICES, service("stored", clusterIP="127.64.1.99"))).status == 201


async def test_times_come_back_in_one_form_whatever_zone_they_were_sent_in(api: Api) -> None:
    leases, east = "/apis/coordination.k8s.io/v1/namespaces/default/leases", "2026-01-01T02:00:00.250000+02:00"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    made = await api.post(leases, lease | {"spec": {"renewTime": "2026-01-01T1:00:00.000000Z", "acquireTime": east}})
    assert made.body["spec"] == {
        "renewTime": "2026-01-01T01:00:00.000000Z",
        "acquireTime": "2026-01-01T00:00:00.250000Z",
    }
    moved = await api.patch(f"{leases}/l", {"spec": {"renewTime": "2026-01-01T00:00:07.000000-01:00"}})
    assert moved.body["spec"]["renewTime"] == "2026-01-01T01:00:07.000000Z"
    applied = await api.apply(f"{leases}/m", lease | {"metadata": {"name": "m"}, "spec": {"renewTime": east}})
    assert applied.body["spec"]["renewTime"] == "2026-01-01T00:00:00.250000Z"
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "lastTimestamp": east}
    told = await api.post("/api/v1/namespaces/default/events", event)
    assert told.body["lastTimestamp"] == "2026-01-01T00:00:00Z"


async def test_bodies_that_are_no_objects_are_a_clients_fault(api: Api) -> None:
    deep = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":' + b'{"a":' * 5000 + b"1"
    for body in (
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"metadata":[]}',
        b'{"metadata":{"labels":7}}',
        deep + b"}" * 5002,
    ):
        answer = await api.post(CONFIG_MAPS, body)
        assert 400 <= answer.status < 500, (body[:40], answer.body)
    assert (await api.post(CONFIG_MAPS, b"x" * (3 * 1024 * 1024 + 1))).message == (
        "Request entity too large: limit is 3145728"
    )
    assert (await api.post(CONFIG_MAPS, b"hello", content_type="text/plain")).status == 415
    assert (await api.get(CONFIG_MAPS, accept="application/cbor")).status == 406
    for patch in (b"[]", b"7", b'"x"', b'[{"op":"nonsense"}]', b'{"metadata":null}', b'{"metadata":7}'):
        for how in ("json", "merge", "strategic", "apply"):
            status = (await api.patch(f"{CONFIG_MAPS}/kube-root-ca.crt?fieldManager=x", patch, how)).status
            assert status < 500, (patch, how)


async def test_yaml_goes_in_and_comes_out(api: Api) -> None:
    text = b'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yy\ndata:\n  when: "2020-01-01"\n'
    assert (await api.post(CONFIG_MAPS, text, content_type="application/yaml")).status == 201
    shown = await api.get(f"{CONFIG_MAPS}/yy", accept="application/yaml")
    assert b"kind: ConfigMap" in shown.body and shown.headers["content-type"] == "application/yaml"
