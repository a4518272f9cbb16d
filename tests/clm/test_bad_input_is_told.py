"""Whatever is sent, the answer is one of the contract and names everything that is wrong; nothing is half made."""

from __future__ import annotations

import io
from typing import Any

import aiohttp
import msgspec
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.clm.api import bodies, search
from regional.clm.api.problems import Refusal
from regional.clm.client import ClmClient
from regional.clm.entities import REGISTRY
from regional.clm.specs import CLUSTER as CLUSTER_SPEC
from regional.clm.specs import check_spec
from tests.clm.conftest import Region, report

SYSTEM = {"X-System": "true"}
MISSING = "01890000-0000-7000-8000-000000000000"
CLUSTER = {"kind": "Cluster", "name": "demo", "spec": {}}
POOL = {"kind": "NodePool", "name": "workers", "spec": {}}


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Any  # by name in any case
    body: Any

    @property
    def fields(self) -> list[str]:
        return [found["field"] for found in self.body.get("errors", [])]


async def send(
    region: Region, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    """`body` is sent as it is if it is bytes, else as JSON."""
    content = None if body is None else io.BytesIO(body if isinstance(body, bytes) else msgspec.json.encode(body))
    sent = {"Content-Type": "application/json", **(SYSTEM if headers is None else headers)}
    url = f"{region.url}{path}" if path.startswith("/api") else f"{region.url}/api/hyperfleet/v1{path}"
    async with aiohttp.ClientSession() as session:
        async with session.request(method, url, data=content, headers=sent) as answer:
            text = await answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return Answer(answer.status, answer.headers, msgspec.json.decode(text) if text and is_json else text)


async def test_all_faults_of_a_create_come_at_once(clm: ClmClient, region: Region) -> None:
    spec = {
        "platform": {"type": "Mainframe"},
        "networking": {"clusterNetwork": [{"cidr": "10.0.0.1/8"}, {"cidr": "everything"}, {"hostPrefix": 300}]},
        "release": {"version": "new"},
        "tags": {"a": 1},
    }
    body = {"kind": "Pluster", "name": "A_b", "spec": spec, "labels": {"-x": "ok", "ok": "not ok!"}}
    answer = await send(region, "POST", "/clusters", body)
    assert (answer.status, answer.body["code"]) == (400, "HYPERFLEET-VAL-000")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.body["type"] == "https://api.hyperfleet.io/errors/validation-error"
    assert answer.body["instance"] == "/api/hyperfleet/v1/clusters"
    assert answer.body["trace_id"] == answer.headers["X-Request-Id"]
    assert answer.fields == [
        "kind",
        "name",
        "spec.platform.type",
        "spec.networking.clusterNetwork",
        "spec.networking.clusterNetwork[1].cidr",
        "spec.networking.clusterNetwork[2].cidr",
        "spec.networking.clusterNetwork[2].hostPrefix",
        "spec.release.version",
        "spec.tags.a",
        "labels.-x",
        "labels.ok",
    ]
    assert all(found["message"] for found in answer.body["errors"])
    assert await region.value("SELECT count(*) FROM resources") == 0


FAULTY_CREATES: list[Any] = [
    ({}, ["kind", "name", "spec"]),
    ({"kind": None, "name": None, "spec": None}, ["kind", "name", "spec"]),
    ({"kind": 1, "name": [], "spec": "x"}, ["kind", "name", "spec"]),
    (CLUSTER | {"name": "ab"}, ["name"]),
    (CLUSTER | {"name": "a" * 19}, ["name"]),
    (CLUSTER | {"name": "-demo"}, ["name"]),
    (CLUSTER | {"name": "demo\n"}, ["name"]),
    (CLUSTER | {"name": "dёmo"}, ["name"]),
    (CLUSTER | {"labels": []}, ["labels"]),
    (CLUSTER | {"labels": {f"k{n}": "" for n in range(101)}}, ["labels"]),
    (CLUSTER | {"references": {"wif": []}}, ["references.wif"]),
    (CLUSTER | {"spec": {"x": "y" * 70_000}}, ["spec"]),
]


async def test_a_create_says_which_fields_are_wrong(clm: ClmClient, region: Region) -> None:
    for body, fields in FAULTY_CREATES:
        answer = await send(region, "POST", "/clusters", body)
        assert (answer.status, answer.body["code"], answer.fields) == (400, "HYPERFLEET-VAL-000", fields), body
    assert await region.value("SELECT count(*) FROM resources") == 0


UNRENDERABLE: list[Any] = [
    ({"displayName": "a\u007f"}, ["spec.displayName"]),
    ({"own": {"a": ["fine", "\u0080"]}}, ["spec.own.a[1]"]),
    ({"own": "\u0085"}, ["spec.own"]),
    ({"own": "\u009f"}, ["spec.own"]),
    ({"own": "\ufffe"}, ["spec.own"]),
    ({"own": "\uffff"}, ["spec.own"]),
    ({"own": "\u0007"}, ["spec.own"]),
    ({"tags": {"a\u007fb": "c"}}, ["spec.tags.a?b"]),
    ({"own": {"k" * 501: 1}}, [f"spec.own.{'k' * 100}"]),
    ({"own": ["\u0080"] * 50}, [f"spec.own[{number}]" for number in range(20)]),
]


async def test_what_no_manifest_can_say_is_refused_before_it_is_stored(clm: ClmClient, region: Region) -> None:
    cluster = await clm.create("Cluster", "there", {})
    for spec, fields in UNRENDERABLE:
        for method, path, body in (
            ("POST", "/clusters", CLUSTER | {"spec": spec}),
            ("PATCH", f"/clusters/{cluster['id']}", {"spec": spec}),
            ("POST", f"/clusters/{cluster['id']}/nodepools", POOL | {"spec": spec}),
        ):
            answer = await send(region, method, path, body)
            assert (answer.status, answer.body["code"], answer.fields) == (400, "HYPERFLEET-VAL-000", fields), spec
    for labels in ({"a\u007f": "b"}, {"a": "b\u0085"}, {"a": "\uffff"}, {"k" * 300: "v"}):
        assert (await send(region, "POST", "/clusters", CLUSTER | {"labels": labels})).status == 400, labels
    assert await region.value("SELECT count(*) FROM resources") == 1


@given(st.dictionaries(st.text(max_size=500), st.text()))
def test_every_text_that_is_taken_comes_out_of_a_manifest_as_it_went_in(texts: dict[str, str]) -> None:
    awkward = {"\n\t\r": '"\\', '"' * 500: "\u2028\u2029\ufeff\u00a0\U0001f600", "\n" * 500: "é" * 500}
    spec = {"own": awkward | texts}
    rendered = f"spec: {msgspec.json.encode(spec).decode()}\n"
    if not check_spec(spec, CLUSTER_SPEC):
        assert yaml.load(rendered, Loader=yaml.CSafeLoader)["spec"] == spec
    assert check_spec({"own": awkward}, CLUSTER_SPEC) == []


MALFORMED: list[Any] = [
    (b"", 400),
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b'{"spec": {"a": "\\u0000"}}', 400),
    (b'{"spec": {"a": "\\ud800"}}', 400),
    (b'{"spec": {"a": 1e999}}', 400),
    (b'{"spec": {"a": ' + b"9" * 400 + b"}}", 400),
    (b'{"spec": ' + b'{"a":' * 80 + b"1" + b"}" * 81, 400),
    (b"[" * 100_000, 400),
    (b'{"spec": {"a": "' + b"x" * 1_100_000 + b'"}}', 413),
]


