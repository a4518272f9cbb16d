"""What the customers' commands share: the signed session, names for ids, refusals in words, completion of names.

Everything comes from the environment that `eval "$(regionctl env)"` sets, which AWS's own tools read too; with the
URL of a region in the cloud there, the same commands work on it.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from regional.core.problems import UserError

if TYPE_CHECKING:
    from regional.gateway.client import Answer, ApiClient, ApiError

Document = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

SETTINGS_HINT = 'run: eval "$(regionctl env)"'
UNREACHABLE = 3  # as `regionctl status` has it for a region that does not run
TIMED_OUT = 4
PATIENCE = 1.0  # reads are repeated for so long; commands that wait have a patience of their own
_PAGE = 100
_COMPLETION_SECONDS = 1.5
_UUID_LENGTH = 36

_PATHS = {"cluster": "/api/v0/clusters", "node pool": "/api/v0/nodepools"}


class Session:
    """The API as one caller uses it for one command."""

    def __init__(self, client: ApiClient, *, verbose: bool = False, patience: float = PATIENCE) -> None:
        self._client = client
        self._verbose = verbose
        self._patience = patience

    @property
    def url(self) -> str:
        return self._client.url

    def get(self, path: str, query: dict[str, str] | None = None) -> Any:
        return self.call("GET", path, query=query, patience=self._patience).json()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        request_id: str = "",
        patience: float = 0.0,
    ) -> Answer:
        from regional.gateway.client import ApiError

        started = time.monotonic()
        try:
            answer = self._client.call(method, path, body, query=query, request_id=request_id, patience=patience)
        except ApiError as error:
            self._tell(method, path, error.status, error.request_id, started)
            raise
        self._tell(method, path, answer.status, answer.request_id, started)
        return answer

    def pages(self, path: str, query: dict[str, str] | None = None, *, most: int = 0) -> Iterator[Document]:
        """Every item of a list with `limit` and `offset`, or the first `most`."""
        offset = 0
        seen: set[str] = set()
        while True:
            size = min(_PAGE, most - offset) if most else _PAGE
            page = self.get(path, {**(query or {}), "limit": str(size), "offset": str(offset)})
            for item in page["items"]:
                key = str(item.get("id") or item.get("accountId"))
                if key not in seen:  # something new at the front moved it to this page too
                    seen.add(key)
                    yield item
            offset += len(page["items"])
            if not page["items"] or offset >= page["total"] or (most and offset >= most):
                return

    def numbered_pages(self, path: str, query: dict[str, str] | None = None, *, most: int = 0) -> Iterator[Document]:
        """The same for lists with `page` and `size`, Maestro's habit."""
        number, seen = 1, 0
        while True:
            page = self.get(path, {**(query or {}), "page": str(number), "size": str(_PAGE)})
            for item in page["items"]:
                if most and seen >= most:
                    return
                seen += 1
                yield item
            if not page["items"] or number * _PAGE >= page["total"]:
                return
            number += 1

    def find(self, what: str, given: str, **narrowed: str) -> Document:
        """The one resource that an id or a name means. `what` is a key of `_PATHS`."""
        path = _PATHS[what]
        if is_id(given):
            return self._by_id(what, given)
        query = {"name": given, **narrowed}
        found = list(self.pages(path, query, most=_PAGE))
        if len(found) > 1:
            listed = ", ".join(item["id"] for item in found[:5])
            hint = "say which cluster's with --cluster, or give the id" if what == "node pool" else "give the id"
            raise UserError(f"{len(found)} {what}s have the name {given}: {listed}", hint)
        return found[0] if found else self._not_found(what, given, narrowed)

    def find_or_none(self, what: str, given: str, **narrowed: str) -> Document | None:
        from regional.gateway.client import ApiError

        path = _PATHS[what]
        if not is_id(given):
            return next(self.pages(path, {"name": given, **narrowed}, most=1), None)
        try:
            return dict(self.get(f"{path}/{given}"))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _by_id(self, what: str, given: str) -> Document:
        found = self.find_or_none(what, given)
        return found if found is not None else self._not_found(what, given, {})

    def _not_found(self, what: str, given: str, narrowed: dict[str, str]) -> NoReturn:
        names = sorted({item["name"] for item in self.pages(_PATHS[what], narrowed, most=_PAGE)})
        near = difflib.get_close_matches(given, names, 1)
        if near:
            hint = f"did you mean {near[0]}?"
        else:
            hint = f"{what}s: {', '.join(names[:20])}" if names else f"this account has no {what}s"
        raise UserError(f"there is no {what} {given!r}", hint)

    def _tell(self, method: str, path: str, status: int, request_id: str, started: float) -> None:
        if self._verbose:
            took = (time.monotonic() - started) * 1000
            click.echo(f"{method} {path} → {status or 'no answer'} in {took:.0f} ms, request {request_id}", err=True)


def is_id(given: str) -> bool:
    return len(given) == _UUID_LENGTH and all(letter in "0123456789abcdef-" for letter in given)


