"""The published description holds: for the operations that exist, and under random requests made from it."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks as openapi_checks

from regional.platform_api.app import OPERATIONS

from .conftest import ADA, OPERATOR, SECRET, Front
from .test_work_reaches_management_clusters import FULL, PAYLOAD

PROMISES = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
]
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


async def test_it_lists_every_operation(front: Front) -> None:
    document = await front.accept("GET", "/api/v0/openapi")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(operation.method, f"/api/v0{operation.path}") for operation in OPERATIONS}
    names = [operation.name for operation in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("account", [OPERATOR, ADA], ids=["who runs the region", "a customer"])
async def test_random_requests_get_answers_that_it_describes(front_of_maestro: Front, account: str) -> None:
    """Bodies, paths and queries of every operation, good and bad, about things that exist and things that do not:
    never a 5xx, never an answer that is not described. CLM, Maestro and PostgreSQL are the real ones."""
    front = front_of_maestro
    document = await front.accept("GET", "/api/v0/openapi")
    del document["security"]  # signatures are the edge's matter
    known = await _things(front)
    await asyncio.to_thread(_ask, document, front.url, account, known)
    for item in (await front.accept("GET", "/api/v0/clusters", account=account))["items"]:
        await front.accept("GET", f"/api/v0/clusters/{item['id']}/timeline", account=account)


async def _things(front: Front) -> dict[str, str]:
    """One of each kind, so that random requests are not all about nothing."""
    await front.accept("POST", "/api/v0/management_clusters", FULL, account=OPERATOR)
    work = await front.accept("POST", "/api/v0/work", PAYLOAD, account=OPERATOR)
    cluster = await front.accept("POST", "/api/v0/clusters", {"name": "known"})
    pool = await front.accept("POST", "/api/v0/nodepools", {"cluster_id": cluster["id"], "name": "workers"})
    return {
        "clusters": cluster["id"],
        "nodepools": pool["id"],
        "resource_bundles": work["id"],
        "management_clusters": "mc01",
        "accounts": ADA,
    }


def _ask(document: dict[str, Any], url: str, account: str, known: dict[str, str]) -> None:
    headers = {
        "X-Gateway-Secret": SECRET,
        "X-Amz-Account-Id": account,
        "X-Amz-Caller-Arn": f"arn:aws:iam::{account}:user/random",
    }
    schema = schemathesis.openapi.from_dict(document)
    # What others need goes last.
    for operation in sorted((found.ok() for found in schema.get_all_operations()), key=lambda o: o.method == "delete"):
        _ask_one(operation, url, headers, known.get(operation.path.split("/")[3]))


def _ask_one(operation: Any, url: str, headers: dict[str, str], existing: str | None) -> None:
    @settings(max_examples=20, deadline=None, suppress_health_check=QUIET, database=None)
    @given(case=operation.as_strategy(), about=st.booleans())
    def check(case: schemathesis.Case, about: bool) -> None:
        if about and existing and case.path_parameters:
            case.path_parameters["id"] = existing
        case.call_and_validate(base_url=url, headers=headers, checks=PROMISES, timeout=60)

    check()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACES = (
    ("cluster_id",),
    ("data",),
    ("data", "metadata"),
    ("data", "metadata", "name"),
    ("data", "metadata", "labels"),
    ("data", "metadata", "annotations"),
    ("data", "spec"),
    ("data", "spec", "workload"),
    ("data", "spec", "workload", "manifests"),
    ("data", "spec", "workload", "manifests", 0),
    ("data", "spec", "workload", "manifests", 0, "apiVersion"),
    ("data", "spec", "workload", "manifests", 0, "kind"),
    ("data", "spec", "workload", "manifests", 0, "metadata"),
    ("data", "spec", "workload", "manifests", 0, "metadata", "name"),
    ("data", "spec", "workload", "manifests", 0, "metadata", "namespace"),
    ("data", "spec", "workload", "manifests", 0, "data"),
    ("data", "spec", "deleteOption"),
    ("data", "spec", "manifestConfigs"),
    ("data", "spec", "manifestConfigs", 0),
    ("data", "spec", "manifestConfigs", 0, "resourceIdentifier"),
    ("data", "spec", "manifestConfigs", 0, "feedbackRules"),
    ("data", "spec", "manifestConfigs", 0, "updateStrategy"),
    ("data", "spec", "somethingElse"),
)


async def test_a_work_that_is_bent_in_one_place_is_taken_or_refused(front_of_maestro: Front) -> None:
    front = front_of_maestro
    await front.accept("POST", "/api/v0/management_clusters", FULL, account=OPERATOR)
    loop = asyncio.get_running_loop()

    @settings(max_examples=300, deadline=None, suppress_health_check=QUIET, database=None)
    @given(place=st.sampled_from(PLACES), value=JSON)
    def check(place: tuple[Any, ...], value: Any) -> None:
        body = copy.deepcopy(PAYLOAD)
        inside: Any = body
        for step in place[:-1]:
            inside = inside[step]
        inside[place[-1]] = value
        asked = front.call("POST", "/api/v0/work", body, account=OPERATOR)
        status, answer = asyncio.run_coroutine_threadsafe(asked, loop).result(120)
        assert status in (201, 400, 404, 409), (status, answer)
        assert status == 201 or (answer["kind"] == "Error" and answer["reason"])

    await asyncio.to_thread(check)
    listed = await front.accept("GET", "/api/v0/resource_bundles", account=OPERATOR)
    assert listed["kind"] == "ResourceBundleList"