async def test_what_is_no_bounded_json_is_malformed(clm: ClmClient, region: Region) -> None:
    for body, status in MALFORMED:
        answer = await send(region, "POST", "/clusters", body)
        assert (answer.status, answer.body["code"]) == (status, "HYPERFLEET-VAL-006"), body[:40]


ROUTES: list[Any] = [
    ("GET", "/nothing", None, 404, "HYPERFLEET-NTF-000"),
    ("GET", "/clusters/x/y/z", None, 404, "HYPERFLEET-NTF-001"),
    ("GET", f"/clusters/{MISSING}/nothing", None, 404, "HYPERFLEET-NTF-000"),
    ("GET", "/clusters/..%2f..%2fetc", None, 404, "HYPERFLEET-NTF-001"),
    ("GET", "/clusters//statuses", None, 404, "HYPERFLEET-NTF-000"),
    ("GET", "/clusters/%00", None, 404, "HYPERFLEET-NTF-001"),
    ("GET", f"/clusters/{MISSING}", None, 404, "HYPERFLEET-NTF-001"),
    ("GET", f"/clusters/{MISSING.upper()}", None, 404, "HYPERFLEET-NTF-001"),
    ("GET", f"/clusters/{MISSING}/history", None, 404, "HYPERFLEET-NTF-001"),
    ("GET", f"/clusters/{MISSING}/statuses/%00", None, 404, "HYPERFLEET-NTF-001"),
    ("DELETE", f"/clusters/{MISSING}", None, 404, "HYPERFLEET-NTF-001"),
    ("PATCH", f"/clusters/{MISSING}", {"spec": {}}, 404, "HYPERFLEET-NTF-001"),
    ("PATCH", f"/clusters/{MISSING}", {"sepc": {}}, 400, "HYPERFLEET-VAL-006"),
    ("PATCH", f"/clusters/{MISSING}", {}, 400, "HYPERFLEET-VAL-000"),
    ("POST", f"/clusters/{MISSING}/nodepools", POOL, 404, "HYPERFLEET-NTF-001"),
    ("POST", "/nodepools", POOL, 422, "HYPERFLEET-VAL-000"),
    ("POST", "/resources", {"kind": "Thing"}, 400, "HYPERFLEET-VAL-000"),
    ("POST", f"/clusters/{MISSING}/force-delete", {"reason": ""}, 400, "HYPERFLEET-VAL-000"),
    ("PUT", f"/clusters/{MISSING}/statuses", {}, 400, "HYPERFLEET-VAL-000"),
    ("GET", "/resources?kind=%00", None, 400, "HYPERFLEET-VAL-000"),
]  # fmt: skip


