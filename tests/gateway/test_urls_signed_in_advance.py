"""A URL may carry its own signature: for as long as it says, for what it says, and no longer."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from regional.cloud.aws import Credentials
from regional.gateway import sigv4
from regional.gateway.refusals import Refusal

from .conftest import Door, Identities
from .signing import REGION, by_hand

KEY = Credentials("AKIAEXAMPLEEXAMPLE00", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HOST = "api.example.com:8443"
texts = st.text(st.characters(codec="utf-8"), max_size=12)


def presigned(credentials: Credentials, url: str, method: str = "GET", *, seconds: int = 60) -> str:
    request = AWSRequest(method, url)
    key = BotoCredentials(credentials.access_key, credentials.secret_key, credentials.session_token or None)
    SigV4QueryAuth(key, "execute-api", REGION, expires=seconds).add_auth(request)
    return str(request.url)


def verify(url: str, method: str = "GET", body: bytes = b"", secret: str = KEY.secret_key) -> sigv4.Claim:
    target = urlsplit(url)
    headers = [(b"host", target.netloc.encode())]
    path, query = sigv4.normal_path(target.path.encode()), target.query.encode()
    claim = sigv4.claim_of(headers, query)
    sigv4.check_signature(claim, secret, method, path, query, headers, hashlib.sha256(body).hexdigest())
    return claim


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(texts.filter(bool), texts, max_size=4), st.integers(1, 604_800))
def test_what_botocore_signs_in_advance_is_accepted(query: dict[str, str], seconds: int) -> None:
    text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    claim = verify(presigned(KEY, f"https://{HOST}/prod/api/v0/a?{text}", seconds=seconds))
    assert (claim.access_key, claim.expires) == (KEY.access_key, seconds)


def test_a_signature_in_advance_is_for_one_request() -> None:
    url = presigned(KEY, f"https://{HOST}/a?b=c")
    verify(url)
    for bent, method, body in (
        (url, "POST", b""),
        (url, "GET", b"a body"),
        (url.replace("b=c", "b=d"), "GET", b""),
        (url + "&more=1", "GET", b""),
        (url.replace("/a?", "/b?"), "GET", b""),
        (url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"), "GET", b""),
        (url.replace("SignedHeaders=host", "SignedHeaders=host%3Bx-none"), "GET", b""),
    ):
        with pytest.raises(Refusal):
            verify(bent, method, body)
    with pytest.raises(Refusal):
        verify(url, secret="another")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("X-Amz-Expires=60", "X-Amz-Expires=604801"), "X-Amz-Expires"),
        (("X-Amz-Expires=60", "X-Amz-Expires=-1"), "X-Amz-Expires"),
        (("X-Amz-Expires=60", "X-Amz-Expires="), "'X-Amz-Expires'"),
        (("X-Amz-Expires=60", "X-Amz-Expires=60&X-Amz-Expires=60"), "once"),
        (("X-Amz-Date=", "X-Amz-Date=x"), "X-Amz-Date"),
        (("X-Amz-Credential=", "X-Amz-Credentials="), "'X-Amz-Credential'"),
        (("X-Amz-Signature=", "x-amz-signature="), "'X-Amz-Signature'"),
        (("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), "Missing Authentication Token"),
    ],
)
def test_a_claim_in_a_query_is_whole_or_nothing(change: tuple[str, str], word: str) -> None:
    with pytest.raises(Refusal) as refused:
        verify(presigned(KEY, f"https://{HOST}/a").replace(*change))
    assert word in refused.value.message


def test_it_holds_as_long_as_it_says() -> None:
    claim = verify(presigned(KEY, f"https://{HOST}/a", seconds=600))
    made = datetime.strptime(claim.timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    for seconds in (-300, 0, 301, 600):
        sigv4.check_time(claim, made + timedelta(seconds=seconds))
    for seconds in (-301, 601):
        with pytest.raises(Refusal):
            sigv4.check_time(claim, made + timedelta(seconds=seconds))


async def test_it_passes_the_edge_and_only_the_caller_s_own_parameters_go_on(
    door: Door, identities: Identities
) -> None:
    for who in (identities.user, identities.session):
        url = presigned(who, f"{door.url}/prod/api/v0/clusters?limit=5")
        status, seen, _ = await door.send("GET", url, {})
        assert (status, seen["path"], seen["query"]) == (200, "/api/v0/clusters", "limit=5")
        assert dict(seen["headers"])["x-amz-account-id"] == identities.account
    status, seen, _ = await door.send("GET", presigned(identities.user, f"{door.url}/a"), {})
    assert (status, seen["query"]) == (200, "")


async def test_one_signature_is_enough(door: Door, identities: Identities) -> None:
    headers: dict[str, Any] = by_hand(identities.user, "GET", door.host, "/a")
    status, answer, _ = await door.send("GET", presigned(identities.user, f"{door.url}/a"), headers)
    assert (status, "not in both" in answer["message"]) == (403, True)
    assert door.received == []


async def test_a_session_s_token_is_part_of_it(door: Door, identities: Identities) -> None:
    session = identities.session
    url = presigned(Credentials(session.access_key, session.secret_key), f"{door.url}/a")
    status, _, said = await door.send("GET", url, {"X-Amz-Security-Token": session.session_token})
    assert (status, said["x-amzn-errortype"]) == (403, "UnrecognizedClientException")
    assert door.received == []
