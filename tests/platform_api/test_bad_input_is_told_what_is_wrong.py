"""Whatever comes in, an answer goes out that says what is wrong, all of it, and nothing is half made."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
from yarl import URL

from .conftest import OPERATOR, Front

CLUSTERS = "/api/v0/clusters"


def fields(answer: dict[str, Any]) -> set[str]:
    return {fault["field"] for fault in answer["errors"]}


async def test_every_fault_of_a_cluster_is_named_at_once(front: Front) -> None:
    spec = {
        "platfrom": {},
        "platform": {"type": "Azure"},
        "release": {"version": "four"},
        "networking": {"clusterNetwork": [{"cidr": "10.0.0.0"}]},
        "tags": {"a": 1},
        "properties": "none",
    }
    status, answer = await front.call("POST", CLUSTERS, {"name": "Not_A_Name_And_Too_Long", "spec": spec, "extra": 1})
    assert (status, answer["code"]) == (400, "invalid-request")
    assert fields(answer) == {
        "name",
        "extra",
        "spec.platfrom",
        "spec.platform.type",
        "spec.release.version",
        "spec.networking.clusterNetwork[0].cidr",
        "spec.tags.a",
        "spec.properties",
    }
    messages = {fault["field"]: fault["message"] for fault in answer["errors"]}
    assert "did you mean platform?" in messages["spec.platfrom"]
    assert "AWS, None" in messages["spec.platform.type"]
    assert (await front.accept("GET", CLUSTERS))["total"] == 0


async def test_names_that_are_none(front: Front) -> None:
    short, dashes = ("", "a", "ab"), ("-abc", "abc-", "-")
    others = ("ABC", "a b", "a.b", "x" * 19, "abc\n", "äöü", "a_b", "../x", "x\u0000y")
    for name in (*short, *dashes, *others):
        assert await front.refuse("POST", CLUSTERS, {"name": name}) == (400, "invalid-request"), name


async def test_names_that_are(front: Front) -> None:
    for name in ("abc", "a-1", "x" * 18, "007"):
        assert (await front.call("POST", CLUSTERS, {"name": name}))[0] == 201


BODIES = (
    b"",
    b"   ",
    b"null",
    b"[]",
    b'"text"',
    b"1",
    b"{",
    b'{"name": }',
    b"\xff\xfe",
    b'{"name": "\xff"}',
    b'{"name": NaN}',
    b"[" * 100_000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'{"name": "demo", "spec": {"tags": {"a": 1e400}}}',
    b'{"name": "demo", "spec": {"properties": {"a\\u0000": "b"}}}',
    b'{"name": "demo", "spec": null}',
    b'{"name": null}',
    b'{"name": ["demo"]}',
    b'{"name": "demo", "labels": {"a": null}}',
    b'{"name": "demo", "labels": {"not a label!": "b"}}',
    b'{"name": "\\ud800demo"}',
)


async def test_bodies_that_are_none(front: Front) -> None:
    for raw in BODIES:
        assert await front.refuse("POST", CLUSTERS, raw=raw) == (400, "invalid-request"), raw[:50]


async def test_bodies_have_a_limit(front: Front) -> None:
    large = json.dumps({"name": "demo", "spec": {"properties": {"a": "x" * (1 << 20)}}}).encode()
    assert await front.refuse("POST", CLUSTERS, raw=large) == (413, "request-too-large")
    many = {str(number): "x" for number in range(60)}
    status, answer = await front.call("POST", CLUSTERS, {"name": "demo", "spec": {"tags": many}})
    assert (status, fields(answer)) == (400, {"spec.tags"})
    wrong = {f"field{number}": 1 for number in range(1000)}
    status, answer = await front.call("POST", CLUSTERS, {"name": "demo", **wrong})
    assert (status, len(answer["errors"])) == (400, 50)


async def test_a_body_of_another_kind(front: Front) -> None:
    for media in ("text/xml", "multipart/form-data; boundary=x", "text/plain", "application/jsonx"):
        refused = await front.refuse("POST", CLUSTERS, {"name": "demo"}, headers={"Content-Type": media})
        assert refused == (415, "unsupported-media-type")


async def test_a_packed_body(front: Front) -> None:
    for packed in ("gzip", "deflate", "br", "gzip, gzip"):
        refused = await front.refuse("POST", CLUSTERS, {"name": "demo"}, headers={"Content-Encoding": packed})
        assert refused == (415, "unsupported-media-type")


QUERIES = ("?name=%00", "?name=%ff", "?name=", "?limit=%00", "?limit=１", "?offset=" + "9" * 5000, "?name=a&name=b")


async def test_queries_that_make_no_sense_find_nothing_and_break_nothing(front: Front) -> None:
    for query in QUERIES:
        assert (await front.accept("GET", CLUSTERS + query))["total"] == 0
    for query in ("?%00=1", "?x=1", "?Limit=1", "?=1"):
        assert await front.refuse("GET", CLUSTERS + query) == (400, "invalid-request")
    for cluster_id in ("%00", "..%2faccounts", "x" * 3000, "demo"):
        assert await front.refuse("GET", f"/api/v0/nodepools?clusterId={cluster_id}") == (404, "not-found")


async def test_a_body_that_is_json_whatever_tools_call_it(front: Front) -> None:
    for number, media in enumerate(("", "application/json; charset=utf-8", "application/x-www-form-urlencoded")):
        headers = {"Content-Type": media} if media else {}
        assert (await front.call("POST", CLUSTERS, {"name": f"demo-{number}"}, headers=headers))[0] == 201


PATHS = (
    ("GET", "/", (404, "not-found")),
    ("GET", "/api/v0", (404, "not-found")),
    ("GET", "/api/v0/clusters/", (404, "not-found")),
    ("GET", "/api/v0//clusters", (404, "not-found")),
    ("GET", "/api/v0/clusters/../accounts", (404, "not-found")),
    ("GET", "/api/v0/%2e%2e/v0/clusters", (404, "not-found")),
    ("GET", "/api/v0/clusters%2f", (404, "not-found")),
    ("GET", "/api/v1/clusters", (404, "not-found")),
    ("DELETE", "/api/v0/clusters", (405, "method-not-allowed")),
    ("POST", "/api/v0/live", (405, "method-not-allowed")),
    ("PATCH", "/api/v0/nodepools", (405, "method-not-allowed")),
)


async def test_paths_and_methods_that_are_none(front: Front) -> None:
    async with aiohttp.ClientSession() as session:
        for method, path, expected in PATHS:
            async with session.request(method, URL(front.url + path, encoded=True)) as answer:
                body = await answer.json()
            assert (answer.status, body["code"]) == expected, path
            assert answer.status != 405 or answer.headers["Allow"]


POOLS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"replicas": -1}, "spec.replicas"),
    ({"replicas": 501}, "spec.replicas"),
    ({"replicas": 1.5}, "spec.replicas"),
    ({"replicas": True}, "spec.replicas"),
    ({"replicas": 10**30}, "spec.replicas"),
    ({"autoScaling": {"min": 1}}, "spec.autoScaling.max"),
    ({"autoScaling": {"min": 3, "max": 2}}, "spec.autoScaling.min"),
    ({"replicas": 1, "autoScaling": {"min": 1, "max": 2}}, "spec.replicas"),
    ({"taints": [{"key": "a"}]}, "spec.taints[0].effect"),
)


async def test_node_pools_that_make_no_sense(front: Front) -> None:
    cluster = await front.accept("POST", CLUSTERS, {"name": "demo"})
    for spec, field in POOLS:
        body = {"cluster_id": cluster["id"], "name": "workers", "spec": spec}
        status, answer = await front.call("POST", "/api/v0/nodepools", body)
        assert (status, fields(answer)) == (400, {field})
    assert (await front.accept("GET", "/api/v0/nodepools"))["total"] == 0


async def test_what_no_manifest_can_say_is_refused(front: Front) -> None:
    specs: tuple[tuple[dict[str, Any], str], ...] = (
        ({"displayName": "a\u007fb"}, "spec.displayName"),
        ({"tags": {"team": "\u0085"}}, "spec.tags.team"),
        ({"properties": {"k" * 1025: "v"}}, f"spec.properties.{'k' * 100}"),
        ({"platform": {"type": "AWS", "aws": {"deep": [{"er": "\uffff"}]}}}, "spec.platform.aws.deep[0].er"),
    )
    made = await front.accept("POST", CLUSTERS, {"name": "there"})
    for spec, field in specs:
        for method, path, body in (
            ("POST", CLUSTERS, {"name": "demo", "spec": spec}),
            ("PATCH", f"{CLUSTERS}/{made['id']}", {"spec": spec}),
        ):
            status, answer = await front.call(method, path, body)
            assert (status, answer["code"], fields(answer)) == (400, "invalid-request", {field})
    assert (await front.accept("GET", CLUSTERS))["total"] == 1


async def test_a_node_pool_needs_a_cluster(front: Front) -> None:
    for cluster_id in ("00000000-0000-7000-8000-000000000000", "demo", "../x", "/", "\u0002/", "a/../b", "?x"):
        body = {"cluster_id": cluster_id, "name": "workers"}
        assert await front.refuse("POST", "/api/v0/nodepools", body) == (404, "not-found")


async def test_accounts_that_are_none(front: Front) -> None:
    for account in ("", "12345", "1234567890123", "abcdefghijkl", "１２３４５６７８９０１２"):
        refused = await front.refuse("POST", "/api/v0/accounts", {"accountId": account}, account=OPERATOR)
        assert refused == (400, "invalid-request")


async def test_a_region_that_cannot_answer_says_so(front: Front) -> None:
    assert await front.refuse("GET", "/api/v0/resource_bundles", account=OPERATOR) == (502, "maestro-error")