def connect(*, verbose: bool = False, timeout: float = 35.0, patience: float = PATIENCE) -> Session:
    from regional.cloud.aws import Credentials
    from regional.gateway.client import ApiClient

    environ = os.environ
    url = environ.get("API_GATEWAY_URL", "")
    if not url:
        raise UserError("API_GATEWAY_URL is not set: which region's API shall answer?", SETTINGS_HINT)
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    if not region:
        raise UserError("AWS_REGION is not set, and signatures name it", SETTINGS_HINT)
    key, secret = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
    if key and secret:
        credentials = Credentials(key, secret, environ.get("AWS_SESSION_TOKEN", ""))
    elif environ.get("AWS_PROFILE"):
        credentials = _of_profile(region)
    else:
        raise UserError("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set", SETTINGS_HINT)
    authority = environ.get("AWS_CA_BUNDLE") or environ.get("REQUESTS_CA_BUNDLE") or ""
    if authority and not os.path.isfile(authority):  # noqa: PTH113  pathlib's import is not free here
        raise UserError(f"AWS_CA_BUNDLE names a file that is not there: {authority}", SETTINGS_HINT)
    client = ApiClient(url, region, credentials, ca_file=authority, timeout=timeout)
    return Session(client, verbose=verbose, patience=patience)


def _of_profile(region: str) -> Any:
    from botocore.exceptions import BotoCoreError

    from regional.cloud.aws import Aws

    try:
        return Aws(region=region).frozen_credentials()
    except BotoCoreError as error:
        raise UserError(f"the AWS profile gives no credentials: {error}", "see ~/.aws/config") from None


# -- refusals in words ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """An answer that says no becomes one clear message with a hint."""
    from regional.gateway.client import ApiError

    try:
        yield
    except ApiError as error:
        raise in_words(error) from None


def in_words(error: ApiError) -> UserError:
    if error.status == 0:
        hint = "is the region running? `regionctl status` tells; after a new start the settings are new too: "
        if "certificate" in error.reason.lower():
            hint = "the certificate is not one of this region's authority: "
        return UserError(f"the region's API cannot be reached: {error.reason}", hint + SETTINGS_HINT, UNREACHABLE)
    if error.status >= 500:
        return UserError(f"{error.reason} ({error.status})", f"follow it: regionctl trace {error.request_id}")
    message = error.reason
    if error.errors:
        faults = [f"  {fault.get('field') or 'the body'}: {_words(fault)}" for fault in error.errors]
        message = "\n".join([f"refused, {len(faults)} field{'s are' if len(faults) > 1 else ' is'} wrong:", *faults])
    return UserError(message, _hint(error))


def _words(fault: Document) -> str:
    """Faults name their field; beside the field's own column that would be said twice."""
    return str(fault.get("message", "")).removeprefix(str(fault.get("field", ""))).strip()


def _hint(error: ApiError) -> str:
    if error.status == 403 and error.code == "account-not-allowed":
        return "an account that runs the region lets it in: regionctl account create ACCOUNT-ID"
    if error.status == 403 and not error.code:  # the gateway's own refusals have a message only
        return f"the gateway does not know these keys, or the clock is off; {SETTINGS_HINT}"
    return ""


# -- options and completion ----------------------------------------------------------------------------------------


def api_command(function: F) -> F:
    """A command that gets a `session` and may be asked, with -v, to name its requests."""

    @click.option("-v", "--verbose", is_flag=True, help="Name each request on stderr: method, path, status, its id.")
    @functools.wraps(function)
    def command(*arguments: Any, verbose: bool, **options: Any) -> Any:
        with explained():
            return function(*arguments, session=connect(verbose=verbose), **options)

    return command  # type: ignore[return-value]


class Completions:
    """Names for the shell to offer. Quick, and silent if the API is: a shell must never hang or print errors."""

    @staticmethod
    def clusters(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return _offer(incomplete, lambda session: session.pages(_PATHS["cluster"], most=_PAGE))

    @staticmethod
    def node_pools(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        def items(session: Session) -> Iterator[Document]:
            cluster = ctx.params.get("cluster")
            query = {"clusterId": session.find("cluster", cluster)["id"]} if cluster else {}
            return session.pages(_PATHS["node pool"], query, most=_PAGE)

        return _offer(incomplete, items)

    @staticmethod
    def management_clusters(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return _offer(incomplete, lambda session: session.numbered_pages("/api/v0/management_clusters", most=_PAGE))

    @staticmethod
    def bundles(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from regional.cli.bundle import BUNDLES, name_of

        def items(session: Session) -> Iterator[Document]:
            query = {"fields": "id,name,metadata.name"}
            return ({"name": name_of(b)} for b in session.numbered_pages(BUNDLES, query, most=_PAGE))

        return _offer(incomplete, items)

    @staticmethod
    def accounts(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return _offer(incomplete, lambda session: session.pages("/api/v0/accounts", most=_PAGE), "accountId")


def _offer(incomplete: str, items: Callable[[Session], Iterator[Document]], field: str = "name") -> list[str]:
    with contextlib.suppress(Exception):
        session = connect(timeout=_COMPLETION_SECONDS, patience=0.0)
        return sorted({str(item[field]) for item in items(session) if str(item.get(field, "")).startswith(incomplete)})
    return []
