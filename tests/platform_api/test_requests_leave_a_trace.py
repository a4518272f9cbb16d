"""What is left of a request: one line with its id, its time and what it was about, and a count."""

from __future__ import annotations

import logging
from typing import Any

import aiohttp
import prometheus_client
import pytest

from .conftest import ADA, SECRET, Front

CLUSTERS = "/api/v0/clusters"


def spans(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if getattr(record, "span", "") == "platform_api.request"]


async def test_one_span_for_each_request_about_the_thing_it_made_or_named(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "regional.platform_api"):
        made = await front.accept("POST", CLUSTERS, {"name": "demo"})
        await front.accept("GET", f"{CLUSTERS}/{made['id']}")
        await front.refuse("GET", CLUSTERS, account="999999999999")
        await front.accept("GET", "/api/v0/live")
    created, read, refused = spans(caplog)
    assert (created["operation"], created["resource"], created["status"]) == ("createCluster", made["id"], 201)
    assert (created["request_id"], created["account"]) == ("request-1", ADA)
    assert created["ms"] > 0
    assert (read["operation"], read["resource"]) == ("getCluster", made["id"])
    assert (refused["status"], refused["resource"]) == (403, "")
    assert SECRET not in caplog.text


async def test_the_answer_names_the_request_and_what_it_made(front: Front) -> None:
    headers = {
        "X-Gateway-Secret": SECRET,
        "X-Amz-Account-Id": ADA,
        "X-Amz-Caller-Arn": f"arn:aws:iam::{ADA}:user/someone",
    }
    async with aiohttp.ClientSession() as session:
        async with session.post(front.url + CLUSTERS, json={"name": "demo"}, headers=headers) as answer:
            assert answer.headers["X-Resource-Id"] == (await answer.json())["id"]
            assert len(answer.headers["X-Request-Id"]) == 36
        bad = headers | {"X-Request-Id": "with space"}
        async with session.get(front.url + CLUSTERS, headers=bad) as answer:
            assert answer.headers["X-Request-Id"] != "with space"


async def test_requests_are_counted_by_operation_and_status(front: Front) -> None:
    def counted(status: str) -> float:
        labels = {"operation": "createCluster", "status": status}
        return prometheus_client.REGISTRY.get_sample_value("platform_api_requests_total", labels) or 0.0

    before = counted("201"), counted("400")
    await front.accept("POST", CLUSTERS, {"name": "demo"})
    await front.refuse("POST", CLUSTERS, {"name": ""})
    assert (counted("201") - before[0], counted("400") - before[1]) == (1, 1)
