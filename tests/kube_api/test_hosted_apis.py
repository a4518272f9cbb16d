"""An API in the role of a hosted cluster's: behind another address, with authorities and an issuer of its own."""

from __future__ import annotations

import sqlite3
import ssl
from pathlib import Path

import aiohttp
import jwt
import pytest

from regional.core import pki
from regional.kube.apiserver.front import listening

from .harness import Api, config_map, make_pki, start_server
from .test_https_front import own_address

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def tls(folder: Path, pair: pki.KeyPair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    crt, key = folder / "client.crt", folder / "client.key"
    crt.write_text(pair.certificate)
    key.write_text(pair.key)
    context.load_cert_chain(crt, key)
    return context


async def test_clients_may_have_another_authority_than_the_server(tmp_path: Path) -> None:
    address = own_address()
    folder = make_pki(tmp_path / "pki", address)
    signer = pki.create_authority("system-admin-signer")
    (folder / "client-ca.crt").write_text(signer.certificate)
    root = pki.KeyPair((folder / "ca.crt").read_text(), (folder / "ca.key").read_text())
    trusted = tls(folder, pki.issue(signer, "system:admin", organizations=["system:masters"]))
    server = await start_server(tmp_path / "data", folder, address=address, port=6443)
    url = f"https://{address}:6443{WHO}"
    async with listening(server, folder), aiohttp.ClientSession() as session:
        async with session.post(url, json={}, ssl=trusted) as answer:
            assert (await answer.json())["status"]["userInfo"]["username"] == "system:admin"
        stranger = tls(folder, pki.issue(root, "intruder", organizations=["system:masters"]))
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            async with session.post(url, json={}, ssl=stranger) as answer:
                await answer.read()
        server.store.close_watches()
    await server.stop()


async def test_clients_are_told_the_address_of_the_service_and_not_of_the_pod(tmp_path: Path) -> None:
    listens, advertised = own_address(), "127.99.99.99"
    folder = make_pki(tmp_path / "pki", listens)
    server = await start_server(tmp_path / "data", folder, address=advertised, port=6443)
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    async with listening(server, folder, listens), aiohttp.ClientSession() as session:
        async with session.get(f"https://{listens}:6443/readyz", ssl=context) as answer:
            assert answer.status == 200
        server.store.close_watches()
    slices = (await Api(server).get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")).body
    assert slices["endpoints"][0]["addresses"] == [advertised]
    await server.stop()


async def test_tokens_name_the_issuer_that_was_asked_for(tmp_path: Path) -> None:
    issuer = "https://oidc.example.com/shop"
    server = await start_server(tmp_path / "data", make_pki(tmp_path / "pki"), issuer=issuer)
    api = Api(server)
    path = "/api/v1/namespaces/default/serviceaccounts"
    await api.post(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    answer = await api.post(f"{path}/robot/token", {"spec": {"audiences": [issuer]}})
    claims = jwt.decode(answer.body["status"]["token"], options={"verify_signature": False})
    assert claims["iss"] == issuer
    assert (await api.get("/.well-known/openid-configuration")).body["issuer"] == issuer
    await server.stop()


async def test_a_store_that_refuses_writes_makes_the_api_unready_until_it_takes_them(tmp_path: Path) -> None:
    server = await start_server(tmp_path / "data", make_pki(tmp_path / "pki"))
    api = Api(server)
    maps = "/api/v1/namespaces/default/configmaps"
    assert (await api.get("/readyz")).status == 200
    other = sqlite3.connect(tmp_path / "data" / "kube.db", isolation_level=None)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON objects BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    assert (await api.post(maps, config_map("lost"))).status >= 500
    verbose = await api.get("/readyz?verbose")
    assert verbose.status == 500 and "[-]etcd" in str(verbose.body)
    other.execute("DROP TRIGGER full")
    other.close()
    assert (await api.post(maps, config_map("kept"))).status == 201
    assert (await api.get("/readyz")).status == 200
    await server.stop()