async def test_routes_answer_with_the_contracts_codes(clm: ClmClient, region: Region) -> None:
    for method, path, body, status, code in ROUTES:
        answer = await send(region, method, path, body)
        assert (answer.status, answer.body["code"]) == (status, code), (method, path)


async def test_null_is_absent_where_the_field_is_known(clm: ClmClient) -> None:
    """Else an expression of a task would meet a null where it expects a value or nothing."""
    cluster = await clm.create("Cluster", "demo", {"release": None, "platform": {"type": None, "x": None}, "own": None})
    assert cluster["spec"] == {"platform": {"x": None}, "own": None}
    pool = await clm.create("NodePool", "workers", {"replicas": None, "autoScaling": None}, parent_id=cluster["id"])
    assert pool["spec"] == {}
    scaling = await clm.patch("NodePool", pool["id"], spec={"replicas": None, "autoScaling": {"min": 1, "max": 2}})
    assert scaling["spec"] == {"autoScaling": {"min": 1, "max": 2}}


async def test_a_wrong_method_names_the_right_ones(clm: ClmClient, region: Region) -> None:
    answer = await send(region, "PUT", "/clusters", {})
    assert (answer.status, answer.headers["Allow"], answer.body) == (405, "GET, HEAD, POST", b"Method Not Allowed")


async def test_another_media_type_is_refused(clm: ClmClient, region: Region) -> None:
    answer = await send(region, "POST", "/clusters", b"name: x", SYSTEM | {"Content-Type": "application/yaml"})
    assert (answer.status, answer.body["code"]) == (415, "HYPERFLEET-VAL-006")


async def test_a_caller_without_a_tenant_is_denied(clm: ClmClient, region: Region) -> None:
    nobody: list[dict[str, str]] = [{}, {"X-System": "yes"}, {"X-Tenant": "a b"}, {"X-Tenant": "x" * 64}]
    for headers in nobody:
        answer = await send(region, "GET", "/clusters", None, headers)
        assert (answer.status, answer.body["code"]) == (403, "HYPERFLEET-AUZ-001"), headers


FAULTY_REPORTS: list[Any] = [
    ({"adapter": ""}, ["adapter"]),
    ({"adapter": "x" * 101}, ["adapter"]),
    ({"observed_generation": 0}, ["observed_generation"]),
    ({"observed_generation": "1"}, ["observed_generation"]),
    ({"observed_generation": True}, ["observed_generation"]),
    ({"observed_time": "2000-01-01T00:00:00Z"}, ["observed_time"]),
    ({"observed_time": "2999-01-01T00:00:00Z"}, ["observed_time"]),
    ({"conditions": [{"type": "", "status": "True"}, {"type": "A", "status": "maybe"}, 1]},
     ["conditions[0].type", "conditions[1].status", "conditions[2]"]),
    ({"conditions": [{"type": "A", "status": "True"}] * 2}, ["conditions[1].type"]),
    ({"conditions": [{"type": "A", "status": "True", "reason": 1}]}, ["conditions[0]"]),
    ({"conditions": None, "data": [], "metadata": 1}, ["conditions", "data", "metadata"]),
]  # fmt: skip


