"""Requests signed by botocore, and the pieces of one signed by hand, so that a test can bend a single part."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from regional.cloud.aws import Credentials

REGION = "us-west-2"


def signed(
    credentials: Credentials,
    method: str,
    url: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    params: Any = None,
    region: str = REGION,
    service: str = "execute-api",
) -> AWSRequest:
    request = AWSRequest(method, url, data=body, headers=headers or {}, params=params or {})
    key = BotoCredentials(credentials.access_key, credentials.secret_key, credentials.session_token or None)
    SigV4Auth(key, service, region).add_auth(request)
    return request


def by_hand(
    credentials: Credentials,
    method: str,
    host: str,
    path: str,
    *,
    body: bytes = b"",
    at: datetime | None = None,
    hashed: str | None = None,
    signed_headers: tuple[str, ...] = ("host", "x-amz-content-sha256", "x-amz-date"),
) -> dict[str, str]:
    """As awscurl does it: the body's hash goes along in a header."""
    stamp = (at or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest() if hashed is None else hashed
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    canonical = "".join(f"{name}:{headers[name]}\n" for name in signed_headers)
    request = "\n".join([method, path, "", canonical, ";".join(signed_headers), digest])
    scope = f"{stamp[:8]}/{REGION}/execute-api/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (stamp[:8], REGION, "execute-api", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope},"
        f" SignedHeaders={';'.join(signed_headers)}, Signature={signature}"
    )
    return headers
