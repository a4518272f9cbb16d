"""Many clusters in one process and on one port: apart in data, users and limits, made and removed while it runs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from regional.core.problems import UserError
from regional.kube.apiserver import writers
from regional.kube.apiserver.hosting import ClusterHost
from regional.kube.apiserver.hostmain import admitting, hosting, order
from regional.kube.apiserver.limits import Limits
from regional.kube.client import Client

from .harness import Api, config_map
from .test_https_front import own_address

MAPS = "/api/v1/namespaces/default/configmaps"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Hosted:
    def __init__(self, host: ClusterHost, folder: Path) -> None:
        self.host, self.folder = host, folder

    def tls(self, kubeconfig: str, name: str) -> ssl.SSLContext:
        document = yaml.safe_load(kubeconfig)
        user, cluster = document["users"][0]["user"], document["clusters"][0]["cluster"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=ca)
        for part in ("certificate", "key"):
            (self.folder / f"{name}.{part}").write_bytes(base64.b64decode(user[f"client-{part}-data"]))
        context.load_cert_chain(self.folder / f"{name}.certificate", self.folder / f"{name}.key")
        return context

    def client(self, kubeconfig: str) -> Client:
        file = self.folder / f"kubeconfig-{os.urandom(4).hex()}"
        file.write_text(kubeconfig)
        return Client.from_kubeconfig(file)

    async def api(self, name: str) -> Api:
        """Straight to the cluster's server, past the door."""
        return Api(await self.host._open(self.host._clusters[name]))


@contextlib.asynccontextmanager
async def running(root: Path, **options: Any) -> AsyncIterator[Hosted]:
    address = own_address()
    host = ClusterHost(root / "host", address, 6443, **options)
    await host.start()
    try:
        async with hosting(host, address, 6443):
            yield Hosted(host, root)
    finally:
        await host.stop()


async def test_each_cluster_has_its_own_data_users_and_tokens(tmp_path: Path) -> None:
    async with running(tmp_path) as hosted, aiohttp.ClientSession() as session:
        host = hosted.host
        shop, bank = await host.create("shop"), await host.create("bank")
        of_shop = hosted.tls(shop, "shop")
        async with session.post(host.url("shop") + MAPS, json=config_map("mine"), ssl=of_shop) as answer:
            assert answer.status == 201
        async with session.get(host.url("bank") + MAPS, ssl=hosted.tls(bank, "bank")) as answer:
            names = [item["metadata"]["name"] for item in (await answer.json())["items"]]
            assert answer.status == 200 and "mine" not in names
        # A certificate of another cluster's authority is nobody's here, however the handshake went.
        async with session.get(host.url("bank") + MAPS, ssl=of_shop) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (401, "Unauthorized")
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        for name in ("shop", "bank"):
            robot = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
            await (await hosted.api(name)).post(accounts, robot)
        token = (await (await hosted.api("shop")).post(f"{accounts}/robot/token", {"spec": {}})).body["status"]["token"]
        anonymous = ssl.create_default_context(cadata=host._authority.certificate)
        for name, status in (("shop", 201), ("bank", 401)):
            headers = {"authorization": f"Bearer {token}"}
            async with session.post(host.url(name) + WHO, json={}, headers=headers, ssl=anonymous) as answer:
                assert answer.status == status
        async with session.get(host.url("nowhere") + MAPS, ssl=of_shop) as answer:
            assert answer.status == 404
        identities = [entry.uid for name in ("shop", "bank") for entry in await _namespaces(hosted, name)]
        assert len(set(identities)) == len(identities)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _namespaces(hosted: Hosted, name: str) -> list[Any]:
    return list((await hosted.api(name)).server.store.shelf("namespaces").entries.values())


async def test_clusters_come_and_go_by_order_and_outlive_the_process(tmp_path: Path) -> None:
    async with running(tmp_path) as hosted:
        socket = tmp_path / "admin.sock"
        async with admitting(hosted.host, socket):
            config = (await order(socket, "create", name="shop"))["kubeconfig"]
            await order(socket, "create", name="brief")
            with pytest.raises(UserError, match="already"):
                await order(socket, "create", name="shop")
            for wrong in ("", "../etc", "UPPER", "x" * 64):
                with pytest.raises(UserError, match="is no name"):
                    await order(socket, "create", name=wrong)
            async with hosted.client(config) as client:
                await client.create(config_map("kept", namespace="default"))
                snapshot = (await order(socket, "snapshot", name="shop"))["snapshot"]
                await client.delete("v1", "ConfigMap", "kept", "default")
                reached = (await hosted.api("shop")).server.store.revision
                restored = await order(socket, "restore", name="shop", snapshot=snapshot)
                assert restored["revision"] > reached
                assert (await client.get("v1", "ConfigMap", "kept", "default"))["metadata"]["name"] == "kept"
            await order(socket, "remove", name="brief")
            names = [cluster["name"] for cluster in (await order(socket, "list"))["clusters"]]
            assert names == ["shop"]
            with pytest.raises(UserError, match="no order"):
                await order(socket, "dance")
        with pytest.raises(UserError, match="in use by another process"):
            await ClusterHost(tmp_path / "host", "127.0.0.1", 1).start()
    async with running(tmp_path) as hosted:
        assert hosted.host.names == ["shop"]
        assert (await (await hosted.api("shop")).get(f"{MAPS}/kept")).status == 200


