"""Who asks. The edge has proven it and says so in headers; they are believed only beside the secret of the two.

In the cloud API Gateway adds the same headers and the same secret in its integration request.
"""

from __future__ import annotations

import hmac
import re
from pathlib import Path

import msgspec
from starlette.requests import Request

from regional.platform_api.errors import ApiError

_ACCOUNT = re.compile(r"[0-9]{12}")


class Caller(msgspec.Struct, frozen=True):
    account: str
    arn: str


class GatewaySecret:
    """Read again when the file changes, so that a rotated secret needs no restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._value = b""

    def matches(self, given: str) -> bool:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            if seen != self._seen:
                self._value, self._seen = self._path.read_bytes().strip(), seen
        except OSError:
            return False
        return bool(self._value) and hmac.compare_digest(self._value, given.encode())


def caller_of(request: Request, secret: GatewaySecret) -> Caller:
    headers = request.headers
    if not secret.matches(headers.get("x-gateway-secret", "")):
        raise ApiError(403, "not-from-gateway", "requests are taken from the region's gateway only")
    account = headers.get("x-amz-account-id", "")
    if not _ACCOUNT.fullmatch(account):
        raise ApiError(403, "missing-account-id", "the request has no X-Amz-Account-Id")
    arn = headers.get("x-amz-caller-arn", "")
    if not arn or len(arn) > 256 or not arn.isprintable():
        raise ApiError(403, "missing-caller-arn", "the request has no X-Amz-Caller-Arn")
    return Caller(account, arn)
