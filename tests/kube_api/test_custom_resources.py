"""CRDs: served with their acceptance, defaulted, pruned, validated, and taken away with all their objects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from .harness import Api, start_server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/demo.io/v1/namespaces/default/widgets"


def crd(**spec: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                    "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                    "replicas": {"type": "integer"},
                    "id": {
                        "type": "string",
                        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "id is immutable"}],
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    names = {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.demo.io"},
        "spec": {"group": "demo.io", "scope": "Namespaced", "names": names, "versions": [version]} | spec,
    }


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "demo.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1} | spec}


async def test_crd_is_served_with_the_answer_that_accepts_it(api: Api) -> None:
    unknown = await api.get("/apis/demo.io/v1/widgets")
    assert (unknown.status, unknown.body) == (404, b"404 page not found\n")
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    tag = (await api.get("/apis", accept=accept)).headers["etag"]
    made = (await api.post(CRDS, crd())).body
    conditions = {each["type"]: each for each in made["status"]["conditions"]}
    assert conditions["NamesAccepted"]["reason"] == "NoConflicts" and conditions["Established"]["status"] == "True"
    assert made["status"]["storedVersions"] == ["v1"] and made["status"]["acceptedNames"]["plural"] == "widgets"
    assert (await api.get(WIDGETS)).body["items"] == []
    aggregated = await api.get("/apis", accept=accept, if_none_match=tag)
    assert aggregated.status == 200
    group = next(item for item in aggregated.body["items"] if item["metadata"].get("name") == "demo.io")
    assert group["versions"][0]["resources"][0]["shortNames"] == ["wd"]
    assert (await api.get("/apis", accept=accept, if_none_match=aggregated.headers["etag"])).status == 304
    legacy = (await api.get("/apis/demo.io/v1")).body
    assert [entry["name"] for entry in legacy["resources"]] == ["widgets", "widgets/scale", "widgets/status"]
    assert (await api.get("/apis/demo.io/v9/widgets")).body == b"404 page not found\n"


async def test_defaults_pruning_and_validation(api: Api) -> None:
    await api.post(CRDS, crd())
    made = await api.post(WIDGETS, widget("a", junk=1, free={"any": {"thing": [1]}}) | {"status": {"replicas": 3}})
    assert made.status == 201 and made.warnings == ['unknown field "spec.junk"']
    assert made.body["spec"] == {"size": 1, "color": "red", "free": {"any": {"thing": [1]}}}
    assert "status" not in made.body and made.body["metadata"]["generation"] == 1
    bad = await api.post(WIDGETS, widget("b", size=11, color="green"))
    assert bad.status == 422
    assert [(cause["field"], cause["reason"]) for cause in bad.body["details"]["causes"]][:2] == [
        ("spec.color", "FieldValueNotSupported"),
        ("spec.size", "FieldValueInvalid"),
    ] or "spec.size in body should be less than or equal to 10" in bad.message
    wrong = await api.post(WIDGETS, widget("c") | {"kind": "Gadget"})
    assert wrong.status == 422 and 'kind: Invalid value: "Gadget": must be Widget' in wrong.message
    old = await api.post(WIDGETS, widget("c") | {"apiVersion": "demo.io/v2"})
    assert old.status == 400
    assert (await api.patch(f"{WIDGETS}/a", {"spec": {"size": 2}}, "strategic")).status == 415
    listed = (await api.get(WIDGETS)).body
    assert listed["kind"] == "WidgetList" and listed["items"][0]["kind"] == "Widget"


async def test_whole_numbers_are_told_as_such_however_they_were_written(api: Api) -> None:
    """Typed clients in Go read 1.0 into no integer; kube-apiserver never writes it."""

    async def spec_after(method: str, url: str, body: bytes, kind: str) -> str:
        response = await api.raw(method, url, body, content_type=kind)
        assert isinstance(response.body, bytes) and response.status < 300, response.body
        return msgspec.json.encode(msgspec.json.decode(response.body)["spec"]).decode()

    await api.post(CRDS, crd())
    head = b'{"apiVersion": "demo.io/v1", "kind": "Widget", "metadata": {"name": "w"}, '
    made = head + b'"spec": {"size": 1.0, "free": {"a": [2.50, 3e0]}}}'
    assert '"size":1,"free":{"a":[2.5,3]}' in await spec_after("POST", WIDGETS, made, "application/json")
    patch = b'{"spec":{"size":2.0}}'
    assert '"size":2,' in await spec_after("PATCH", f"{WIDGETS}/w", patch, "application/merge-patch+json")
    applied = head + b'"spec": {"size": 3.0}}'
    where = f"{WIDGETS}/w?fieldManager=t&force=true"
    assert '"size":3,' in await spec_after("PATCH", where, applied, "application/apply-patch+yaml")


async def test_transition_rules_see_the_old_object(api: Api) -> None:
    await api.post(CRDS, crd())
    await api.post(WIDGETS, widget("a", id="x"))
    changed = await api.patch(f"{WIDGETS}/a", {"spec": {"id": "y"}})
    assert changed.status == 422
    assert changed.message == 'Widget.demo.io "a" is invalid: spec.id: Invalid value: "y": id is immutable'


async def test_status_and_scale_are_doors_of_their_own(api: Api) -> None:
    await api.post(CRDS, crd())
    await api.post(WIDGETS, widget("a", replicas=2))
    reported = (await api.patch(f"{WIDGETS}/a/status", {"status": {"replicas": 2}, "spec": {"size": 9}})).body
    assert reported["status"] == {"replicas": 2} and reported["spec"]["size"] == 1
    assert reported["metadata"]["generation"] == 1
    scale = (await api.patch(f"{WIDGETS}/a/scale", {"spec": {"replicas": 4}})).body
    assert scale["spec"]["replicas"] == 4 and scale["status"]["replicas"] == 2
    assert (await api.get(f"{WIDGETS}/a")).body["metadata"]["generation"] == 2
    unversioned = await api.put(f"{WIDGETS}/a", widget("a"))
    assert unversioned.status == 422 and "metadata.resourceVersion: Invalid value: 0" in unversioned.message


async def test_objects_are_read_through_a_schema_that_changed_after_them(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    api = Api(server)
    await api.post(CRDS, crd())
    await api.post(WIDGETS, widget("a"))
    live = (await api.get(f"{CRDS}/widgets.demo.io")).body
    live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] = {
        "type": "string",
        "default": "round",
    }
    assert (await api.put(f"{CRDS}/widgets.demo.io", live)).status == 200
    assert (await api.get(f"{WIDGETS}/a")).body["spec"]["shape"] == "round"
    await server.stop()
    server = await start_server(tmp_path, keys)
    assert (await Api(server).get(f"{WIDGETS}/a")).body["spec"]["shape"] == "round"
    await server.stop()


async def test_removed_crd_takes_its_objects_and_waits_for_their_finalizers(api: Api) -> None:
    await api.post(CRDS, crd())
    await api.post(WIDGETS, widget("a"))
    held = widget("b")
    held["metadata"]["finalizers"] = ["example.io/hold"]
    await api.post(WIDGETS, held)
    watch = await api.watch(f"{WIDGETS}?resourceVersion={api.server.store.revision}")
    marked = (await api.delete(f"{CRDS}/widgets.demo.io")).body
    assert any(each["type"] == "Terminating" for each in marked["status"]["conditions"])
    outcome = {(event["object"]["metadata"]["name"], event["type"]) for event in await watch.take(2)}
    assert outcome == {("a", "DELETED"), ("b", "MODIFIED")}
    assert (await api.post(WIDGETS, widget("c"))).status == 405
    await api.patch(f"{WIDGETS}/b", {"metadata": {"finalizers": None}})
    assert (await watch.next())["type"] == "DELETED"
    async with asyncio.timeout(60):
        while (await api.get(f"{CRDS}/widgets.demo.io")).status != 404:
            await asyncio.sleep(0.01)
    assert await watch.ended()
    assert (await api.get(WIDGETS)).body == b"404 page not found\n"


async def test_two_versions_serve_the_same_objects(api: Api) -> None:
    one = crd()["spec"]["versions"][0]
    two = one | {"name": "v2", "storage": False, "deprecated": True}
    await api.post(CRDS, crd(versions=[one, two]))
    await api.post(WIDGETS, widget("a"))
    other = await api.get("/apis/demo.io/v2/namespaces/default/widgets/a")
    assert other.body["apiVersion"] == "demo.io/v2" and other.body["spec"] == {"size": 1, "color": "red"}
    written = await api.patch("/apis/demo.io/v2/namespaces/default/widgets/a", {"spec": {"size": 2}})
    assert written.warnings == ["demo.io/v2 Widget is deprecated"]
    assert (await api.get(f"{WIDGETS}/a")).body["spec"]["size"] == 2


async def test_second_crd_with_the_same_kind_is_not_accepted(api: Api) -> None:
    await api.post(CRDS, crd())
    twin = crd(names={"kind": "Widget", "plural": "gadgets", "singular": "gadget"})
    twin["metadata"]["name"] = "gadgets.demo.io"
    conditions = (await api.post(CRDS, twin)).body["status"]["conditions"]
    accepted = next(each for each in conditions if each["type"] == "NamesAccepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "KindConflict")
    assert (await api.get("/apis/demo.io/v1/gadgets")).status == 404
