"""Roles speak to names; the loop finds their addresses in the pod's own hosts file."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regional.core import pki
from regional.core.loop import lookup, parse_hosts, resolve, run
from regional.core.web import health_app, serving


@pytest.fixture
def address() -> str:
    return f"127.{os.getpid() % 27 + 128}.{os.getpid() // 27 % 250}.7"


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> Path:
    path = tmp_path / "hosts"
    path.write_text(f"127.0.0.1 localhost\n{address} platform-api platform-api.team.svc.cluster.local # ours\n")
    monkeypatch.setenv("HOSTS_FILE", str(path))
    return path


def in_our_loop(work: Coroutine[Any, Any, None]) -> None:
    run(work)


def test_the_first_address_of_a_name_wins() -> None:
    assert parse_hosts("10.0.0.1 a b # c\n\n# 10.0.0.9 d\n10.0.0.2 B e\n") == {
        "a": "10.0.0.1",
        "b": "10.0.0.1",
        "e": "10.0.0.2",
    }


def test_names_change_when_the_file_does(hosts: Path, address: str) -> None:
    assert lookup("PLATFORM-API.team.svc.cluster.local.") == address
    fresh = hosts.with_name("fresh")
    fresh.write_text("127.9.9.9 platform-api\n")
    fresh.replace(hosts)
    assert resolve("platform-api") == "127.9.9.9"
    assert lookup("platform-api.team.svc.cluster.local") is None


def test_without_a_hosts_file_names_are_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTS_FILE", raising=False)
    assert lookup("localhost") is None
    assert resolve("127.0.0.1") == "127.0.0.1"


def test_streams_and_http_clients_reach_a_service_by_name(hosts: Path, address: str) -> None:
    async def work() -> None:
        async with serving(health_app({}), address, 18080):
            reader, writer = await asyncio.open_connection("platform-api", 18080)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
            async with aiohttp.ClientSession() as session:
                async with session.get("http://platform-api.team.svc.cluster.local:18080/healthz") as answer:
                    assert await answer.text() == "ok"
            infos = await asyncio.get_running_loop().getaddrinfo("platform-api", 1, type=socket.SOCK_STREAM)
            assert infos[0][4] == (address, 1)

    in_our_loop(work())


def test_a_certificate_is_checked_against_the_name_and_not_the_address(
    hosts: Path, address: str, tmp_path: Path
) -> None:
    authority = pki.create_authority("test")
    pair = pki.issue(authority, "platform-api", names=["platform-api"], server=True)
    (tmp_path / "pair").write_text(pair.certificate + pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "pair")
    client = ssl.create_default_context(cadata=authority.certificate)

    async def work() -> None:
        async with serving(health_app({}), address, 18443, tls=server):
            _, writer = await asyncio.open_connection("platform-api", 18443, ssl=client)
            writer.close()
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("platform-api.team.svc.cluster.local", 18443, ssl=client)

    in_our_loop(work())


def test_unknown_names_fail_as_they_should(hosts: Path) -> None:
    async def work() -> None:
        with pytest.raises(socket.gaierror):
            await asyncio.open_connection("no-such-service.invalid", 80)

    in_our_loop(work())
