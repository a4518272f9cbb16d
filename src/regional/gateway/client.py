"""The caller's side of the edge: requests signed by botocore, as any AWS tool would, and answers that can be read.

Blocking, because its callers are commands and pipeline steps. Nothing is repeated unless the caller says for how long;
whoever repeats a create decides what a second "exists already" means.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from regional.cloud.aws import Credentials

STAGE = "/prod"
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRANSIENT = frozenset({500, 502, 503, 504})


class ApiError(Exception):
    """An answer that says no. `code` and `reason` are the API's, or the edge's message."""

    def __init__(self, status: int, code: str, reason: str, errors: list[dict[str, Any]], request_id: str) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.reason = reason
        self.errors = errors
        self.request_id = request_id


class ApiUnreachable(ApiError):
    """No answer, or one that says that the region cannot answer now. The request may have been carried out."""


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    request_id: str

    def json(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None


def base_url(given: str) -> str:
    """`API_GATEWAY_URL` is a host in some guides, and a URL that may end in the stage in others."""
    text = given.strip().rstrip("/")
    url = text if "://" in text else f"https://{text}"
    return url if urlsplit(url).path else url + STAGE


class ApiClient:
    def __init__(
        self, url: str, region: str, credentials: Credentials, *, ca_file: str = "", timeout: float = 35.0
    ) -> None:
        import urllib3

        self.url = base_url(url)
        self.region = region
        self._credentials = credentials
        self._pool = urllib3.PoolManager(
            ca_certs=ca_file or None, timeout=urllib3.Timeout(connect=min(5.0, timeout), read=timeout), retries=False
        )

    def close(self) -> None:
        for key in self._pool.pools.keys():  # noqa: SIM118 - not a mapping
            self._pool.pools[key].close()  # `clear` leaves that to the garbage collector
        self._pool.clear()

    def get(self, path: str, query: Mapping[str, str] | None = None, *, patience: float = 0.0) -> Any:
        return self.call("GET", path, query=query, patience=patience).json()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        request_id: str = "",
        patience: float = 0.0,
    ) -> Answer:
        """`path` is below the base, such as /api/v0/clusters. Raises ApiError for everything that is not a success.

        For `patience` seconds an API that cannot be reached is asked again: only for what may be done twice.
        """
        deadline = time.monotonic() + patience
        pause = 0.1
        while True:
            try:
                return self._call_once(method, path, body, query or {}, request_id or str(uuid.uuid4()))
            except ApiUnreachable:
                if time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)

    def _call_once(self, method: str, path: str, body: Any, query: Mapping[str, str], request_id: str) -> Answer:
        import urllib3

        content = b"" if body is None else msgspec.json.encode(body)
        pairs = "&".join(f"{quote(key, safe='-_.~')}={quote(text, safe='-_.~')}" for key, text in query.items())
        url = self.url + _encoded(path) + (f"?{pairs}" if pairs else "")
        headers = {"Accept": "application/json", "X-Request-Id": request_id}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = self._pool.request(method, url, body=content, headers=self._signed(method, url, content, headers))
        except urllib3.exceptions.HTTPError as error:
            raise ApiUnreachable(0, "unreachable", f"{self.url}: {_plain(error)}", [], request_id) from None
        seen = answer.headers.get("x-amzn-requestid", request_id)
        if 200 <= answer.status < 300:
            return Answer(answer.status, answer.data, seen)
        raise _refusal(answer.status, answer.data, seen)

    def _signed(self, method: str, url: str, content: bytes, headers: dict[str, str]) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials as BotoCredentials

        known = self._credentials
        request = AWSRequest(method, url, data=content, headers=headers)
        key = BotoCredentials(known.access_key, known.secret_key, known.session_token or None)
        SigV4Auth(key, "execute-api", self.region).add_auth(request)
        return dict(request.headers.items())


def _encoded(path: str) -> str:
    """What goes over the wire is what is signed, so nothing may be left for urllib3 to encode. Escapes stay."""
    return quote(_NO_ESCAPE.sub("%25", path), safe="/%-_.~")


def _refusal(status: int, content: bytes, request_id: str) -> ApiError:
    try:
        body = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError:
        body = {}
    reason = str(body.get("reason") or body.get("message") or f"the API answers {status}")
    kind = ApiUnreachable if status in _TRANSIENT else ApiError
    return kind(status, str(body.get("code", "")), reason, list(body.get("errors") or []), request_id)


def _plain(error: Exception) -> str:
    """urllib3 wraps the cause, and the cause is what people can act on."""
    return str(getattr(error, "reason", "") or error)
