"""AWS Signature Version 4 from the verifier's side: what a request claims, and what its signature must be.

A claim is in the Authorization header, or in the query of a URL that was signed in advance. Pure: no clock, no
look-ups. Everything stays bytes, as it came over the wire, because a signature is over bytes. The body's hash is always
computed from the body that arrived; a hash that the client names may only agree with it.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote_to_bytes

import msgspec

from regional.gateway import refusals

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case, as ASGI gives them

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW = timedelta(minutes=5)
_STAMP = "%Y%m%dT%H%M%SZ"
_PART = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]*)\s*")
_UNRESERVED = "-_.~"
_LONGEST = timedelta(days=7)  # that a URL may be signed for
_SIGNATURE, _TOKEN = b"X-Amz-Signature", b"X-Amz-Security-Token"
_IN_QUERY = {
    b"X-Amz-Algorithm": "Algorithm",
    b"X-Amz-Credential": "Credential",
    b"X-Amz-Date": "Date",
    b"X-Amz-Expires": "Expires",
    b"X-Amz-SignedHeaders": "SignedHeaders",
    _SIGNATURE: "Signature",
    _TOKEN: "Token",
}


class Claim(msgspec.Struct, frozen=True):
    """What a request says about itself; nothing of it is proven yet."""

    access_key: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str
    timestamp: str
    session_token: str
    expires: int | None = None  # seconds; only of a URL that was signed in advance

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def claim_of(headers: Headers, query: bytes = b"") -> Claim:
    """Raises a Refusal that names every part that is missing."""
    given = single(headers, b"authorization")
    in_query = _query_parts(query)
    if given and in_query:
        raise refusals.incomplete("A request is signed in its Authorization header or in its query, not in both.")
    if in_query:
        return _claim_of_query(in_query)
    algorithm, _, rest = given.decode("latin-1").strip().partition(" ")
    if algorithm != ALGORITHM:
        raise refusals.missing_token()
    parts = dict(_parts(rest))
    timestamp = timestamp_of(headers)
    faults = [
        f"Authorization header requires '{name}' parameter."
        for name in ("Credential", "Signature", "SignedHeaders")
        if not parts.get(name)
    ]
    if not timestamp:
        faults.append("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    if faults:
        raise refusals.incomplete(" ".join(faults))
    return _claim(parts, timestamp, single(headers, b"x-amz-security-token").decode("latin-1"), None)


def _claim_of_query(parts: dict[str, str]) -> Claim:
    if parts.get("Algorithm") != ALGORITHM:
        raise refusals.missing_token()
    faults = [
        f"AWS query-string parameters must include 'X-Amz-{name}'."
        for name in ("Credential", "Date", "Expires", "Signature", "SignedHeaders")
        if not parts.get(name)
    ]
    if faults:
        raise refusals.incomplete(" ".join(faults))
    expires = parts["Expires"]
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 6) or int(expires) > _LONGEST.total_seconds():
        raise refusals.incomplete(f"X-Amz-Expires must be a number of seconds, at most {_LONGEST.total_seconds():.0f}.")
    if not _is_stamp(parts["Date"]):
        raise refusals.incomplete("X-Amz-Date must be like 20260131T235959Z.")
    return _claim(parts, parts["Date"], parts.get("Token", ""), int(expires))


def _claim(parts: dict[str, str], timestamp: str, token: str, expires: int | None) -> Claim:
    scope = parts["Credential"].split("/")
    if len(scope) != 5 or scope[4] != "aws4_request":
        raise refusals.incomplete("Credential must have exactly 5 slash-delimited elements, the last 'aws4_request'.")
    names = tuple(parts["SignedHeaders"].split(";"))
    if "host" not in names:
        raise refusals.bad_signature("'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.")
    if names != tuple(sorted({name.lower() for name in names})):
        raise refusals.bad_signature()
    return Claim(scope[0], scope[1], scope[2], scope[3], names, parts["Signature"], timestamp, token, expires)


def check_scope(claim: Claim, region: str, service: str) -> None:
    if claim.region != region:
        raise refusals.bad_signature(f"Credential should be scoped to a valid region, not '{_shown(claim.region)}'.")
    if claim.service != service:
        raise refusals.bad_signature(f"Credential should be scoped to correct service: '{service}'.")
    if claim.date != claim.timestamp[:8]:
        raise refusals.bad_signature(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP:"
            f" '{_shown(claim.date)}' != '{claim.timestamp[:8]}'."
        )


def check_time(claim: Claim, now: datetime) -> None:
    moment = datetime.strptime(claim.timestamp, _STAMP).replace(tzinfo=UTC)
    if claim.expires is not None:
        ending = moment + timedelta(seconds=claim.expires)
        if ending < now:
            raise refusals.bad_signature(f"Signature expired: {_stamp(ending)} is now earlier than {_stamp(now)}")
    elif moment < now - SKEW:
        raise refusals.bad_signature(
            f"Signature expired: {claim.timestamp} is now earlier than {_stamp(now - SKEW)} ({_stamp(now)} - 5 min.)"
        )
    if moment > now + SKEW:
        raise refusals.bad_signature(
            f"Signature not yet current: {claim.timestamp} is still later than {_stamp(now + SKEW)}"
            f" ({_stamp(now)} + 5 min.)"
        )


def check_signature(
    claim: Claim, secret_key: str, method: str, path: bytes, query: bytes, headers: Headers, body_hash: str
) -> None:
    """`path` is normalised and still percent-encoded."""
    named = single(headers, b"x-amz-content-sha256").decode("latin-1")
    if named and not hmac.compare_digest(named.encode(), body_hash.encode()):
        raise refusals.bad_signature()  # also UNSIGNED-PAYLOAD and the streaming forms
    key = signing_key(secret_key, claim.date, claim.region, claim.service)
    signed = canonical_headers(headers, claim.signed_headers)
    matches = False
    for canonical in dict.fromkeys((canonical_query(query), sorted_query(query))):
        request = canonical_request(method, path, canonical, signed, claim.signed_headers, body_hash)
        expected = hmac.new(key, string_to_sign(claim, request), hashlib.sha256).hexdigest()
        matches |= hmac.compare_digest(expected.encode(), claim.signature.encode())
    if not matches:
        raise refusals.bad_signature()


def canonical_request(
    method: str, path: bytes, query: bytes, headers: bytes, signed_headers: Iterable[str], body_hash: str
) -> bytes:
    # Everybody but S3 encodes the path once more, so a per cent sign in it becomes %25.
    encoded = quote(path, safe="/~").encode()
    names = ";".join(signed_headers).encode("latin-1")
    return b"\n".join([method.upper().encode(), encoded, query, headers, names, body_hash.encode()])


def string_to_sign(claim: Claim, request: bytes) -> bytes:
    digest = hashlib.sha256(request).hexdigest()
    return "\n".join([ALGORITHM, claim.timestamp, claim.scope, digest]).encode()


@functools.lru_cache(maxsize=4096)
def signing_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    """Good for a day, so that a busy caller costs one HMAC a request instead of five."""
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def canonical_headers(headers: Headers, names: Iterable[str]) -> bytes:
    lines = []
    for name in names:
        wanted = name.encode("latin-1")
        values = [b" ".join(value.split()) for header, value in headers if header == wanted]
        if not values:
            raise refusals.bad_signature()
        lines.append(wanted + b":" + b",".join(values) + b"\n")
    return b"".join(lines)


def canonical_query(query: bytes) -> bytes:
    """Decoded as the API behind us will decode it, encoded as the specification says, sorted."""
    pairs = (pair.partition(b"=") for pair in query.split(b"&") if pair)
    return _joined((_encoded(name), _encoded(value)) for name, _, value in pairs if name != _SIGNATURE)


def sorted_query(query: bytes) -> bytes:
    """What botocore signs when the query is part of a URL: each pair as it stands."""
    if not query:
        return b""
    pairs = (pair.partition(b"=") for pair in query.split(b"&"))
    return _joined((name, value) for name, _, value in pairs if name != _SIGNATURE)


def without_claim(query: bytes) -> bytes:
    """The caller's own parameters: the signature was for the edge."""
    return b"&".join(pair for pair in query.split(b"&") if pair.partition(b"=")[0] not in _IN_QUERY)


