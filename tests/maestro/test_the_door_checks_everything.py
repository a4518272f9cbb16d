"""Bad input over HTTP: the contract's code, every fault at once, nothing half-made, and never a 500."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.maestro.client import MaestroClient, MaestroError
from regional.maestro.server.admission import new_bundle
from regional.maestro.server.refusals import Refusal
from tests.maestro.harness import Document, Maestro, config_map

BUNDLES = "/resource-bundles"


class Door:
    def __init__(self, client: MaestroClient, session: aiohttp.ClientSession) -> None:
        self.client, self._session = client, session

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Document]:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        base = self.client.base_url
        async with self._session.request(method, f"{base}{path}", data=content, headers=headers) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if text else {}


@pytest.fixture
async def door(maestro: Maestro) -> AsyncIterator[Door]:
    async with maestro.server() as client, aiohttp.ClientSession() as session:
        await client.create_consumer("mc01")
        yield Door(client, session)


def good(**changes: Any) -> Document:
    return {"consumer_name": "mc01", "manifests": [config_map("a")], **changes}


async def test_every_fault_of_a_bundle_is_named_at_once(door: Door) -> None:
    body = {
        "consumer_name": 7,
        "id": "Not An Id",
        "name": "Not_a_name",
        "source": "",
        "colour": "red",
        "metadata": {"name": 5, "labels": {"-bad": "x", "ok": "not ok!"}, "annotations": {"a": 1}},
        "manifests": [
            {"kind": "ConfigMap", "metadata": {"name": "a", "generateName": "b", "namespace": "Bad"}},
            "text",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": 1}}},
            config_map("twice"),
            config_map("twice"),
        ],
        "delete_option": {"propagationPolicy": "Never"},
        "manifest_configs": [{"updateStrategy": {"type": "Guess"}}, 3],
    }
    status, answer = await door("POST", BUNDLES, body)
    assert (status, answer["code"], answer["kind"]) == (400, "maestro-8", "Error")
    for said in (
        "consumer_name is not valid",
        "id is neither",
        "name is not a DNS name",
        "source is not",
        "colour is not a known field",
        "metadata.name is not",
        "'-bad' is not a label's key",
        "'not ok!' is not a label's value",
        "metadata.annotations is not",
        "manifests[0].apiVersion is required",
        "manifests[0].metadata.generateName must not be set",
        "manifests[0].metadata.namespace is not a DNS label",
        "manifests[1] is not an object",
        "manifests[2].metadata.name is required",
        "manifests[2].metadata.labels is not",
        "manifests[4] is the same object as manifests[3]",
        "propagationPolicy 'Never'",
        "manifest_configs[0]",
        "updateStrategy.type 'Guess'",
        "manifest_configs[1]",
    ):
        assert said in answer["reason"], said
    assert (await door.client.list_bundles())["total"] == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "maestro-8"),
        (b"{", "maestro-17"),
        (b"[]", "maestro-17"),
        (b'"text"', "maestro-17"),
        (b"\xff\xfe", "maestro-17"),
        (b'{"manifests": "\\ud800"}', "maestro-17"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "maestro-17"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "maestro-8"),
        (b'{"consumer_name": "mc01\\u0000", "manifests": []}', "maestro-8"),
        (b"a=b&c=d", "maestro-17"),
    ],
)
async def test_what_is_not_a_bundle_is_a_400(door: Door, body: bytes, code: str) -> None:
    for path in (BUNDLES, "/consumers"):
        status, answer = await door("POST", path, body)
        if path == BUNDLES:
            assert (status, answer["code"]) == (400, code)
        assert status in (201, 400)


async def test_a_bundle_that_no_message_carries_is_refused_with_the_limit(door: Door) -> None:
    status, answer = await door("POST", BUNDLES, good(manifests=[config_map("a", {"x": "y" * 131_072})]))
    assert status == 400 and "131072" in answer["reason"] and "message" in answer["reason"]
    status, answer = await door("POST", BUNDLES, good(metadata={"annotations": {"a": "b" * 40_000}}))
    assert status == 400 and "metadata has" in answer["reason"]
    status, answer = await door("POST", BUNDLES, b" " * 900_000)
    assert status == 400 and "bytes" in answer["reason"]

    overhead = len(json.dumps({"manifests": [config_map("a", {"x": ""})]}, separators=(",", ":")))
    most = config_map("a", {"x": "y" * (131_072 - overhead)})
    status, made = await door("POST", BUNDLES, good(manifests=[most]))
    assert status == 201
    grown = config_map("a", {"x": "y" * (131_073 - overhead)})
    status, answer = await door("PATCH", f"{BUNDLES}/{made['id']}", {"manifests": [grown]})
    assert status == 400 and (await door.client.get_bundle(made["id"]))["version"] == 1


async def test_the_largest_bundle_travels(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        overhead = len(json.dumps({"manifests": [config_map("a", {"x": ""})]}, separators=(",", ":")))
        most = config_map("a", {"x": "y" * (131_072 - overhead)})
        made = await client.create_bundle("mc01", [most], metadata={"annotations": {"a": "b" * 30_000}})
        event = await agent.next(subresource="spec")
        assert (event.resource_id, len(event.data)) == (made["id"], 131_072)


async def test_an_unknown_consumer_is_named(door: Door) -> None:
    status, answer = await door("POST", BUNDLES, good(consumer_name="mc99"))
    assert (status, answer["code"]) == (404, "maestro-7") and "mc99" in answer["reason"]


async def test_asking_twice_for_the_same_bundle_makes_one(door: Door) -> None:
    first = await door("POST", BUNDLES, good(name="work"))
    second = await door("POST", BUNDLES, good(name="work"), **{"X-Request-Id": "another"})
    assert (first[0], second[0]) == (201, 200)
    assert (first[1]["id"], first[1]["version"]) == (second[1]["id"], second[1]["version"])
    status, answer = await door("POST", BUNDLES, good(name="work", manifests=[config_map("b")]))
    assert (status, answer["code"]) == (409, "maestro-6")
    status, answer = await door("POST", BUNDLES, good(id=first[1]["id"], name="other"))
    assert (status, answer["code"]) == (409, "maestro-6")


async def test_a_patch_is_a_compare_and_swap_if_it_wants_to_be(door: Door) -> None:
    made = await door.client.create_bundle("mc01", [config_map("a")])
    path = f"{BUNDLES}/{made['id']}"
    status, answer = await door("PATCH", path, {"version": 1, "manifests": [config_map("b")]})
    assert (status, answer["version"]) == (200, 2)
    status, answer = await door("PATCH", path, {"version": 1, "manifests": [config_map("c")]})
    assert (status, answer["code"]) == (409, "maestro-6") and "latest version: 2" in answer["reason"]
    status, answer = await door("PATCH", path, {"manifests": [config_map("b")]}, **{"X-Request-Id": "again"})
    assert (status, answer["version"]) == (200, 2)
    status, answer = await door("PATCH", path, {"manifests": [], "nonsense": 1, "metadata": []})
    assert status == 400
    assert all(said in answer["reason"] for said in ("at least one", "nonsense", "metadata is not valid"))
    await door.client.delete_bundle(made["id"])
    status, answer = await door("PATCH", path, {"manifests": [config_map("d")]})
    assert (status, answer["code"]) == (409, "maestro-6") and "under deletion" in answer["reason"]
    status, answer = await door("PATCH", f"{BUNDLES}/unknown", {"manifests": [config_map("d")]})
    assert (status, answer["code"]) == (404, "maestro-7")


async def test_metadata_that_is_written_back_as_it_was_read_is_no_change(door: Door) -> None:
    """What the server fills in itself is not the client's, nor is what a ManifestWork brings along."""
    _, made = await door("POST", BUNDLES, good(metadata={"labels": {"a": "b"}, "creationTimestamp": None}))
    assert {"creationTimestamp", "uid"} < set(made["metadata"])
    status, same = await door("PATCH", f"{BUNDLES}/{made['id']}", {"metadata": made["metadata"]})
    assert (status, same["version"], same["metadata"]) == (200, 1, made["metadata"])
    status, other = await door("PATCH", f"{BUNDLES}/{made['id']}", {"metadata": made["metadata"] | {"labels": {}}})
    assert (status, other["version"]) == (200, 2)


