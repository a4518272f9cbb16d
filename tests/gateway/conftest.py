"""A real AWS host with real keys, the real edge with TLS, and an upstream that says what it was sent."""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from yarl import URL

from regional.cloud.accounts import mint_account
from regional.cloud.aws import Credentials
from regional.core import pki
from regional.core.web import serving
from regional.gateway.app import Edge, Gateway
from regional.gateway.keyring import KeyRing
from regional.gateway.main import SERVER
from regional.gateway.upstream import Upstream
from tests.cloud.conftest import TOKEN, Host

REGION = "us-west-2"
SECRET = "the secret between the edge and the API"


def free_address(*ports: int) -> str:
    while True:
        address = f"127.{128 + secrets.randbelow(120)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.socket()).bind((address, port))
            return address


class Identities:
    """A user in an account of its own, and a session of the same account."""

    def __init__(self, host: Host) -> None:
        central = host.central()
        unique = secrets.token_hex(4)
        self.account = mint_account(central, f"customer-{unique}", f"customer-{unique}@example.com")
        self.inside = central.assume(self.account, session_name="ada")
        self.session = self.inside.frozen_credentials()
        self.user = self.new_user("ada")

    def new_user(self, name: str) -> Credentials:
        iam = self.inside.client("iam")
        iam.create_user(UserName=name)
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return Credentials(made["AccessKeyId"], made["SecretAccessKey"])

    def switch(self, name: str, key: Credentials, status: str) -> None:
        self.inside.client("iam").update_access_key(UserName=name, AccessKeyId=key.access_key, Status=status)

    def delete_key(self, name: str, key: Credentials) -> None:
        self.inside.client("iam").delete_access_key(UserName=name, AccessKeyId=key.access_key)


@pytest.fixture(scope="session")
def aws_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("aws"))
    host.start()
    yield host
    host.stop()


@pytest.fixture(scope="session")
def identities(aws_host: Host) -> Iterator[Identities]:
    made = Identities(aws_host)
    yield made
    made.inside.close()


class Door:
    """The edge as a client sees it."""

    def __init__(self, address: str, ca_file: Path) -> None:
        self.address, self.ca_file = address, ca_file
        self.ca = ssl.create_default_context(cafile=ca_file)
        self.host = f"{address}:8443"
        self.url = f"https://{self.host}"
        self.received: list[dict[str, Any]] = []

    async def send(
        self, method: str, url: str, headers: Any, body: Any = b""
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Exactly these headers, nothing added but what HTTP needs."""
        silent = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(skip_auto_headers=silent, timeout=timeout) as session:
            target = URL(url, encoded=True)
            async with session.request(method, target, headers=headers, data=_stream(body), ssl=self.ca) as answer:
                text = await answer.read()
                lowered = {name.lower(): value for name, value in answer.headers.items()}
                return answer.status, json.loads(text) if text else {}, lowered

    async def send_prepared(self, request: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
        prepared = request.prepare()
        return await self.send(prepared.method, prepared.url, dict(prepared.headers.items()), prepared.body)


def _stream(body: Any) -> Any:
    return io.BytesIO(body) if isinstance(body, bytes) and body else (body or None)


@pytest.fixture(scope="session")
def authority() -> pki.KeyPair:
    return pki.create_authority("test api")


@contextlib.asynccontextmanager
async def running_edge(
    host_url: str, directory: Path, authority: pki.KeyPair, app: Any = None, *, deadline: float = 29.0
) -> AsyncIterator[Door]:
    """`app` is the upstream; False: there is none."""
    address = free_address(8443, 8000)
    pair = pki.issue(authority, "gateway", addresses=[address], server=True, client=False)
    files = {"crt": pair.certificate, "key": pair.key, "ca": authority.certificate, "secret": SECRET, "token": TOKEN}
    for name, text in files.items():
        (directory / name).write_text(text)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "crt", directory / "key")
    door = Door(address, directory / "ca")
    edge = Edge(hosts=[address], region=REGION, secret_file=directory / "secret")
    keys = KeyRing(host_url, directory / "token")
    upstream = Upstream(f"http://{address}:8000", deadline)
    async with contextlib.AsyncExitStack() as stack:
        if app is not False:
            await stack.enter_async_context(serving(app or echo(door.received), address, 8000))
        stack.push_async_callback(keys.close)
        stack.push_async_callback(upstream.close)
        await stack.enter_async_context(serving(Gateway(edge, keys, upstream), address, 8443, tls=tls, **SERVER))
        yield door


def echo(received: list[dict[str, Any]]) -> Starlette:
    async def say(request: Request) -> Response:
        seen = {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.url.query,
            "headers": [[name.decode(), value.decode("latin-1")] for name, value in request.scope["headers"]],
            "body": (await request.body()).decode("latin-1"),
        }
        received.append(seen)
        return JSONResponse(seen, headers={"X-Said": "yes"})

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{rest:path}", say, methods=methods)])


@pytest.fixture
async def door(aws_host: Host, tmp_path: Path, authority: pki.KeyPair) -> AsyncIterator[Door]:
    async with running_edge(aws_host.url, tmp_path, authority) as made:
        yield made