def normal_path(path: bytes) -> bytes:
    """Without dot segments and doubled slashes: what is signed is also what is asked for."""
    kept: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del kept[-1:]
        elif part and part != b".":
            kept.append(part)
    closing = b"/" if kept and path.endswith(b"/") else b""
    return b"/" + b"/".join(kept) + closing


def timestamp_of(headers: Headers) -> str:
    """In the basic ISO form; empty if there is none that can be read."""
    if stamp := single(headers, b"x-amz-date").decode("latin-1").strip():
        return stamp if _is_stamp(stamp) else ""
    try:
        return _stamp(parsedate_to_datetime(single(headers, b"date").decode("latin-1")))
    except (ValueError, TypeError, OverflowError):
        return ""


def single(headers: Headers, name: bytes) -> bytes:
    """The value of a header that may be there once. Two of them are two truths: refused."""
    values = [value for header, value in headers if header == name]
    if len(values) > 1:
        raise refusals.incomplete(f"'{name.decode('latin-1')}' may be given once.")
    return values[0] if values else b""


def _query_parts(query: bytes) -> dict[str, str]:
    """Parts of a claim in a query; empty if it has none of them."""
    found: dict[str, str] = {}
    for name, _, value in (pair.partition(b"=") for pair in query.split(b"&")):
        if (part := _IN_QUERY.get(name)) is None:
            continue
        if part in found:
            raise refusals.incomplete(f"'{name.decode()}' may be given once.")
        found[part] = unquote_to_bytes(value.replace(b"+", b" ")).decode("latin-1")
    return found


def _is_stamp(text: str) -> bool:
    try:
        datetime.strptime(text, _STAMP)
    except ValueError:
        return False
    return len(text) == 16 and text.isascii()  # strptime also reads shorter and other digits


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for piece in text.split(","):
        if found := _PART.fullmatch(piece):
            yield found.group(1), found.group(2)


def _joined(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"&".join(name + b"=" + value for name, value in sorted(pairs))


def _encoded(text: bytes) -> bytes:
    return quote(unquote_to_bytes(text.replace(b"+", b" ")), safe=_UNRESERVED).encode()


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_STAMP)


def _shown(text: str) -> str:
    return text[:64] if text.isprintable() else "?"