async def test_a_report_says_which_fields_are_wrong(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Cluster", "demo", {})
    for change, fields in FAULTY_REPORTS:
        answer = await send(region, "PUT", f"/clusters/{made['id']}/statuses", report(1) | change)
        assert (answer.status, answer.body["code"], answer.fields) == (400, "HYPERFLEET-VAL-000", fields), change
    for missing in ("Available", "Applied", "Health"):
        body = report(1)
        body["conditions"] = [found for found in body["conditions"] if found["type"] != missing]
        answer = await send(region, "PUT", f"/clusters/{made['id']}/statuses", body)
        assert (answer.status, answer.body["detail"]) == (400, f"missing mandatory condition '{missing}'")
    answer = await send(region, "PUT", f"/clusters/{made['id']}/statuses", report(1, observed_time="today"))
    assert (answer.status, answer.body["code"]) == (400, "HYPERFLEET-VAL-006")
    assert await region.value("SELECT count(*) FROM adapter_statuses") == 0


FAULTY_LISTS: list[Any] = [
    ("size=0&page=0", "HYPERFLEET-VAL-000", ["size", "page"]),
    ("size=101", "HYPERFLEET-VAL-000", ["size"]),
    ("page=many&pageSize=3", "HYPERFLEET-VAL-000", ["pageSize", "page"]),
    ("after=x", "HYPERFLEET-VAL-000", ["after"]),
    ("order=spec", "HYPERFLEET-VAL-005", []),
    ("order=name;drop", "HYPERFLEET-VAL-005", []),
    ("fields=nothing", "HYPERFLEET-VAL-005", []),
    (f"after={MISSING}&order=name", "HYPERFLEET-VAL-005", []),
]


async def test_a_list_says_which_parameters_are_wrong(clm: ClmClient, region: Region) -> None:
    for query, code, fields in FAULTY_LISTS:
        answer = await send(region, "GET", f"/clusters?{query}")
        assert (answer.status, answer.body["code"], answer.fields) == (400, code, fields), query


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=12,
)
_field = st.sampled_from(["kind", "name", "spec", "labels", "references", "replicas", "autoScaling", "platform"])
_documents = st.dictionaries(_field, _json | st.dictionaries(_field, _json, max_size=5), max_size=6)


@given(_documents, st.sampled_from(REGISTRY.all))
@settings(max_examples=200)
def test_any_document_is_drafted_or_refused(document: dict[str, Any], entity: Any) -> None:
    for draft in (bodies.draft_of_create, bodies.draft_of_patch):
        try:
            draft(bodies.parse(msgspec.json.encode(document)), entity)
        except Refusal as refusal:
            assert 400 <= refusal.status < 500
            msgspec.json.encode(refusal.document("/", "x"))


_WORDS = (
    "name id owner_id generation created_time labels.env spec.a.b status.conditions.Ready tenancy and or not in between"
    " like ilike is null ( ) [ ] , = != <> <= 'x' \"y\" '%' 1 -1.5 1e9 2024-01-01 'True' \\ ' spec. é"
    " 2024-01-01T00:00:00Z status.conditions.Ready.observed_generation status.conditions.Ready.last_updated_time"
)
_word = st.sampled_from(_WORDS.split(" "))


@given(st.lists(_word, max_size=12).map(" ".join) | st.text(max_size=40))
@settings(max_examples=500)
def test_any_search_is_understood_or_refused(text: str) -> None:
    parameters: list[Any] = []
    try:
        sql = search.to_sql(text, parameters)
    except Refusal as refusal:
        assert refusal.status == 400
    else:
        assert all(f"${number}::" in sql for number in range(1, len(parameters) + 1))


async def test_whatever_is_understood_can_be_asked_of_the_database(clm: ClmClient, region: Region) -> None:
    """Real SQL for what the generator finds: no search may end in an error of the database."""
    await clm.create("Cluster", "demo", {"a": {"b": 5}, "x": "y"}, labels={"env": "dev"})
    understood: set[str] = set()

    @given(st.lists(_word, min_size=3, max_size=9).map(" ".join))
    @settings(max_examples=3000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def collect(text: str) -> None:
        try:
            search.to_sql(text, [])
        except Refusal:
            return
        understood.add(text)

    collect()
    terms = ["name = 'x'", "spec.a.b > 3", "spec.x > 3", "labels.env like 'd%'", "generation in [1, 2]", "id = 'x'"]
    terms += [
        "status.conditions.Reconciled.last_updated_time > 2024-01-01",
        "created_time between 2024-01-01 and 2025-01-01",
    ]
    terms += ["owner_id is null", "not (name ilike 'D%' or tenancy != 'a')", "spec.a = 'x'", "generation = 1.5"]
    understood |= set(terms)
    async with aiohttp.ClientSession(headers=SYSTEM) as session:
        for text in sorted(understood):
            async with session.get(f"{region.url}/api/hyperfleet/v1/clusters", params={"search": text}) as answer:
                assert answer.status == 200, (text, await answer.text())