async def test_resting_cluster_wakes_with_all_it_had_and_watches_resume(tmp_path: Path) -> None:
    async with running(tmp_path, idle=0.2) as hosted:
        config = await hosted.host.create("shop")
        async with hosted.client(config) as client:
            first = await client.create(config_map("before", namespace="default"))
            async with asyncio.timeout(60):
                while hosted.host.awake:
                    await asyncio.sleep(0.05)
            await client.create(config_map("after", namespace="default"))
            since = first["metadata"]["resourceVersion"]
            events = client.watch("v1", "ConfigMap", "default", resource_version=since)
            async with contextlib.aclosing(events), asyncio.timeout(60):
                kind, obj = await anext(events)
                assert (kind, obj["metadata"]["name"]) == ("ADDED", "after")
                assert hosted.host.awake == ["shop"], "a watched cluster does not rest"


async def test_flood_on_one_cluster_is_refused_there_and_not_noticed_by_others(tmp_path: Path) -> None:
    """The quiet cluster's requests, one after another, are all served before the flood's backlog is."""
    async with running(tmp_path) as hosted:
        host = hosted.host
        loud = hosted.tls(await host.create("loud", Limits(reads=400, writes=40)), "loud")
        quiet = hosted.tls(await host.create("quiet"), "quiet")
        connector = aiohttp.TCPConnector(limit=120)
        done: list[int] = []
        async with aiohttp.ClientSession(connector=connector) as flood, aiohttp.ClientSession() as calm:

            async def shout(number: int) -> None:
                async with flood.post(host.url("loud") + MAPS, json=config_map(f"m-{number}"), ssl=loud) as answer:
                    done.append(answer.status)
                    assert answer.status in (201, 429)
                    assert answer.status == 201 or answer.headers["retry-after"] == "1"

            shouting = [asyncio.create_task(shout(number)) for number in range(2_000)]
            async with asyncio.timeout(120):
                while not done:
                    await asyncio.sleep(0.01)
            for number in range(10):
                async with calm.post(host.url("quiet") + MAPS, json=config_map(f"q-{number}"), ssl=quiet) as answer:
                    assert answer.status == 201
            served_meanwhile = len(done)
            await asyncio.gather(*shouting)
        assert served_meanwhile < 2_000
        assert 429 in done and 201 in done
        stored = (await hosted.api("loud")).server.store.shelf("configmaps")
        assert sum(key[1].startswith("m-") for key in stored.entries) == done.count(201)


async def test_a_clusters_connections_are_counted_until_they_end_however_they_end(tmp_path: Path) -> None:
    async with running(tmp_path) as hosted:
        of_shop = hosted.tls(await hosted.host.create("shop", Limits(connections=2)), "shop")
        turnstile = hosted.host._clusters["shop"].turnstile

        async def ask(path: str, *headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
            reader, writer = await asyncio.open_connection(own_address(), 6443, ssl=of_shop)
            writer.write("\r\n".join([f"GET /c/shop{path} HTTP/1.1", "Host: x", *headers, "", ""]).encode())
            return reader, writer, await reader.readline()

        async with asyncio.timeout(120):
            exec_ = f"{MAPS.removesuffix('configmaps')}pods/none/exec?command=a"
            for _ in range(5):
                reader, writer, line = await ask(exec_, "Connection: Upgrade", "Upgrade: websocket")
                assert b" 404 " in line
                await reader.read()
                writer.close()
                while turnstile.connections:
                    await asyncio.sleep(0.01)
            kept = [await ask("/version") for _ in range(2)]
            assert [b" 200 " in line for _, _, line in kept] == [True, True]
            reader, writer, line = await ask("/version")
            assert b" 429 " in line
            assert b"connection: close" in await reader.read()  # to its end: it is closed
            for each in (writer, *(other for _, other, _ in kept)):
                each.transport.abort()
            while turnstile.connections:
                await asyncio.sleep(0.01)


@pytest.mark.timeout(900)
async def test_thousand_clusters_fit_under_the_usual_descriptors(tmp_path: Path) -> None:
    host = ClusterHost(tmp_path / "host", "127.0.0.1", 6443)
    await host.start()
    try:
        names = [f"c-{number}" for number in range(1_000)]
        before = descriptors()
        most = 0
        for first in range(0, len(names), 50):
            await asyncio.gather(*(host.create(name) for name in names[first : first + 50]))
        for number, name in enumerate(names):
            server = await host._open(host._clusters[name])
            if number % 4 == 0 or number > 900:  # all of them have been opened, these have a log beside the file too
                assert (await Api(server).post(MAPS, config_map("one"))).status == 201
            if number % 50 == 0:
                most = max(most, descriptors() - before)
        assert len(host.awake) == 1_000
        assert most <= 4 * writers.OPEN_FILES
        for name in (names[0], names[-1]):  # and those whose files were closed go on where they were
            server = host._clusters[name].server
            assert server is not None
            assert (await Api(server).post(MAPS, config_map("two"))).status == 201
            assert (await Api(server).get(f"{MAPS}/one")).status == 200
    finally:
        await host.stop()


async def test_a_cluster_that_cannot_be_read_takes_nobody_else_along(tmp_path: Path) -> None:
    async with running(tmp_path) as hosted:
        await hosted.host.create("bank")
        await hosted.host.create("shop")
    (tmp_path / "host/clusters/bank/identity.json").write_text("{}")
    async with running(tmp_path) as hosted:
        assert hosted.host.names == ["shop"]
        assert (await (await hosted.api("shop")).get(MAPS)).status == 200


async def test_what_is_removed_is_neither_removed_again_nor_restored(tmp_path: Path) -> None:
    async with running(tmp_path) as hosted:
        host = hosted.host
        await host.create("shop")
        taken = await host.snapshot("shop")
        kept = taken.path.rename(tmp_path / "kept.db")
        orders = host.remove("shop"), host.remove("shop"), host.restore("shop", kept)
        first, *others = await asyncio.gather(*orders, return_exceptions=True)
        assert first is None
        assert [type(other) for other in others] == [UserError, UserError]
        assert not (tmp_path / "host/clusters/shop").exists()