async def test_consumers_are_checked_too(door: Door) -> None:
    status, answer = await door("POST", "/consumers", {"id": "x", "name": "Not A Name", "labels": {"a": 1}})
    assert status == 400
    assert all(said in answer["reason"] for said in ("id must be empty", "not a DNS label", "labels is not valid"))
    assert (await door("POST", "/consumers", {"name": "mc01"}))[0] == 409
    status, made = await door("POST", "/consumers", {})
    assert (status, made["name"]) == (201, made["id"])
    path = f"/consumers/{made['id']}"
    assert (await door("PATCH", path, {"labels": {"a": "b"}}))[1]["labels"] == {"a": "b"}
    assert (await door("PATCH", path, {}))[1]["labels"] == {"a": "b"}
    assert "labels" not in (await door("PATCH", path, {"labels": {}}))[1]
    assert (await door("PATCH", path, {"labels": {"bad key!": "b"}}))[0] == 400
    assert (await door("GET", "/consumers/unknown"))[0] == 404
    assert (await door("DELETE", path))[0] == 204
    assert (await door("DELETE", path))[0] == 204
    await door.client.create_bundle("mc01", [config_map("a")])
    used = (await door.client.consumers(search="name = 'mc01'"))[0]["id"]
    status, answer = await door("DELETE", f"/consumers/{used}")
    assert (status, answer["code"]) == (403, "maestro-4")


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/resource-bundles/%00", {400, 404}),
        ("GET", "/resource-bundles/%ff%fe", {404}),
        ("GET", "/resource-bundles/..%2f..%2fconsumers", {404}),
        ("DELETE", "/resource-bundles/%00", {400, 404}),
        ("PATCH", "/consumers/%00", {400, 404}),
        ("PUT", "/consumers", {404}),
        ("POST", "/resource-bundles/some-id", {404}),
        ("GET", "/errors/99", {404}),
        ("GET", "/errors/7", {200}),
        ("GET", "/nothing", {404}),
        ("GET", "/resource-bundles?search=version%20%3D%20'x'", {400}),
        ("GET", "/resource-bundles?search=name%20%3D%20'%00'", {400}),
        ("GET", "/resource-bundles?search=nothing%20%3D%201", {400}),
        ("GET", "/resource-bundles?search=version%20%2A%20" + "9" * 200 + "%20%3D%201", {200, 400}),
        ("GET", "/resource-bundles?search=version%20%3D%2099999999999999999999", {400}),
        ("GET", "/resource-bundles?search=" + "(" * 3000, {400}),
        ("GET", "/resource-bundles?orderBy=nothing", {400}),
        ("GET", "/resource-bundles?orderBy=name%3B%20drop%20table%20resources", {400}),
        ("GET", "/resource-bundles?page=-5&size=99999999999999", {200}),
        ("GET", "/resource-bundles?page=x&size=y", {200}),
        ("GET", "/resource-bundles?page=999999999&size=65500", {200}),
        ("GET", "/resource-bundles/watch?after=yesterday", {400}),
        ("GET", "/resource-bundles/watch?after=99999999999999999-0", {410}),
        ("GET", "/resource-bundles/watch?after=9999999999999999999999-0", {400, 410}),
    ],
)
async def test_odd_paths_and_queries_get_an_answer(door: Door, method: str, path: str, wanted: set[int]) -> None:
    status, answer = await door(method, path, {} if method in ("PATCH", "PUT", "POST") else None)
    assert status in wanted, answer
    if status >= 400:
        assert answer["reason"] and answer["code"].startswith("maestro-")


