"""Who comes in, and what those who do not are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from regional.cloud.aws import Credentials
from regional.core.clock import ManualClock
from regional.gateway.keyring import KNOWN_SECONDS, UNKNOWN_SECONDS, KeyRing, LookupFailed
from tests.cloud.conftest import TOKEN, Host

from .conftest import Door, Identities
from .signing import by_hand, signed


def said(seen: dict[str, Any], name: str) -> list[str]:
    return [value for header, value in seen["headers"] if header == name.lower()]


async def test_a_user_of_iam_passes_with_the_identity_that_was_proven(door: Door, identities: Identities) -> None:
    request = signed(
        identities.user, "POST", f"{door.url}/prod/api/v0/clusters", params={"a": "b c"}, body=b'{"name": "demo"}'
    )
    status, seen, headers = await door.send_prepared(request)
    assert status == 200
    assert (seen["method"], seen["path"], seen["query"]) == ("POST", "/api/v0/clusters", "a=b+c")
    assert seen["body"] == '{"name": "demo"}'
    assert said(seen, "X-Amz-Account-Id") == [identities.account]
    assert said(seen, "X-Amz-Caller-Arn") == [f"arn:aws:iam::{identities.account}:user/ada"]
    assert said(seen, "X-Amz-Source-Ip") == ["127.0.0.1"]
    assert said(seen, "X-Amz-User-Id") != [""]
    assert said(seen, "X-Amz-Request-Id") == said(seen, "X-Request-Id") == [headers["x-amzn-requestid"]]
    assert said(seen, "X-Gateway-Secret") == ["the secret between the edge and the API"]
    assert headers["x-said"] == "yes"


async def test_an_assumed_role_passes_with_its_session_token(door: Door, identities: Identities) -> None:
    status, seen, _ = await door.send_prepared(signed(identities.session, "GET", f"{door.url}/api/v0/live"))
    assert status == 200
    assert said(seen, "X-Amz-Account-Id") == [identities.account]
    assert said(seen, "X-Amz-Caller-Arn") == [
        f"arn:aws:sts::{identities.account}:assumed-role/OrganizationAccountAccessRole/ada"
    ]
    assert "x-amz-security-token" not in dict(seen["headers"])
    assert "authorization" not in dict(seen["headers"])


async def test_a_request_signed_by_hand_as_awscurl_does_passes(door: Door, identities: Identities) -> None:
    headers = by_hand(identities.user, "POST", door.host, "/prod/api/v0/work", body=b"{}")
    status, seen, _ = await door.send("POST", f"{door.url}/prod/api/v0/work", headers, b"{}")
    assert (status, seen["path"]) == (200, "/api/v0/work")


@pytest.mark.parametrize("path", ["/prod/api/v0/live", "/api/v0/live", "/prod//api/./v0/x/../live"])
async def test_the_stage_is_optional_and_paths_are_normal(door: Door, identities: Identities, path: str) -> None:
    status, seen, _ = await door.send_prepared(signed(identities.user, "GET", door.url + path))
    assert (status, seen["path"]) == (200, "/api/v0/live")


Bent = tuple[dict[str, str], str, int, str]
LIVE = "/api/v0/live"


def good(door: Door, identities: Identities, **options: Any) -> dict[str, str]:
    return by_hand(identities.user, "GET", door.host, LIVE, **options)


async def refused(door: Door, headers: dict[str, str], url: str = "", body: bytes = b"", method: str = "GET") -> Any:
    status, answer, said_headers = await door.send(method, url or door.url + LIVE, headers, body)
    assert status == 403, answer
    assert set(answer) == {"message"}
    assert door.received == []
    return answer["message"], said_headers["x-amzn-errortype"]


async def test_without_a_signature(door: Door) -> None:
    assert await refused(door, {}) == ("Missing Authentication Token", "MissingAuthenticationTokenException")
    basic = {"authorization": "Basic dXNlcjpwYXNz"}
    assert await refused(door, basic) == ("Missing Authentication Token", "MissingAuthenticationTokenException")


async def test_every_missing_part_is_named(door: Door) -> None:
    message, kind = await refused(door, {"authorization": "AWS4-HMAC-SHA256 SignedHeaders=host"})
    assert kind == "IncompleteSignatureException"
    for part in ("'Credential'", "'Signature'", "'X-Amz-Date' or a 'Date'"):
        assert part in message
    assert "'SignedHeaders'" not in message


@pytest.mark.parametrize(("minutes", "words"), [(-6, "Signature expired"), (6, "Signature not yet current")])
async def test_too_old_or_too_young(door: Door, identities: Identities, minutes: int, words: str) -> None:
    message, kind = await refused(door, good(door, identities, at=datetime.now(UTC) + timedelta(minutes=minutes)))
    assert message.startswith(words)
    assert kind == "InvalidSignatureException"


@pytest.mark.parametrize("minutes", [-4, 4])
async def test_a_clock_a_little_off_is_forgiven(door: Door, identities: Identities, minutes: int) -> None:
    headers = good(door, identities, at=datetime.now(UTC) + timedelta(minutes=minutes))
    assert (await door.send("GET", door.url + LIVE, headers))[0] == 200


async def test_unknown_switched_off_and_foreign_keys(door: Door, identities: Identities) -> None:
    invalid = ("The security token included in the request is invalid.", "UnrecognizedClientException")
    for key in ("AKIANOBODYNOBODY0000", "../../moto-api/reset", "AKIA", "akia" * 5):
        headers = by_hand(Credentials(key, "x"), "GET", door.host, LIVE)
        _, kind = await refused(door, headers)
        assert kind in ("UnrecognizedClientException", "IncompleteSignatureException")
    off = identities.new_user("bob")
    identities.switch("bob", off, "Inactive")
    assert await refused(door, by_hand(off, "GET", door.host, LIVE)) == invalid


async def test_a_key_that_is_taken_away_is_refused_though_it_was_known(
    door: Door, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switched off, switched on again, deleted: the edge learns of it when its memory is over."""
    monkeypatch.setattr("regional.gateway.keyring.KNOWN_SECONDS", 0.0)
    monkeypatch.setattr("regional.gateway.keyring.UNKNOWN_SECONDS", 0.0)
    key = identities.new_user("carol")

    async def status() -> int:
        return (await door.send_prepared(signed(key, "GET", door.url + LIVE)))[0]

    assert await status() == 200
    identities.switch("carol", key, "Inactive")
    assert await status() == 403
    identities.switch("carol", key, "Active")
    assert await status() == 200
    identities.delete_key("carol", key)
    assert await status() == 403


