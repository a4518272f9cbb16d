"""Lists, pages, selectors, watches: one order, one revision, nothing lost between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .harness import Api, config_map, start_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def _fill(api: Api, count: int, **metadata: object) -> None:
    for number in range(count):
        await api.post(CONFIG_MAPS, config_map(f"c{number}", **metadata))


async def test_list_is_ordered_complete_and_lean(api: Api) -> None:
    assert (await api.get("/api/v1/namespaces/nowhere/configmaps")).body["items"] == []
    for name in ("b", "a", "c"):
        await api.post(CONFIG_MAPS, config_map(name))
    listed = (await api.get(CONFIG_MAPS)).body
    assert listed["kind"] == "ConfigMapList" and listed["apiVersion"] == "v1"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b", "c"]
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    assert listed["metadata"]["resourceVersion"] == str(api.server.store.revision)


async def test_pages_agree_with_each_other_although_the_world_moves(api: Api) -> None:
    await _fill(api, 5)
    first = (await api.get(f"{CONFIG_MAPS}?limit=2")).body
    assert first["metadata"]["remainingItemCount"] == 3
    await api.delete(f"{CONFIG_MAPS}/c3")
    await api.post(CONFIG_MAPS, config_map("c31"))
    await api.patch(f"{CONFIG_MAPS}/c4", {"data": {"new": "1"}})
    token = first["metadata"]["continue"]
    rest = (await api.get(f"{CONFIG_MAPS}?limit=10&continue={token}")).body
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c2", "c3", "c4"]
    assert not rest["items"][-1].get("data") and "continue" not in rest["metadata"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert (await api.get(f"{CONFIG_MAPS}?continue=%%%")).status == 400
    assert (await api.get(f"{CONFIG_MAPS}?continue={token}&resourceVersion=5")).status == 400


async def test_exact_old_and_future_revisions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await _fill(api, 2)
    then = api.server.store.revision
    await _fill_more(api)
    past = (await api.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).body
    assert [item["metadata"]["name"] for item in past["items"]] == ["c0", "c1"]
    assert past["metadata"]["resourceVersion"] == str(then)
    monkeypatch.setattr("regional.kube.apiserver.reads.PATIENCE", 0.1)
    future = await api.get(f"{CONFIG_MAPS}?resourceVersion={then + 1000}")
    assert future.status == 504
    assert future.message == f"Timeout: Too large resource version: {then + 1000}, current: {then + 1}"
    for bad in ("resourceVersionMatch=Exact", "resourceVersion=0&resourceVersionMatch=Exact", "sendInitialEvents=true"):
        assert (await api.get(f"{CONFIG_MAPS}?{bad}")).status == 422
    assert (await api.get(f"{CONFIG_MAPS}?resourceVersion=abc")).status == 400


async def _fill_more(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("later"))


async def test_label_and_field_selectors(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a", labels={"tier": "front", "n": "3"}))
    await api.post(CONFIG_MAPS, config_map("b", labels={"tier": "back"}))
    await api.post(CONFIG_MAPS, config_map("c"))

    async def names(query: str) -> str:
        listed = await api.get(f"{CONFIG_MAPS}?{query}")
        return "".join(item["metadata"]["name"] for item in listed.body["items"])

    for selector, expected in {
        "tier%3Dfront": "a",
        "tier%3D%3Dfront": "a",
        "tier!%3Dfront": "bc",
        "tier": "ab",
        "!tier": "c",
        "tier in (front,back)": "ab",
        "tier notin (front)": "bc",
        "n>2": "a",
        "n<2": "",
        "tier,n": "a",
    }.items():
        assert await names(f"labelSelector={selector}") == expected, selector
    assert await names("fieldSelector=metadata.name%3Db") == "b"
    assert await names("fieldSelector=metadata.name!%3Db,metadata.namespace%3Ddefault") == "ac"
    for bad in (
        "labelSelector=a b",
        "labelSelector=a%3D(",
        "labelSelector=,",
        "labelSelector=a in b",
        "labelSelector=-%3D-",
    ):
        refused = await api.get(f"{CONFIG_MAPS}?{bad}")
        assert (refused.status == 400 and "expected: " in refused.message) or "Invalid value" in refused.message, bad
    unknown = await api.get(f"{CONFIG_MAPS}?fieldSelector=data.k%3D1")
    assert unknown.message == '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"'
    pods = await api.get("/api/v1/pods?fieldSelector=spec.x%3D1")
    assert pods.message == "field label not supported: spec.x"


async def test_events_are_found_by_the_object_they_are_about(api: Api) -> None:
    for number in range(3):
        reference = {"kind": "Pod", "namespace": "default", "name": "p", "uid": f"u{number}"}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e{number}"},
            "involvedObject": reference,
            "reason": "Started",
            "type": "Normal",
            "source": {"component": "kubelet"},
        }
        assert (await api.post("/api/v1/namespaces/default/events", body)).status == 201
    found = await api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3Du1,type%3DNormal")
    assert [item["metadata"]["name"] for item in found.body["items"]] == ["e1"]
    renamed = await api.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.uid%3Du2")
    assert [item["regarding"]["uid"] for item in renamed.body["items"]] == ["u2"]


async def test_watch_from_a_list_sees_everything_after_it(api: Api) -> None:
    await _fill(api, 1)
    revision = (await api.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"]
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={revision}")
    await asyncio.gather(*(api.post(CONFIG_MAPS, config_map(f"n{number}")) for number in range(200)))
    events = await watch.take(200)
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert {event["type"] for event in events} == {"ADDED"}
    assert revisions == sorted(set(revisions)) and revisions[0] > int(revision)
    assert all(event["object"]["kind"] == "ConfigMap" for event in events)
    await watch.close()


async def test_watch_resumes_from_the_ring_and_refuses_what_is_too_old(api: Api) -> None:
    await _fill(api, 1)
    start = api.server.store.revision
    await api.patch(f"{CONFIG_MAPS}/c0", {"data": {"a": "1"}})
    await api.delete(f"{CONFIG_MAPS}/c0")
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={start}")
    modified, deleted = await watch.take(2)
    assert (modified["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    assert deleted["object"]["data"] == {"a": "1"}
    assert int(deleted["object"]["metadata"]["resourceVersion"]) == start + 2
    await watch.close()
    api.server.store.shelf("configmaps").floor = start
    late = await api.watch(f"{CONFIG_MAPS}?resourceVersion=1")
    error = await late.next()
    assert error["type"] == "ERROR" and error["object"]["code"] == 410 and error["object"]["reason"] == "Expired"
    assert error["object"]["message"] == f"too old resource version: 1 ({start})"
    assert await late.ended()


async def test_object_that_leaves_the_selection_is_deleted_with_its_old_content(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a", {"v": "old"}, labels={"in": "yes"}))
    watch = await api.watch(f"{CONFIG_MAPS}?labelSelector=in%3Dyes")
    assert (await watch.next())["type"] == "ADDED"
    left = (await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "no"}}, "data": {"v": "new"}})).body
    gone = await watch.next()
    assert gone["type"] == "DELETED" and gone["object"]["data"] == {"v": "old"}
    assert gone["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "yes"}}})
    assert (await watch.next())["type"] == "ADDED"
    await watch.close()


async def test_streaming_list_ends_with_the_annotated_bookmark_even_when_empty(api: Api) -> None:
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    empty = await api.watch(f"/api/v1/namespaces/default/secrets?{query}")
    end = await empty.next()
    revision = str(api.server.store.revision)
    assert end == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Secret",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}},
        },
    }
    await empty.close()
    await _fill(api, 2)
    full = await api.watch(f"{CONFIG_MAPS}?{query}")
    assert [event["type"] for event in await full.take(3)] == ["ADDED", "ADDED", "BOOKMARK"]
    await full.close()
    assert (await api.get(f"{CONFIG_MAPS}?watch=true&sendInitialEvents=true")).status == 422


async def test_watch_says_goodbye_with_a_bookmark_and_ends_on_time(api: Api) -> None:
    watch = await api.watch(f"{CONFIG_MAPS}?timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=1")
    assert (await watch.next())["type"] == "BOOKMARK"
    assert await watch.ended()


async def test_watcher_that_falls_behind_is_closed_not_skipped(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regional.kube.apiserver.shelf.Mailbox.__init__.__defaults__", (3,))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={api.server.store.revision}")
    await _fill(api, 6)
    assert [event["object"]["metadata"]["name"] for event in await watch.take(3)] == ["c0", "c1", "c2"]
    assert await watch.ended()


async def test_streams_carry_nothing_but_ascii(api: Api) -> None:
    text = "line\u2028sep\u0085\x0b grün 😀"
    watch = await api.raw("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion={api.server.store.revision}")
    await api.post(CONFIG_MAPS, config_map("a", {"text": text}))
    assert not isinstance(watch.body, bytes)
    chunk = await anext(watch.body)
    assert chunk.isascii() and len(chunk.splitlines()) == 1
    import msgspec

    assert msgspec.json.decode(chunk)["object"]["data"]["text"] == text
    await watch.body.aclose()  # type: ignore[attr-defined]


async def test_tables_and_partial_metadata_by_accept(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    table = (await api.get(CONFIG_MAPS, accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")).body
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    partial = (await api.get(CONFIG_MAPS, accept=accept)).body
    assert partial["kind"] == "PartialObjectMetadataList"
    assert "data" not in partial["items"][0] and partial["items"][0]["metadata"]["name"] == "a"
    watch = await api.watch(CONFIG_MAPS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    first = await watch.next()
    await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}})
    second = await watch.next()
    assert first["object"]["columnDefinitions"] and second["object"]["columnDefinitions"] is None
    await watch.close()


async def test_restart_keeps_objects_revisions_and_the_ring(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    api = Api(server)
    await _fill(api, 3, labels={"in": "yes"})
    seen = server.store.revision
    await api.patch(f"{CONFIG_MAPS}/c1", {"metadata": {"labels": {"in": "no"}}})
    await api.delete(f"{CONFIG_MAPS}/c2")
    before = (await api.get(CONFIG_MAPS)).body
    await server.stop()

    server = await start_server(tmp_path, keys)
    api = Api(server)
    after = (await api.get(CONFIG_MAPS)).body
    assert after["items"] == before["items"]
    assert int(after["metadata"]["resourceVersion"]) >= int(before["metadata"]["resourceVersion"])
    watch = await api.watch(f"{CONFIG_MAPS}?labelSelector=in%3Dyes&resourceVersion={seen}")
    events = await watch.take(2)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("DELETED", "c1"),
        ("DELETED", "c2"),
    ]
    await watch.close()
    await server.stop()
