"""The published description holds: for the operations that there are, and under random requests made from it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks as openapi_checks

from regional.maestro.client import MaestroClient
from regional.maestro.server.rest import openapi
from tests.maestro.harness import Document, Maestro, config_map

PROMISES = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
REFERENCE = {"id": "string", "kind": "string", "href": "string"}
SCHEMA_OF_OTHERS: dict[str, dict[str, str]] = {
    "Consumer": REFERENCE | {"name": "string", "labels": "object", "created_at": "string", "updated_at": "string"},
    "ResourceBundle": REFERENCE
    | {"name": "string", "consumer_name": "string", "version": "integer"}
    | {"created_at": "string", "updated_at": "string", "deleted_at": "string"}
    | {"metadata": "object", "manifests": "array", "delete_option": "object", "manifest_configs": "array"}
    | {"status": "object"},
    "Error": REFERENCE | {"code": "string", "reason": "string", "operation_id": "string"},
}
"""What clients that were generated from the description of Maestro's own server know of."""
OPERATIONS_OF_OTHERS = {
    "/consumers": {"get", "post"},
    "/consumers/{id}": {"get", "patch", "delete"},
    "/resource-bundles": {"get"},
    "/resource-bundles/{id}": {"get", "delete"},
}


async def described(client: MaestroClient) -> Document:
    async with aiohttp.ClientSession() as session, session.get(f"{client.base_url}/openapi") as answer:
        assert answer.status == 200
        found: Document = await answer.json()
        return found


async def test_it_lists_every_operation(maestro: Maestro) -> None:
    async with maestro.server() as client:
        document = await described(client)
        listed = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        routes: Any = maestro.servers[-1].application().routes
        served = {(method, route.path) for route in routes for method in route.name.split()}
        assert listed == served - {("GET", "/healthz")}


def test_it_has_all_that_clients_of_other_servers_know() -> None:
    document = json.loads(openapi.document())
    schemas = document["components"]["schemas"]

    def kind_of(schema: Document) -> str:
        reference = schema.get("$ref", "").rpartition("/")[2]
        return str((schemas[reference] if reference else schema).get("type", ""))

    for name, fields in SCHEMA_OF_OTHERS.items():
        described = schemas[name]["properties"]
        assert {field: kind_of(described[field]) for field in fields} == fields
    for path, methods in OPERATIONS_OF_OTHERS.items():
        operations = document["paths"][f"/api/maestro/v1{path}"]
        assert methods <= set(operations)
        asked = {parameter["name"] for parameter in operations["get"]["parameters"]}
        assert asked >= ({"id"} if "{id}" in path else {"page", "size", "search", "orderBy", "fields"})


async def test_random_requests_get_answers_that_it_describes(maestro: Maestro) -> None:
    """Bodies, paths and queries, good and bad, about things that exist and things that do not: never a 5xx, never an
    answer that is not described."""
    async with maestro.server() as client:
        consumer = await client.create_consumer("mc01")
        bundle = await client.create_bundle("mc01", [config_map("a")])
        document = await described(client)
        del document["paths"]["/api/maestro/v1/resource-bundles/watch"]  # it has no end
        known = {"consumers": consumer["id"], "resource-bundles": bundle["id"], "errors": "7"}
        await asyncio.to_thread(ask, document, client.base_url.removesuffix("/api/maestro/v1"), known)
        assert (await client.list_bundles())["kind"] == "ResourceBundleList"


def ask(document: Document, url: str, known: dict[str, str]) -> None:
    schema = schemathesis.openapi.from_dict(document)
    # What others need goes last.
    for operation in sorted((found.ok() for found in schema.get_all_operations()), key=lambda o: o.method == "delete"):
        ask_one(operation, url, next((thing for part, thing in known.items() if f"/{part}/" in operation.path), None))


def ask_one(operation: Any, url: str, existing: str | None) -> None:
    @settings(max_examples=10, deadline=None, suppress_health_check=QUIET, database=None, derandomize=True)
    @given(case=operation.as_strategy(), about=st.booleans())
    def check(case: schemathesis.Case, about: bool) -> None:
        if about and existing and case.path_parameters:
            case.path_parameters["id"] = existing
        case.call_and_validate(base_url=url, checks=PROMISES, timeout=60)

    check()


async def test_lists_hold_nothing_that_a_strict_client_refuses_unless_it_asks(maestro: Maestro) -> None:
    """Go's generated client takes a list for broken if an item has a field that its own schema lacks."""
    async with maestro.server() as client, aiohttp.ClientSession() as session:
        await client.create_consumer("mc01", {"a": "b"})
        await client.create_bundle("mc01", [config_map("a")])
        for path, kind in (("consumers", "ConsumerList"), ("resource-bundles", "ResourceBundleList")):
            async with session.get(f"{client.base_url}/{path}") as answer:
                listed = json.loads(await answer.read())
            assert listed["kind"] == kind and set(listed) == {"kind", "page", "size", "total", "items"}
            assert set(listed["items"][0]) <= set(SCHEMA_OF_OTHERS[kind.removesuffix("List")])
            async with session.get(f"{client.base_url}/{path}?additions=true") as answer:
                more = json.loads(await answer.read())
            assert set(more["items"][0]) > set(listed["items"][0])