async def test_any_comparison_of_any_field_is_answered_or_refused(door: Door) -> None:
    fields = ("name", "version", "created_at", "applied", "not_applied", "metadata", "status")
    paths = ("payload->'metadata'", "payload->'metadata'->>'name'", "status->'conditions'")
    operators = ("=", "!=", "<", ">=", "like", "not ilike", "is null", "in", "not in", "between", "@>", "~=")
    operators += ("+ 1 =", "/ 0 =", "* 'a' <")
    values = ("'a'", "1", "1.5", "null", "true", "('a', 'b')", "'a' and 'b'", "1 and 2", "'{\"a\":1}'", "''")
    answers = set()
    for field, operator, value in itertools.product(fields + paths, operators, values):
        search = f"{field} {operator} {'' if operator == 'is null' else value}"
        status, answer = await door("GET", f"/resource-bundles?search={quote(search, safe='')}")
        assert status in (200, 400), (search, answer)
        answers.add(status)
    assert answers == {200, 400}


async def test_numbers_beyond_every_page_are_taken_for_what_they_are(door: Door) -> None:
    await door.client.create_bundle("mc01", [config_map("a")])
    for query, number in (("size=99999999999999", 1), ("page=99999999999999", 0), ("page=-99999999999999", 1)):
        status, answer = await door("GET", f"/resource-bundles?{query}")
        assert (status, len(answer["items"]), answer["total"]) == (200, number, 1), query


async def test_an_error_carries_the_callers_operation(door: Door) -> None:
    _, answer = await door("GET", "/consumers/unknown", **{"X-Operation-ID": "op-1"})
    assert answer["operation_id"] == "op-1"
    with pytest.raises(MaestroError) as caught:
        await door.client.get_bundle("unknown")
    assert (caught.value.status, caught.value.code) == (404, "maestro-7")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
fields = ("consumer_name", "manifests", "id", "name", "source", "metadata", "delete_option", "manifest_configs")
manifest = st.fixed_dictionaries({}, optional=dict.fromkeys(("apiVersion", "kind", "metadata", "spec"), anything))
bodies = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(fields, anything)
    | {"manifests": st.lists(manifest | anything, max_size=3)}
    | {"metadata": st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "labels", "annotations"), anything))},
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies, anything)
def test_any_json_is_either_a_bundle_or_a_refusal(body: Document, whole: Any) -> None:
    for document in (body, whole):
        try:
            made = new_bundle(json.dumps(document).encode(), "", 131_072)
        except Refusal as refusal:
            assert refusal.status == 400 and refusal.reason
        else:
            assert json.loads(made.spec)["manifests"] and made.consumer_name


async def test_only_maestros_own_not_found_says_that_a_bundle_is_not_there(door: Door) -> None:
    assert await door.client.get_bundle_or_none("nothing") is None
    host = door.client.base_url.partition("/api/")[0]
    async with MaestroClient(f"{host}/elsewhere") as lost:
        with pytest.raises(MaestroError) as refused:
            await lost.get_bundle_or_none("nothing")
    assert (refused.value.status, refused.value.not_found) == (404, False)
