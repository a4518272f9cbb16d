"""Watches: nothing missed, nothing twice, an end that clients understand."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from .objects import Custom, config_map
from .servers import Cluster
from .test_lists import forbidden
from .wire import PATIENCE, Http, Obj, Watch

STREAMING = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def revision(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def collected(watch: Watch) -> list[Obj]:
    """Every event until the stream ends."""
    events: list[Obj] = []
    async with asyncio.timeout(PATIENCE):
        while line := await watch.line():
            events.append(msgspec.json.decode(line))
    return events


@pytest.mark.check(74)
async def test_a_watch_without_a_revision_begins_with_what_is_there(http: Http, config_maps: str) -> None:
    for name in ("b", "a"):
        (await http.post(config_maps, config_map(name))).ok(201)
    for query in ("", "?resourceVersion=0"):
        async with http.watch(config_maps + query) as watch:
            assert watch.status == 200
            assert watch.headers["content-type"] == "application/json"
            assert watch.headers.get("transfer-encoding") == "chunked"
            events = await watch.take(3)
            assert {event["type"] for event in events} == {"ADDED"}
            assert {event["object"]["metadata"]["name"] for event in events} == {"a", "b", "kube-root-ca.crt"}
            assert all(event["object"]["kind"] == "ConfigMap" for event in events)
            assert all(event["object"]["apiVersion"] == "v1" for event in events)
            (await http.patch(f"{config_maps}/a", {"data": {"x": query or "none"}})).ok(200)
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "a")


@pytest.mark.check(75)
async def test_a_watch_from_a_lists_revision_misses_nothing(http: Http, config_maps: str) -> None:
    count, writers = 1000, 8
    written: dict[str, int] = {}

    async def write(first: int) -> None:
        for number in range(first, count, writers):
            body = (await http.post(config_maps, config_map(f"w{number}"))).ok(201)
            written[body["metadata"]["name"]] = revision(body)

    writing = [asyncio.create_task(write(first)) for first in range(writers)]
    try:
        while len(written) < 100:
            await asyncio.sleep(0.01)
        listed = (await http.get(config_maps)).ok(200)
        known = {item["metadata"]["name"]: revision(item) for item in listed["items"]}
        seen: list[int] = []
        async with http.watch(f"{config_maps}?resourceVersion={listed['metadata']['resourceVersion']}") as watch:
            while len(known) < count + 1:  # and the root CA's
                event = await watch.next()
                assert event["type"] == "ADDED"
                assert event["object"]["metadata"]["name"] not in known
                known[event["object"]["metadata"]["name"]] = revision(event["object"])
                seen.append(revision(event["object"]))
        assert seen == sorted(seen)
    finally:
        await asyncio.gather(*writing)
    assert written.items() <= known.items()


@pytest.mark.check(76)
async def test_who_leaves_the_selection_is_deleted_for_it(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("x", {"k": "old"}, labels={"on": "yes"}))).ok(201)
    begin = revision(made)
    left = (await http.patch(f"{config_maps}/x", {"metadata": {"labels": {"on": "no"}}, "data": {"k": "new"}})).ok()
    back = (await http.patch(f"{config_maps}/x", {"metadata": {"labels": {"on": "yes"}}})).ok(200)
    changed = (await http.patch(f"{config_maps}/x", {"data": {"k": "newer"}})).ok(200)
    (await http.delete(f"{config_maps}/x")).ok(200)
    async with http.watch(f"{config_maps}?labelSelector=on%3Dyes&resourceVersion={begin}") as watch:
        events = await watch.take(4)
    assert [event["type"] for event in events] == ["DELETED", "ADDED", "MODIFIED", "DELETED"]
    gone, again, modified, deleted = (event["object"] for event in events)
    # The content is the last one that matched; the revision is that of the write that ended it.
    assert (gone["data"], gone["metadata"]["labels"]) == ({"k": "old"}, {"on": "yes"})
    assert revision(gone) == revision(left)
    assert again == back and modified == changed
    assert deleted["data"] == {"k": "newer"}
    assert revision(deleted) > revision(changed)


@pytest.mark.check(77)
async def test_a_streamed_list_announces_its_end_also_when_empty(http: Http) -> None:
    async with http.watch(f"/api/v1/namespaces/there-is-none/configmaps?{STREAMING}") as watch:
        event = await watch.next()
    seen = event["object"]["metadata"].pop("resourceVersion")
    assert (
        event
        == {
            "type": "BOOKMARK",
            "object": {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {"annotations": {"k8s.io/initial-events-end": "true"}},
            },
        }
        or event["object"].pop("data", None) is None
    )
    assert int(seen) > 0


@pytest.mark.check(77)
async def test_a_streamed_list_comes_before_its_bookmark(http: Http, config_maps: str, widgets: Custom) -> None:
    made = (await http.post(config_maps, config_map("a"))).ok(201)
    async with http.watch(f"{config_maps}?{STREAMING}") as watch:
        first, second, end = await watch.take(3)
        assert {first["object"]["metadata"]["name"], second["object"]["metadata"]["name"]} == {"a", "kube-root-ca.crt"}
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert revision(end["object"]) >= revision(made)
        (await http.post(config_maps, config_map("later"))).ok(201)
        assert (await watch.next())["object"]["metadata"]["name"] == "later"
    async with http.watch(f"{widgets.path}?{STREAMING}") as watch:
        end = await watch.next()
        assert (end["type"], end["object"]["kind"]) == ("BOOKMARK", "Widget")
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.check(78)
@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ],
)
async def test_a_streamed_list_says_which_revision_it_wants(http: Http, config_maps: str, query: str, why: str) -> None:
    message, details = forbidden("resourceVersionMatch", why)
    (await http.get(f"{config_maps}?watch=true&{query}")).refused(422, "Invalid", message, details)


@pytest.mark.check(79, 81)
async def test_a_watch_ends_in_time_after_a_last_bookmark(http: Http, config_maps: str) -> None:
    listed = (await http.get(config_maps)).ok(200)
    since = listed["metadata"]["resourceVersion"]
    query = f"resourceVersion={since}&allowWatchBookmarks=true&timeoutSeconds=4"
    # The real server sends one only if it has seen a change of the kind, and on a busy machine it may miss the moment.
    for _ in range(8):
        async with http.watch(f"{config_maps}?{query}") as watch:
            elsewhere = {"metadata": {"generateName": "elsewhere-"}}
            (await http.post("/api/v1/namespaces/default/configmaps", elsewhere)).ok(201)
            events = await collected(watch)
        if events:
            break
    assert events and {event["type"] for event in events} == {"BOOKMARK"}
    for event in events:
        metadata = event["object"]["metadata"]
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("ConfigMap", "v1")
        assert int(metadata["resourceVersion"]) >= int(since)
        assert metadata.get("name") is None


@pytest.mark.check(80)
async def test_a_watch_from_too_long_ago_ends_with_an_error_event(own_cluster: Cluster) -> None:
    """A restarted server may have forgotten; then it says so inside the stream, and ends it."""
    path = "/api/v1/namespaces/default/configmaps"
    http = Http(own_cluster)
    try:
        await http.until(f"{path}/kube-root-ca.crt", lambda found: found.status == 200)
        (await http.post(path, config_map("before"))).ok(201)
        await http.close()
        await asyncio.to_thread(own_cluster.kill)
        await asyncio.to_thread(own_cluster.start)
        http = Http(own_cluster)
        async with http.watch(f"{path}?resourceVersion=1&timeoutSeconds=30") as watch:
            assert watch.status == 200
            event = await watch.next()
            if event["type"] != "ERROR":  # it remembers all: then from the first object on
                assert event["type"] == "ADDED" and event["object"]["metadata"]["name"] == "kube-root-ca.crt"
                return
            assert await watch.ended()
        status = event["object"]
        current = status["message"].rpartition("(")[2]
        assert status == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"too old resource version: 1 ({current}",
            "reason": "Expired",
            "code": 410,
        }
    finally:
        await http.close()


@pytest.mark.check(81)
async def test_a_watch_without_bookmarks_just_ends(http: Http, config_maps: str) -> None:
    async with http.watch(f"{config_maps}?fieldSelector=metadata.name=none&timeoutSeconds=1") as watch:
        assert watch.status == 200
        assert await watch.ended()


@pytest.mark.check(84, 86)
async def test_a_watch_goes_on_over_a_restart(own_cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    http = Http(own_cluster)
    try:
        await http.until("/api/v1/namespaces/default/configmaps/kube-root-ca.crt", lambda found: found.status == 200)
        last = revision((await http.post(path, config_map("before"))).ok(201))
        async with http.watch(f"{path}?resourceVersion={last}") as watch:
            await asyncio.to_thread(own_cluster.kill)
            with pytest.raises((Exception, AssertionError)):  # however the cut shows itself
                while await watch.line():
                    pass
                raise ConnectionError
        await http.close()
        await asyncio.to_thread(own_cluster.start)
        http = Http(own_cluster)
        kept = (await http.get(f"{path}/before")).ok(200)
        assert revision(kept) == last
        next_one = (await http.post(path, config_map("after"))).ok(201)
        assert revision(next_one) > last
        # Who retries from the last revision it saw misses nothing, or is told to list again.
        async with http.watch(f"{path}?resourceVersion={last}") as watch:
            event = await watch.next()
            if event["type"] == "ERROR":
                assert event["object"]["reason"] == "Expired"
            else:
                assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "after")
    finally:
        await http.close()


@pytest.mark.check(74)
async def test_the_old_watch_paths_and_one_object(http: Http, config_maps: str, namespace: str) -> None:
    (await http.post(config_maps, config_map("one"))).ok(201)
    (await http.post(config_maps, config_map("two"))).ok(201)
    for number, path in enumerate(
        (
            f"{config_maps}?fieldSelector=metadata.name=one&watch=true",
            f"/api/v1/watch/namespaces/{namespace}/configmaps/one?x=y",
        )
    ):
        async with http.watch(path) as watch:
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "one")
            for name in ("two", "one"):
                (await http.patch(f"{config_maps}/{name}", {"data": {"n": str(number)}})).ok(200)
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "one")
