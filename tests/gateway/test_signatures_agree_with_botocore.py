"""Whatever botocore signs is accepted, and nothing that differs from it: checked on random requests."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from regional.cloud.aws import Credentials
from regional.gateway import sigv4
from regional.gateway.refusals import Refusal

from .signing import REGION, signed

KEY = Credentials("AKIAEXAMPLEEXAMPLE00", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HOST = "api.example.com:8443"

texts = st.text(st.characters(codec="utf-8"), max_size=12)
segments = st.text("abcXYZ019-_~", max_size=8) | st.sampled_from(
    ["..", ".", "", "a%20b", "%2F", "%C3%BC", "a+b", "x=y", "@", "a:b"]
)
paths = st.lists(segments, max_size=5).map(lambda parts: "/" + "/".join(parts))
queries = st.lists(st.tuples(texts, texts), max_size=5)
header_values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
header_names = st.from_regex(r"x-[b-z]{1,8}", fullmatch=True)
bodies = st.binary(max_size=200)
methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"])

Wire = tuple[str, bytes, bytes, list[tuple[bytes, bytes]]]


def wire(request: Any) -> Wire:
    """Method, path, query and headers as a server receives what botocore sends."""
    prepared = request.prepare()
    target = urlsplit(prepared.url)
    headers = [(b"host", target.netloc.encode())]
    for name, value in prepared.headers.items():
        headers.append((name.lower().encode(), value if isinstance(value, bytes) else value.encode()))
    return request.method, target.path.encode(), target.query.encode(), headers


def verify(sent: Wire, body: bytes, secret: str = KEY.secret_key) -> None:
    method, path, query, headers = sent
    claim = sigv4.claim_of(headers)
    digest = hashlib.sha256(body).hexdigest()
    sigv4.check_signature(claim, secret, method, sigv4.normal_path(path), query, headers, digest)


@settings(max_examples=200, deadline=None)
@given(methods, paths, queries, st.dictionaries(header_names, header_values, max_size=3), bodies)
def test_what_botocore_signs_is_accepted(
    method: str, path: str, query: list[tuple[str, str]], extra: dict[str, str], body: bytes
) -> None:
    request = signed(KEY, method, f"https://{HOST}{path}", params=query, headers=extra, body=body)
    verify(wire(request), body)


@settings(max_examples=100, deadline=None)
@given(queries)
def test_a_query_inside_the_url_is_accepted_however_it_is_encoded(query: list[tuple[str, str]]) -> None:
    for encode in (quote, quote_plus):
        text = "&".join(f"{encode(name)}={encode(value)}" for name, value in query)
        verify(wire(signed(KEY, "GET", f"https://{HOST}/prod/api?{text}")), b"")


@settings(max_examples=60, deadline=None)
@given(st.lists(header_values, min_size=2, max_size=4))
def test_a_header_given_several_times_counts_as_its_values_in_order(values: list[str]) -> None:
    request = AWSRequest("GET", f"https://{HOST}/a")
    for value in values:
        request.headers.add_header("x-many", value)
    SigV4Auth(BotoCredentials(KEY.access_key, KEY.secret_key), "execute-api", REGION).add_auth(request)
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    verify(("GET", b"/a", b"", [(b"host", HOST.encode()), *headers]), b"")


@settings(max_examples=150, deadline=None)
@given(methods, paths, queries, bodies, st.data())
def test_any_single_change_is_refused(
    method: str, path: str, params: list[tuple[str, str]], body: bytes, data: st.DataObject
) -> None:
    request = signed(KEY, method, f"https://{HOST}{path}", params=params, body=body, headers={"x-kept": "value"})
    sent_method, sent_path, query, headers = wire(request)
    secret = KEY.secret_key
    change = data.draw(st.sampled_from(["method", "path", "query", "body", "header", "host", "date", "secret"]))
    if change == "method":
        sent_method = data.draw(methods.filter(lambda other: other != method))
    elif change == "path":
        sent_path += b"/more"
    elif change == "query":
        query = query + b"&extra=1" if query else b"extra=1"
    elif change == "body":
        body += b"!"
    elif change == "secret":
        secret = "another"
    else:
        name = {"header": b"x-kept", "host": b"host", "date": b"x-amz-date"}[change]
        replacement = b"20200101T000000Z" if change == "date" else b"other"
        headers = [(n, replacement if n == name else v) for n, v in headers]
    with pytest.raises(Refusal):
        verify((sent_method, sent_path, query, headers), body, secret)


def test_a_date_header_serves_instead_of_x_amz_date() -> None:
    request = signed(KEY, "GET", f"https://{HOST}/a", headers={"Date": "replaced by botocore"})
    assert "X-Amz-Date" not in request.headers
    verify(wire(request), b"")


def test_the_signing_key_is_derived_as_the_specification_prints_it() -> None:
    key = sigv4.signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830", "us-east-1", "iam")
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        (b"/", b"/"),
        (b"//a///b", b"/a/b"),
        (b"/a/./b/../c/", b"/a/c/"),
        (b"/../../etc", b"/etc"),
        (b"/a/%2e%2e/b", b"/a/%2e%2e/b"),
        (b"/..", b"/"),
    ],
)
def test_paths_lose_their_tricks(path: bytes, normal: bytes) -> None:
    assert sigv4.normal_path(path) == normal
