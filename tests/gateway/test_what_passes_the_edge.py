"""Headers, sizes, times and failures: what goes on, what comes back, what is logged."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import prometheus_client
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from regional.core import pki
from regional.core.logs import JsonFormatter
from regional.gateway.app import BODY_LIMIT
from tests.cloud.conftest import Host

from .conftest import SECRET, Door, Identities, running_edge
from .signing import by_hand, signed

IDENTITY = ("X-Amz-Account-Id", "x-amz-caller-arn", "X-AMZ-USER-ID", "x-Amz-Source-Ip", "X-Amz-Request-Id")
FORGED = (*IDENTITY, "X-Amz-Principal-Org-Id", "X-Gateway-Secret", "x-tenant", "X-SYSTEM", "X-Actor", "Forwarded")


@pytest.mark.parametrize("name", [*FORGED, "X_Amz_Account_Id", "X-Forwarded-For"])
async def test_an_identity_that_a_client_claims_is_dropped(door: Door, identities: Identities, name: str) -> None:
    headers = by_hand(identities.user, "GET", door.host, "/a") | {name: "forged", "X-Kept": "kept"}
    status, seen, _ = await door.send("GET", f"{door.url}/a", headers)
    assert status == 200
    assert "forged" not in [value for _, value in seen["headers"]]
    assert "kept" in [value for _, value in seen["headers"]]


async def test_what_a_connection_header_names_is_dropped(door: Door, identities: Identities) -> None:
    headers = by_hand(identities.user, "GET", door.host, "/a") | {"Connection": "X-Hop", "X-Hop": "forged"}
    _, seen, _ = await door.send("GET", f"{door.url}/a", headers)
    assert "forged" not in [value for _, value in seen["headers"]]


@pytest.mark.parametrize(("given", "kept"), [("my-id-1", True), ("with space", False), ("x" * 200, False)])
async def test_a_request_id_is_kept_if_logs_can_hold_it(
    door: Door, identities: Identities, given: str, kept: bool
) -> None:
    headers = by_hand(identities.user, "GET", door.host, "/a") | {"X-Request-Id": given}
    _, seen, answered = await door.send("GET", f"{door.url}/a", headers)
    assert (answered["x-amzn-requestid"] == given) == kept
    assert dict(seen["headers"])["x-request-id"] == answered["x-amzn-requestid"] != ""


async def test_one_log_line_says_what_happened_and_no_secret(
    door: Door, identities: Identities, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "regional.gateway"):
        await door.send_prepared(signed(identities.session, "GET", f"{door.url}/prod/api/v0/live", params={"q": "1"}))
        await door.send("GET", f"{door.url}/nobody", {})
    lines = [json.loads(JsonFormatter("gateway").format(record)) for record in caplog.records]
    passed, refused = lines
    assert (passed["msg"], passed["span"]) == ("request", "gateway.request")
    assert (passed["account"], passed["status"], passed["method"]) == (identities.account, 200, "GET")
    assert passed["path"] == "/prod/api/v0/live"
    assert passed["ms"] > 0
    assert passed["request_id"]
    assert (refused["status"], refused["refused"]) == (403, "MissingAuthenticationTokenException")
    text = json.dumps(lines)
    for secret in (identities.session.secret_key, identities.session.session_token, SECRET, "Signature="):
        assert secret not in text


@pytest.mark.parametrize("twice", [True, False])
async def test_no_spelling_of_an_identity_passes_beside_the_proven_one(
    door: Door, identities: Identities, twice: bool
) -> None:
    spellings = ["x-amz-account-id", "X-AMZ-ACCOUNT-ID", "X-Amz_Account-Id", "x_amz_account_id", "X-Amz-Account_Id"]
    headers = [*by_hand(identities.user, "GET", door.host, "/a").items()]
    headers += [(name, "111111111111") for name in spellings for _ in range(2 if twice else 1)]
    _, seen, _ = await door.send("GET", f"{door.url}/a", headers)
    accounts = [value for name, value in seen["headers"] if "account" in name.replace("_", "-")]
    assert accounts == [identities.account]


async def test_the_span_names_what_a_request_made_or_asked_for(
    aws_host: Host,
    identities: Identities,
    tmp_path: Path,
    authority: pki.KeyPair,
    caplog: pytest.LogCaptureFixture,
) -> None:
    identifier = "0199c5a2-7d3e-7000-8000-000000000001"

    async def made(_: Request) -> Response:
        return Response(b"{}", 201, {"X-Resource-Id": "made-1"}, "application/json")

    async def found(_: Request) -> Response:
        return Response(b"{}", media_type="application/json")

    routes = [Route("/clusters", made, methods=["POST"]), Route(f"/clusters/{identifier}/status", found)]
    with caplog.at_level(logging.INFO, "regional.gateway"):
        async with running_edge(aws_host.url, tmp_path, authority, Starlette(routes=routes)) as door:
            await door.send_prepared(signed(identities.user, "POST", f"{door.url}/prod/clusters"))
            await door.send_prepared(signed(identities.user, "GET", f"{door.url}/prod/clusters/{identifier}/status"))
    lines = [record.__dict__ for record in caplog.records if getattr(record, "span", "") == "gateway.request"]
    assert [(line["resource"], line["status"]) for line in lines] == [("made-1", 201), (identifier, 200)]


async def test_requests_and_refusals_are_counted(door: Door, identities: Identities) -> None:
    def counted(name: str, **labels: str) -> float:
        return prometheus_client.REGISTRY.get_sample_value(name, labels) or 0.0

    def both() -> tuple[float, float]:
        return (
            counted("gateway_requests_total", method="GET", status="200"),
            counted("gateway_refusals_total", error="MissingAuthenticationTokenException"),
        )

    passed, refused = both()
    await door.send_prepared(signed(identities.user, "GET", f"{door.url}/a"))
    await door.send("GET", f"{door.url}/a", {})
    assert both() == (passed + 1, refused + 1)


async def test_an_answer_that_breaks_off_breaks_off_for_the_client_too(
    aws_host: Host, identities: Identities, tmp_path: Path, authority: pki.KeyPair
) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b'{"a":'
        raise ConnectionError("the upstream died")

    async def answer(_: Request) -> Response:
        return StreamingResponse(half())

    app = Starlette(routes=[Route("/a", answer)])
    async with running_edge(aws_host.url, tmp_path, authority, app) as door:
        with pytest.raises(aiohttp.ClientPayloadError):
            await door.send_prepared(signed(identities.user, "GET", f"{door.url}/a"))


async def test_a_body_up_to_ten_megabytes_passes(door: Door, identities: Identities) -> None:
    body = b"x" * BODY_LIMIT
    headers = by_hand(identities.user, "POST", door.host, "/a", body=body)
    status, seen, _ = await door.send("POST", f"{door.url}/a", headers, body)
    assert (status, len(seen["body"])) == (200, BODY_LIMIT)


async def test_a_larger_one_does_not_however_it_is_sent(door: Door, identities: Identities) -> None:
    body = b"x" * (BODY_LIMIT + 1)
    headers = by_hand(identities.user, "POST", door.host, "/a", body=body)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    for sent in (body, chunks()):
        status, answer, _ = await door.send("POST", f"{door.url}/a", headers, sent)
        assert (status, answer) == (413, {"message": f"HTTP content length exceeded {BODY_LIMIT} bytes."})
    assert door.received == []


async def test_headers_have_a_limit(door: Door, identities: Identities) -> None:
    headers = by_hand(identities.user, "GET", door.host, "/a") | {"X-Long": "x" * 11_000}
    assert (await door.send("GET", f"{door.url}/a", headers))[0] == 431


async def test_an_upstream_that_is_too_slow_times_out(
    aws_host: Host, identities: Identities, tmp_path: Path, authority: pki.KeyPair
) -> None:
    async def slow(_: Request) -> Response:
        await asyncio.sleep(30)
        return Response()

    app = Starlette(routes=[Route("/a", slow)])
    async with running_edge(aws_host.url, tmp_path, authority, app, deadline=0.2) as door:
        status, answer, headers = await door.send_prepared(signed(identities.user, "GET", f"{door.url}/a"))
    assert (status, answer) == (504, {"message": "Endpoint request timed out"})
    assert headers["x-amzn-errortype"] == "GatewayTimeoutException"


async def test_an_upstream_that_is_away_is_said_to_be(
    aws_host: Host, identities: Identities, tmp_path: Path, authority: pki.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regional.gateway.upstream.CONNECT_PATIENCE_SECONDS", 0.1)
    async with running_edge(aws_host.url, tmp_path, authority, False) as door:
        status, answer, _ = await door.send_prepared(signed(identities.user, "GET", f"{door.url}/a"))
    assert (status, answer) == (502, {"message": "Network error communicating with endpoint"})


async def test_answers_pass_back_as_they_are(
    aws_host: Host, identities: Identities, tmp_path: Path, authority: pki.KeyPair
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b'{"a":', b" 1}"):
            yield piece
            await asyncio.sleep(0.01)

    async def answer(_: Request) -> Response:
        return StreamingResponse(pieces(), 418, {"ETag": '"7"', "X-Amzn-RequestId": "upstream's own"})

    app = Starlette(routes=[Route("/a", answer)])
    async with running_edge(aws_host.url, tmp_path, authority, app) as door:
        status, body, headers = await door.send_prepared(signed(identities.user, "GET", f"{door.url}/a"))
    assert (status, body, headers["etag"]) == (418, {"a": 1}, '"7"')
    assert headers["x-amzn-requestid"] != "upstream's own"


async def test_known_callers_pass_while_aws_is_away_and_strangers_do_not(
    tmp_path: Path, authority: pki.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regional.gateway.keyring.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("regional.gateway.keyring.KNOWN_SECONDS", 0.0)
    host = Host(tmp_path)
    host.start()
    try:
        identities = Identities(host)
        stranger = identities.new_user("stranger")
        (tmp_path / "edge").mkdir()
        async with running_edge(host.url, tmp_path / "edge", authority) as door:

            async def call(who: Any) -> int:
                return (await door.send_prepared(signed(who, "GET", f"{door.url}/a")))[0]

            assert await call(identities.user) == 200
            host.kill()
            assert await call(identities.user) == 200
            assert await call(stranger) == 500
            monkeypatch.setattr("regional.gateway.keyring.PATIENCE_SECONDS", 60.0)
            host.start()
            assert await call(stranger) == 200
        identities.inside.close()
    finally:
        host.stop()
