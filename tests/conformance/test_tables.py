"""Tables and partial objects: what kubectl shows, and what thrifty informers read."""

from __future__ import annotations

import pytest

from .conftest import Define
from .objects import config_map, definition, deployment
from .wire import JSON, TABLE, Http, Obj, Shell

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.mark.check(33)
async def test_kubectl_shows_a_deployment(http: Http, deployments: str, kubectl: Shell) -> None:
    (await http.post(deployments, deployment("web"))).ok(201)
    head, row, *_ = (await kubectl("get deploy")).split("\n")
    assert head.split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert row.split()[:4] == ["web", "0/0", "0", "0"]


@pytest.mark.check(34)
async def test_kubectl_shows_more_of_a_deployment_when_asked(http: Http, deployments: str, kubectl: Shell) -> None:
    (await http.post(deployments, deployment("web"))).ok(201)
    head, row, *_ = (await kubectl("get deploy -o wide")).split("\n")
    assert head.split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert row.split()[5:] == ["main", "example/app:1", "app=web"]


@pytest.mark.check(35)
async def test_a_custom_kind_has_its_own_columns_and_empty_cells_for_what_is_not_there(
    http: Http, crd: Define, group: str, kubectl: Shell
) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.color", "priority": 1},
        {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]"},
        {"name": "Cond", "type": "string", "jsonPath": '.spec.conds[?(@.type=="A")].v'},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    widgets = await crd(definition(group, additionalPrinterColumns=columns))
    conds = [{"type": "B", "v": "b"}, {"type": "A", "v": "a"}]
    full = {"size": 3, "color": "red", "tags": ["x", "y"], "conds": conds}
    (await http.post(widgets.path, widgets.body("full", full))).ok(201)
    (await http.post(widgets.path, widgets.body("none"))).ok(201)
    table = (await http.get(widgets.path, accept=TABLE)).ok(200)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(each["name"], each["type"], each["priority"]) for each in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Wrong", "integer", 1),
        ("First", "string", 0),
        ("Cond", "string", 0),
        ("Since", "date", 0),
    ]
    assert table["columnDefinitions"][1]["description"] == "How big"
    cells = [row["cells"] for row in table["rows"]]
    assert [row[:-1] for row in cells] == [
        ["full", 3, None, "x", "a"],
        ["none", None, None, None, None],
    ]
    assert all(row[-1].endswith("s") for row in cells)
    rows = (await kubectl(f"get widgets.{group}")).splitlines()
    assert rows[0].split() == ["NAME", "SIZE", "FIRST", "COND", "SINCE"]
    assert rows[1].split()[:4] == ["full", "3", "x", "a"]


@pytest.mark.check(35)
async def test_a_custom_kind_without_columns_shows_its_age(http: Http, crd: Define, group: str) -> None:
    widgets = await crd(definition(group))
    table = (await http.get(widgets.path, accept=TABLE)).ok(200)
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Age"]
    assert table["rows"] == []


@pytest.mark.check(36)
async def test_rows_carry_as_much_of_the_object_as_was_asked_for(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("a", {"x": "y"}, labels={"l": "1"}))).ok(201)

    async def row(query: str) -> Obj:
        table = (await http.get(f"{config_maps}?labelSelector=l{query}", accept=TABLE)).ok(200)
        (only,) = table["rows"]
        assert only["cells"][:2] == ["a", 1]
        found: Obj = only["object"]
        return found

    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    assert await row("") == partial
    assert await row("&includeObject=Metadata") == partial
    assert await row("&includeObject=None") is None
    assert await row("&includeObject=Object") == made
    one = (await http.get(f"{config_maps}/a", accept=TABLE)).ok(200)
    assert one["rows"][0]["object"] == partial
    assert one["metadata"] == {"resourceVersion": made["metadata"]["resourceVersion"]}


@pytest.mark.check(37)
async def test_a_watch_of_tables_names_the_columns_once(http: Http, config_maps: str) -> None:
    (await http.post(config_maps, config_map("a", labels={"l": "1"}))).ok(201)
    (await http.post(config_maps, config_map("b", labels={"l": "1"}))).ok(201)
    async with http.watch(f"{config_maps}?labelSelector=l", accept=TABLE) as watch:
        assert (watch.status, watch.headers["content-type"]) == (200, JSON)
        first, second = await watch.take(2)
        (await http.post(config_maps, config_map("c", labels={"l": "1"}))).ok(201)
        third = await watch.next()
    assert [event["type"] for event in (first, second, third)] == ["ADDED"] * 3
    assert [event["object"]["kind"] for event in (first, second, third)] == ["Table"] * 3
    assert [each["name"] for each in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["object"]["columnDefinitions"] is None
    assert third["object"]["columnDefinitions"] is None
    assert [event["object"]["rows"][0]["cells"][0] for event in (first, second, third)] == ["a", "b", "c"]


@pytest.mark.check(38)
async def test_a_watch_of_partial_objects_has_partial_bookmarks(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("a", {"x": "y"}, labels={"l": "1"}))).ok(201)
    query = "labelSelector=l&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with http.watch(f"{config_maps}?{query}", accept=PARTIAL) as watch:
        added, bookmark = await watch.take(2)
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    assert added == {"type": "ADDED", "object": partial | {"metadata": made["metadata"]}}
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "PartialObjectMetadata")
    metadata = bookmark["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(metadata["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


@pytest.mark.check(38)
async def test_partial_objects_and_lists_of_them(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("a", {"x": "y"}, labels={"l": "1"}))).ok(201)
    one = (await http.get(f"{config_maps}/a", accept=PARTIAL)).ok(200)
    assert one == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    several = (await http.get(f"{config_maps}?labelSelector=l", accept=PARTIALS)).ok(200)
    assert (several["kind"], several["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [each["metadata"] for each in several["items"]] == [made["metadata"]]
