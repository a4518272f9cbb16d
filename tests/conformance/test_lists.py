"""Lists: pages that agree with each other, revisions that mean what they say, selectors of both kinds."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from .objects import config_map
from .wire import Http, Obj

OPTIONS = {"group": "meta.k8s.io", "kind": "ListOptions"}


async def fill(http: Http, path: str, count: int = 5) -> None:
    for number in range(count):
        labels = {"n": str(number), "odd": "yes" if number % 2 else "no"}
        (await http.post(path, config_map(f"c{number}", {"k": str(number)}, labels=labels))).ok(201)


def names(listed: Obj) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"] if item["metadata"]["name"] != "kube-root-ca.crt"]


def forbidden(field: str, why: str) -> tuple[str, Obj]:
    """The message and details of an option that does not go with the others."""
    cause = {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}
    return f'ListOptions.meta.k8s.io "" is invalid: {field}: Forbidden: {why}', OPTIONS | {"causes": [cause]}


@pytest.mark.check(65)
async def test_all_pages_are_of_the_first_pages_revision(http: Http, config_maps: str) -> None:
    await fill(http, config_maps)
    first = (await http.get(f"{config_maps}?limit=2")).ok(200)
    assert names(first) == ["c0", "c1"]
    revision = first["metadata"]["resourceVersion"]
    assert first["metadata"]["remainingItemCount"] == 4  # c2, c3, c4 and the root CA's
    token = first["metadata"]["continue"]
    decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert decoded == {"v": "meta.k8s.io/v1", "rv": int(revision), "start": "/c1\0"}
    (await http.post(config_maps, config_map("c2-late"))).ok(201)
    (await http.delete(f"{config_maps}/c3")).ok(200)
    second = (await http.get(f"{config_maps}?limit=2&continue={token}")).ok(200)
    assert names(second) == ["c2", "c3"]
    assert second["metadata"]["resourceVersion"] == revision
    assert second["metadata"]["remainingItemCount"] == 2
    last = (await http.get(f"{config_maps}?limit=20&continue={second['metadata']['continue']}")).ok(200)
    assert names(last) == ["c4"]
    assert last["metadata"] == {"resourceVersion": revision}


@pytest.mark.check(65)
async def test_items_of_a_built_in_list_do_not_repeat_their_kind(http: Http, config_maps: str) -> None:
    await fill(http, config_maps, 1)
    listed = (await http.get(config_maps)).ok(200)
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    empty = (await http.get("/api/v1/namespaces/there-is-none/configmaps")).ok(200)
    assert empty["items"] == []


@pytest.mark.check(66)
async def test_pages_of_a_selection_tell_no_count(http: Http, config_maps: str) -> None:
    await fill(http, config_maps)
    first = (await http.get(f"{config_maps}?limit=2&labelSelector=odd%3Dno")).ok(200)
    assert names(first) == ["c0", "c2"]
    assert first["metadata"].keys() == {"resourceVersion", "continue"}
    rest = (
        await http.get(f"{config_maps}?limit=2&labelSelector=odd%3Dno&continue={first['metadata']['continue']}")
    ).ok()
    assert names(rest) == ["c4"]
    assert rest["metadata"].keys() == {"resourceVersion"}


@pytest.mark.check(67)
async def test_any_revision_ignores_the_limit(http: Http, config_maps: str) -> None:
    await fill(http, config_maps)
    listed = (await http.get(f"{config_maps}?limit=2&resourceVersion=0")).ok(200)
    # As old as the server likes, so perhaps without the last writes; but never a page.
    assert "continue" not in listed["metadata"]
    current = (await http.get(config_maps)).ok(200)["metadata"]["resourceVersion"]
    assert int(listed["metadata"]["resourceVersion"]) <= int(current)


@pytest.mark.check(68)
async def test_an_exact_revision_is_the_state_of_then(http: Http, config_maps: str) -> None:
    await fill(http, config_maps, 3)
    before = (await http.get(config_maps)).ok(200)
    revision = before["metadata"]["resourceVersion"]
    (await http.delete(f"{config_maps}/c0")).ok(200)
    (await http.patch(f"{config_maps}/c1", {"data": {"k": "new"}})).ok(200)
    (await http.post(config_maps, config_map("c9"))).ok(201)
    exact = (await http.get(f"{config_maps}?resourceVersion={revision}&resourceVersionMatch=Exact")).ok(200)
    assert exact == before
    limited = (await http.get(f"{config_maps}?resourceVersion={revision}&limit=2")).ok(200)
    assert names(limited) == ["c0", "c1"]
    assert limited["metadata"]["resourceVersion"] == revision
    newer = (await http.get(f"{config_maps}?resourceVersion={revision}&resourceVersionMatch=NotOlderThan")).ok(200)
    assert int(newer["metadata"]["resourceVersion"]) >= int(revision)


@pytest.mark.check(69)
@pytest.mark.parametrize("what", ["", "/kube-root-ca.crt"])
async def test_a_future_revision_is_waited_for_in_vain(http: Http, config_maps: str, what: str) -> None:
    answer = await http.get(f"{config_maps}{what}?resourceVersion=999999999")
    current = answer.message.rpartition(" ")[2]
    answer.refused(
        504,
        "Timeout",
        f"Timeout: Too large resource version: 999999999, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )
    assert answer.headers["retry-after"] == "1"


@pytest.mark.check(70)
@pytest.mark.parametrize(
    ("query", "field", "why"),
    [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        ("sendInitialEvents=true", "sendInitialEvents", "sendInitialEvents is forbidden for list"),
        (
            "continue=abc&resourceVersionMatch=Exact&resourceVersion=5",
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        ),
    ],
)
async def test_options_that_contradict_each_other(
    http: Http, config_maps: str, query: str, field: str, why: str
) -> None:
    message, details = forbidden(field, why)
    (await http.get(f"{config_maps}?{query}")).refused(422, "Invalid", message, details)


@pytest.mark.check(70)
async def test_a_continued_list_takes_no_revision(http: Http, config_maps: str) -> None:
    await fill(http, config_maps, 2)
    token = (await http.get(f"{config_maps}?limit=1")).ok(200)["metadata"]["continue"]
    answer = await http.get(f"{config_maps}?limit=1&continue={token}&resourceVersion=5")
    answer.refused(400, "BadRequest", "specifying resource version is not allowed when using continue")


GRAMMAR = [
    ("odd", ["c0", "c1", "c2", "c3", "c4"]),
    ("!odd", ["plain"]),
    ("odd=yes", ["c1", "c3"]),
    ("odd==yes", ["c1", "c3"]),
    ("odd!=yes", ["c0", "c2", "c4", "plain"]),
    ("odd in (yes,no)", ["c0", "c1", "c2", "c3", "c4"]),
    ("odd notin (yes)", ["c0", "c2", "c4", "plain"]),
    ("n>2", ["c3", "c4"]),
    ("n<2", ["c0", "c1"]),
    ("n in (0, 4),odd", ["c0", "c4"]),
    ("odd = yes , n in ( 1 , 2 )", ["c1"]),
    ("odd=", []),
]


@pytest.mark.check(71)
async def test_label_selectors_choose(http: Http, config_maps: str) -> None:
    await fill(http, config_maps)
    (await http.post(config_maps, config_map("plain"))).ok(201)
    for selector, chosen in GRAMMAR:
        listed = (await http.get(f"{config_maps}?labelSelector={quote(selector)}")).ok(200)
        assert names(listed) == chosen, selector


@pytest.mark.check(71)
@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("odd in yes", "unable to parse requirement: found 'yes' expected: '('"),
        ("odd in (yes", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        (
            "n>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, "
            "the value must be an integer",
        ),
        (
            "-a",
            'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
            "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ],
)
async def test_bad_label_selectors_are_told(http: Http, config_maps: str, selector: str, why: str) -> None:
    answer = await http.get(f"{config_maps}?labelSelector={quote(selector)}")
    answer.refused(400, "BadRequest", why)


@pytest.mark.check(72)
async def test_unknown_fields_cannot_be_selected(http: Http, config_maps: str, namespace: str) -> None:
    (await http.get(f"{config_maps}?fieldSelector=data.k=1")).refused(
        400,
        "BadRequest",
        '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"',
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"
    answer = await http.get(f"{pods}?fieldSelector=spec.x=1")
    answer.refused(400, "BadRequest", "field label not supported: spec.x")
    await fill(http, config_maps, 3)
    for selector, chosen in [
        ("metadata.name=c1", ["c1"]),
        ("metadata.name==c1", ["c1"]),
        ("metadata.name!=c1", ["c0", "c2"]),
        (f"metadata.namespace={namespace},metadata.name=c2", ["c2"]),
        ("metadata.name=c1,metadata.name=c2", []),
    ]:
        listed = (await http.get(f"{config_maps}?fieldSelector={quote(selector)}")).ok(200)
        assert names(listed) == chosen, selector


@pytest.mark.check(73)
async def test_events_are_found_by_what_they_are_about(http: Http, namespace: str) -> None:
    events = f"/api/v1/namespaces/{namespace}/events"
    for name, uid in (("e1", "u-1"), ("e2", "u-2"), ("e3", "u-1")):
        about = {"kind": "ConfigMap", "name": "x", "namespace": namespace, "uid": uid}
        event = {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "type": "Normal", "message": "m"}
        (await http.post(events, {"apiVersion": "v1", "kind": "Event"} | event)).ok(201)
    old = (await http.get(f"{events}?fieldSelector=involvedObject.uid=u-1")).ok(200)
    assert names(old) == ["e1", "e3"]
    both = (await http.get(f"{events}?fieldSelector=involvedObject.uid=u-2,reason=R,type=Normal")).ok(200)
    assert names(both) == ["e2"]
    new = (await http.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector=regarding.uid=u-1")).ok()
    assert names(new) == ["e1", "e3"]
    assert new["items"][0]["regarding"]["uid"] == "u-1"