async def test_what_is_known_of_a_key_is_remembered_for_seconds_only(
    aws_host: Host, tmp_path: Path, identities: Identities
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    clock = ManualClock()
    keys = KeyRing(aws_host.url, tmp_path / "token", clock)
    key = identities.new_user("dora")
    try:
        assert (await keys.owner_of(key.access_key)) is not None
        identities.switch("dora", key, "Inactive")
        assert (await keys.owner_of(key.access_key)) is not None
        await clock.advance(KNOWN_SECONDS)
        assert (await keys.owner_of(key.access_key)) is None
        identities.switch("dora", key, "Active")
        assert (await keys.owner_of(key.access_key)) is None
        await clock.advance(UNKNOWN_SECONDS)
        assert (await keys.owner_of(key.access_key)) is not None
    finally:
        await keys.close()


async def test_a_wrong_token_for_the_look_up_lets_nobody_in(
    aws_host: Host, tmp_path: Path, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regional.gateway.keyring.PATIENCE_SECONDS", 0.0)
    (tmp_path / "token").write_text("wrong")
    keys = KeyRing(aws_host.url, tmp_path / "token")
    try:
        with pytest.raises(LookupFailed):
            await keys.owner_of(identities.user.access_key)
    finally:
        await keys.close()


async def test_a_wrong_secret(door: Door, identities: Identities) -> None:
    headers = by_hand(Credentials(identities.user.access_key, "wrong"), "GET", door.host, LIVE)
    message, kind = await refused(door, headers)
    assert message.startswith("The request signature we calculated does not match")
    assert kind == "InvalidSignatureException"


async def test_session_tokens_belong_to_their_key(door: Door, identities: Identities) -> None:
    session, user = identities.session, identities.user
    for bent in (
        Credentials(session.access_key, session.secret_key, ""),
        Credentials(session.access_key, session.secret_key, "other"),
        Credentials(user.access_key, user.secret_key, session.session_token),
    ):
        headers = dict(signed(bent, "GET", door.url + LIVE).headers.items())
        assert (await refused(door, headers))[1] == "UnrecognizedClientException"


async def test_another_region_service_or_day(door: Door, identities: Identities) -> None:
    for options, word in (({"region": "eu-west-1"}, "region"), ({"service": "s3"}, "'execute-api'")):
        request = signed(identities.user, "GET", door.url + LIVE, **options)  # type: ignore[arg-type]
        assert word in (await refused(door, dict(request.headers.items())))[0]
    headers = good(door, identities)
    day = headers["x-amz-date"][:8]
    headers["authorization"] = headers["authorization"].replace(f"/{day}/", "/20200101/")
    assert "does not match YYYYMMDD" in (await refused(door, headers))[0]


async def test_a_signature_made_for_another_host(door: Door, identities: Identities) -> None:
    headers = by_hand(identities.user, "GET", "api.elsewhere.example:8443", LIVE)
    assert await refused(door, headers) == ("Forbidden", "ForbiddenException")


async def test_the_host_must_be_signed(door: Door, identities: Identities) -> None:
    headers = good(door, identities, signed_headers=("x-amz-date",))
    assert "'Host'" in (await refused(door, headers))[0]


async def test_nothing_may_be_changed_on_the_way(door: Door, identities: Identities) -> None:
    kind = "InvalidSignatureException"
    body = by_hand(identities.user, "POST", door.host, LIVE, body=b"a")
    assert (await refused(door, body, body=b"b", method="POST"))[1] == kind
    del body["x-amz-content-sha256"]
    assert (await refused(door, body, body=b"a", method="POST"))[1] == kind
    assert (await refused(door, good(door, identities), door.url + LIVE + "/more"))[1] == kind
    assert (await refused(door, good(door, identities), door.url + LIVE + "?a=1"))[1] == kind
    assert (await refused(door, good(door, identities), method="DELETE"))[1] == kind
    kept = dict(signed(identities.user, "GET", door.url + LIVE, headers={"x-kept": "a"}).headers.items())
    assert (await refused(door, kept | {"x-kept": "b"}))[1] == kind
    assert (await refused(door, {name: value for name, value in kept.items() if name != "x-kept"}))[1] == kind


@pytest.mark.parametrize("hashed", ["UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "0" * 64])
async def test_a_body_must_be_signed(door: Door, identities: Identities, hashed: str) -> None:
    headers = by_hand(identities.user, "POST", door.host, LIVE, body=b"a", hashed=hashed)
    assert (await refused(door, headers, body=b"a", method="POST"))[1] == "InvalidSignatureException"


async def test_two_truths_are_none(door: Door, identities: Identities) -> None:
    headers = good(door, identities)
    for name in ("authorization", "x-amz-date"):
        twice = [*headers.items(), (name, headers[name])]
        status, answer, _ = await door.send("GET", door.url + LIVE, twice)
        assert (status, answer) == (403, {"message": f"'{name}' may be given once."})
