"""Those who write works with Maestro's own clients: events in over gRPC, statuses out, texts that they match."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from regional.core import pki
from regional.maestro.client import MaestroClient
from regional.maestro.protocol.bundles import status_event
from regional.maestro.protocol.cloudevents_pb import SERVICE, CloudEvent, Empty, PublishRequest, SubscriptionRequest
from regional.maestro.protocol.events import CREATE, DELETE, RESYNC, SPEC, STATUS, UPDATE, event_type
from regional.maestro.protocol.grpc_binding import HEARTBEAT
from regional.maestro.server.grpc import subscribing
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, applied, condition, config_map, connect, eventually, gone

SOURCE = "mw-client"
REFUSED = grpc.StatusCode


class Channel:
    """A client with the wire's own words: what a Go client sends and reads."""

    def __init__(self, channel: Any) -> None:
        self._publish = channel.unary_unary(
            f"/{SERVICE}/Publish",
            request_serializer=PublishRequest.SerializeToString,
            response_deserializer=Empty.FromString,
        )
        self._subscribe = channel.unary_stream(
            f"/{SERVICE}/Subscribe",
            request_serializer=SubscriptionRequest.SerializeToString,
            response_deserializer=CloudEvent.FromString,
        )

    async def publish(
        self,
        action: str,
        resource_id: str = "",
        manifests: list[Any] | None = None,
        *,
        version: int | None = 0,
        consumer: str | None = "mc01",
        source: str = SOURCE,
        subresource: str = SPEC,
        data: bytes | None = None,
        **extensions: str,
    ) -> None:
        event = CloudEvent(
            id=str(uuid.uuid4()), source=source, spec_version="1.0", type=event_type(subresource, action)
        )
        if consumer is not None:
            event.attributes["ce-clustername"].ce_string = consumer
        if resource_id:
            event.attributes["ce-resourceid"].ce_string = resource_id
        if version is not None:
            event.attributes["ce-resourceversion"].ce_integer = version
        for name, value in extensions.items():
            event.attributes[f"ce-{name}"].ce_string = value
        event.attributes["contenttype"].ce_string = "application/json"
        if manifests is not None:
            event.binary_data = json.dumps({"manifests": manifests}).encode()
        if data is not None:
            event.binary_data = data
        await self._publish(PublishRequest(event=event), timeout=30)

    async def refusal(self, *given: Any, **more: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.publish(*given, **more)
        return caught.value.code(), caught.value.details() or ""

    def subscribe(self, source: str = SOURCE) -> Any:
        return self._subscribe(SubscriptionRequest(source=source))


@contextlib.asynccontextmanager
async def speaking(maestro: Maestro, **options: Any) -> AsyncIterator[tuple[Channel, MaestroClient]]:
    async with maestro.server(grpc_port=0, **options) as client:
        async with opened(maestro) as (port, _):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Channel(channel), client


@contextlib.asynccontextmanager
async def opened(maestro: Maestro, **credentials: str) -> AsyncIterator[tuple[int, Any]]:
    from regional.maestro.server.grpc import door, publishing
    from regional.maestro.server.grpc.credentials import Credentials

    server = maestro.servers[-1]
    sources = credentials.pop("sources", "")
    made = door.Door(
        publishing.Publishing(server.database, server.writes),
        subscribing.Subscribing(server.feed, "maestro"),
        Credentials(**credentials),
        door.Grants.parse(sources),
    )
    async with made.serving("127.0.0.1", 0):
        yield made.port, made


async def next_status(stream: Any, resource_id: str) -> Any:
    async with asyncio.timeout(60):
        while True:
            event = await stream.read()
            assert event is not grpc.aio.EOF
            if event.type != HEARTBEAT and event.attributes["ce-resourceid"].ce_string == resource_id:
                return event


def conditions(event: Any) -> dict[str, str]:
    return {found["type"]: found["status"] for found in json.loads(event.binary_data).get("conditions") or []}


async def test_a_work_is_created_updated_watched_and_deleted(maestro: Maestro, cluster: Cluster) -> None:
    work = str(uuid.uuid4())
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        stream = channel.subscribe()
        assert dict(await stream.initial_metadata())["subscription-id"]
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            metadata = {"name": "work-1", "creationTimestamp": None, "resourceVersion": "0", "labels": {"a": "b"}}
            await channel.publish(CREATE, work, [config_map("one")], metadata=json.dumps(metadata))
            made = await applied(client, work)
            assert (made["version"], made["source"], made["metadata"]["name"]) == (1, SOURCE, "work-1")
            event = await next_status(stream, work)
            assert event.attributes["ce-resourceversion"].ce_string == "1"
            assert json.loads(event.attributes["ce-metadata"].ce_string)["labels"] == {"a": "b"}
            assert json.loads(event.binary_data)["manifestBundle"]["manifests"] == [config_map("one")]

            await channel.publish(UPDATE, work, [config_map("one", {"key": "other"})], version=1)
            assert (await applied(client, work, 2))["version"] == 2
            found = await cluster.client.get("v1", "ConfigMap", "one", "default")
            assert found["data"] == {"key": "other"}

            await channel.publish(DELETE, work)
            await gone(client, work)
            while conditions(event).get("Deleted") != "True":
                event = await next_status(stream, work)
        stream.cancel()


async def test_refusals_have_the_texts_that_clients_match(maestro: Maestro) -> None:
    work = str(uuid.uuid4())
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        one = [config_map("one")]
        code, text = await channel.refusal(CREATE, work, one, consumer="nowhere")
        assert code is REFUSED.NOT_FOUND and "fk_resources_consumers" in text
        await channel.publish(CREATE, work, one, version=7)
        assert (await client.get_bundle(work))["version"] == 7
        code, text = await channel.refusal(CREATE, work, one)
        assert text == "failed to create resource: maestro-6: This Resource already exists"
        code, text = await channel.refusal(UPDATE, work, [config_map("two")], version=3)
        assert text.startswith("failed to update resource: maestro-6: the resource version is not the latest")
        assert text.endswith("the latest version: 7") and code is REFUSED.FAILED_PRECONDITION
        unknown = str(uuid.uuid4())
        code, text = await channel.refusal(UPDATE, unknown, one)
        assert text == f"failed to get resource: maestro-7: Resource with id='{unknown}' not found"
        await channel.publish(DELETE, unknown)
        await channel.publish(DELETE, work)
        await channel.publish(DELETE, work)
        code, text = await channel.refusal(UPDATE, work, one)
        assert text == f"failed to update resource: maestro-6: the resource is under deletion, id: {work}"
        code, text = await channel.refusal("explode_request", work, one)
        assert text == "unsupported action explode_request"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"consumer": None}, "failed to get clustername extension: invalid CloudEvents value: <nil>"),
        ({"version": None}, "failed to get resourceversion extension"),
        ({"version": -1}, "out of range"),
        ({"data": b"{"}, "the manifest bundle in the resource is invalid"),
        ({"data": b'{"manifests": [{"kind": 3}]}'}, "manifests[0].apiVersion is required"),
        ({"data": b'{"manifests": "x"}'}, "the manifest bundle in the resource is invalid"),
        (
            {"data": b'{"manifests":' + b"[" * 5000 + b"]" * 5000 + b"}"},
            "the manifest bundle in the resource is invalid",
        ),
        ({"data": b'{"a": "\\u0000"}'}, "NUL"),
        ({"metadata": "[]"}, "the manifest bundle in the resource is invalid"),
        ({"metadata": '{"labels": {"a b": "c"}}'}, "is not a label's key"),
        ({"resource_id": "No Such Id"}, "resourceid is neither a UUID nor a DNS label"),
        ({"source": "a/b"}, "source is not"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_its_fault(
    maestro: Maestro, given: dict[str, Any], says: str
) -> None:
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        call = {"resource_id": str(uuid.uuid4()), "manifests": [config_map("one")]} | given
        code, text = await channel.refusal(CREATE, **call)
        assert says in text and code is REFUSED.INVALID_ARGUMENT
        assert (await client.list_bundles())["total"] == 0


async def test_an_update_by_another_source_or_for_another_cluster_is_refused(maestro: Maestro) -> None:
    work = str(uuid.uuid4())
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        await client.create_consumer("mc02")
        await channel.publish(CREATE, work, [config_map("one")])
        for other in ({"source": "other"}, {"consumer": "mc02"}):
            code, text = await channel.refusal(UPDATE, work, [config_map("two")], **other)
            assert code is REFUSED.PERMISSION_DENIED and "belongs to source mw-client and consumer mc01" in text
        assert (await client.get_bundle(work))["version"] == 1


async def test_a_delete_by_another_source_is_refused(maestro: Maestro) -> None:
    work = str(uuid.uuid4())
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        await channel.publish(CREATE, work, [config_map("one")])
        code, text = await channel.refusal(DELETE, work, source="other")
        assert code is REFUSED.PERMISSION_DENIED
        assert text == "failed to delete resource: maestro-4: the resource belongs to source mw-client"
        assert "deleted_at" not in await client.get_bundle(work)
        await channel.publish(DELETE, work)
        assert (await client.get_bundle(work))["deleted_at"]
        await channel.publish(DELETE, "x" * 100_000)  # as unknown as any other


async def test_a_delete_reaches_its_agent_whatever_request_id_came_with_it(maestro: Maestro) -> None:
    """One that no message could carry would keep the bundle from ever being deleted."""
    work = str(uuid.uuid4())
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        async with maestro.wire("mc01") as agent:
            await channel.publish(CREATE, work, [config_map("one")])
            tracing = json.dumps({"logging.open-cluster-management.io/op-id": "r" * 100_000})
            await channel.publish(DELETE, work, logtracing=tracing)
            assert (await agent.next(action=DELETE)).resource_id == work


async def test_statuses_are_told_again_to_those_who_lack_them(maestro: Maestro) -> None:
    """Also to a subscriber of another replica than the one that was asked."""
    works = [str(uuid.uuid4()) for _ in range(3)]
    async with speaking(maestro) as (channel, client), speaking(maestro) as (elsewhere, _):
        await client.create_consumer("mc01")
        async with maestro.wire("mc01") as agent:
            for number, work in enumerate(works):
                await channel.publish(CREATE, work, [config_map(f"c{number}")])
                await agent.send(_applied(work, hash=str(number) * 64))

                async def stored(work: str = work) -> bool:
                    return condition(await client.get_bundle(work), "Applied") == "True"

                await eventually(stored)
        stream = elsewhere.subscribe()
        await stream.initial_metadata()
        known = {
            "statusHashes": [
                {"resourceID": works[0], "statusHash": "0" * 64},
                {"resourceID": works[1], "statusHash": "9" * 64},
            ]
        }
        heard: list[str] = []

        async def listen() -> None:
            while "done" not in heard:
                event = await stream.read()
                if event.type != HEARTBEAT:
                    heard.append(event.attributes["ce-resourceid"].ce_string)

        listening = asyncio.create_task(listen())

        # The subscription begins with its first look at the feed: asked until it has heard.
        async def told() -> bool:
            await channel.publish(
                RESYNC, subresource=STATUS, consumer=None, version=None, data=json.dumps(known).encode()
            )
            return works[1] in heard

        await eventually(told)
        assert set(heard) == {works[1]}

        async def all_told() -> bool:
            await channel.publish(RESYNC, subresource=STATUS, consumer=None, version=None, data=b'{"statusHashes":[]}')
            return set(heard) >= set(works)

        await eventually(all_told)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        stream.cancel()


def _applied(work: str, **more: Any) -> Any:
    now = "2026-11-16T00:00:00Z"
    found = {"type": "Applied", "status": "True", "reason": "A", "message": "", "lastTransitionTime": now}
    given = {"source": "mc01-agent", "consumer": "mc01", "original_source": "maestro", "version": 1, "sequence": 1}
    return status_event(
        **(given | {"resource_id": work, "conditions": [found], "resource_status": [], "metadata": "{}"} | more)
    )


async def test_a_quiet_subscription_hears_heartbeats(maestro: Maestro, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "HEARTBEAT_SECONDS", 0.1)
    async with speaking(maestro) as (channel, _):
        stream = channel.subscribe()
        async with asyncio.timeout(60):
            event = await stream.read()
        assert event.type == HEARTBEAT and event.spec_version == "1.0" and not event.attributes
        stream.cancel()


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_subscription_goes_on_after_an_outage_or_says_that_it_cannot(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
) -> None:
    """If what came meanwhile is not kept any more its client has to come anew, and ask for what it lacks."""
    for name in ("HEARTBEAT_SECONDS", "SCAN_SECONDS", "_AWAY_SECONDS"):
        monkeypatch.setattr(subscribing, name, 0.05)
    async with speaking(maestro) as (channel, _):
        stream = channel.subscribe()
        async with asyncio.timeout(60):
            assert (await stream.read()).type == HEARTBEAT
        database = maestro.servers[-1].database
        pool, database.pool = database.pool, None
        async with asyncio.timeout(60):
            for _ in range(10):  # one of these at least after a look in vain
                assert (await stream.read()).type == HEARTBEAT
        if forgotten:
            connection = await connect(maestro.database)
            await connection.execute("UPDATE feed SET floor = pg_current_xact_id()::text::bigint + 1000000")
            await connection.close()
        database.pool = pool
        async with asyncio.timeout(60):
            if not forgotten:
                for _ in range(10):
                    assert (await stream.read()).type == HEARTBEAT
                stream.cancel()
                return
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while True:
                    assert (await stream.read()).type == HEARTBEAT
        assert caught.value.code() is REFUSED.UNAVAILABLE
        assert "subscribe again" in (caught.value.details() or "")


async def test_a_certificate_speaks_for_its_own_sources_only(maestro: Maestro, tmp_path: Path) -> None:
    authority, stranger = pki.create_authority("grpc"), pki.create_authority("elsewhere")
    served = pki.issue(authority, "maestro", addresses=["127.0.0.1"], server=True)
    for name, text in (("tls.crt", served.certificate), ("tls.key", served.key), ("ca.crt", authority.certificate)):
        (tmp_path / name).write_text(text)

    def channel_of(issuer: pki.KeyPair | None, port: int, name: str = SOURCE) -> Any:
        pair = pki.issue(issuer, name) if issuer else None
        credentials = grpc.ssl_channel_credentials(
            authority.certificate.encode(),
            pair.key.encode() if pair else None,
            pair.certificate.encode() if pair else None,
        )
        return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials)

    files = {
        "certificate": str(tmp_path / "tls.crt"),
        "key": str(tmp_path / "tls.key"),
        "client_ca": str(tmp_path / "ca.crt"),
        "sources": "clm=one,two; root=*",
    }
    async with maestro.server() as client, opened(maestro, **files) as (port, _):
        await client.create_consumer("mc01")
        for name, source, allowed in (
            (SOURCE, SOURCE, True),
            (SOURCE, "one", False),
            ("clm", "two", True),
            ("clm", "clm", False),
            ("root", "anything", True),
        ):
            async with channel_of(authority, port, name) as raw:
                channel = Channel(raw)
                if allowed:
                    await channel.publish(CREATE, str(uuid.uuid4()), [config_map("one")], source=source)
                    continue
                code, text = await channel.refusal(CREATE, str(uuid.uuid4()), [config_map("one")], source=source)
                assert code is REFUSED.PERMISSION_DENIED
                assert text == f"unauthorized to publish the event from source {source}"
                stream = channel.subscribe(source)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stream.read()
                assert caught.value.code() is REFUSED.PERMISSION_DENIED
        for issuer in (stranger, None):
            async with channel_of(issuer, port) as raw:
                code, _ = await Channel(raw).refusal(CREATE, str(uuid.uuid4()), [config_map("one")])
                assert code is REFUSED.UNAVAILABLE


async def test_a_work_is_read_with_the_uid_by_which_clients_change_it(maestro: Maestro) -> None:
    """The Go client makes each change and each delete of what it has read before, by its uid, whoever wrote it."""
    work, plain = str(uuid.uuid4()), str(uuid.uuid4())
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        stream = channel.subscribe()
        await stream.initial_metadata()
        sent = {"name": "work-1", "namespace": "mc01", "uid": work, "generation": 0, "creationTimestamp": None}
        await channel.publish(CREATE, work, [config_map("one")], metadata=json.dumps(sent))
        await client.create_bundle("mc01", [config_map("two")], id=plain)
        for found in (work, plain):
            assert (await client.get_bundle(found))["metadata"]["uid"] == found
        listed = (await client.list_bundles())["items"]
        assert [bundle["metadata"]["uid"] for bundle in listed] == [work, plain]
        async with maestro.wire("mc01") as agent:

            async def told() -> bool:
                await agent.send(_applied(work, hash="h", sequence=next(sequences)))
                return not heard.empty()

            heard: asyncio.Queue[Any] = asyncio.Queue()
            sequences = itertools.count(1)
            listening = asyncio.create_task(_hear(stream, work, heard))
            await eventually(told)
            event = heard.get_nowait()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        assert json.loads(event.attributes["ce-metadata"].ce_string)["uid"] == work
        stream.cancel()


async def _hear(stream: Any, work: str, heard: asyncio.Queue[Any]) -> None:
    while True:
        heard.put_nowait(await next_status(stream, work))


async def test_certificates_are_changed_without_a_restart(maestro: Maestro, tmp_path: Path) -> None:
    """Whoever comes after they were replaced meets the new one, and is judged by the new authority; whoever is in stays
    in. A half of a pair changes nothing."""
    former, next_one = pki.create_authority("former"), pki.create_authority("next")

    def lay_out(authority: pki.KeyPair, *names: str) -> None:
        served = pki.issue(authority, "maestro", addresses=["127.0.0.1"], server=True)
        files = {"tls.crt": served.certificate, "tls.key": served.key, "ca.crt": authority.certificate}
        for name in names or files:
            (tmp_path / name).write_text(files[name])

    def channel_of(authority: pki.KeyPair, port: int) -> Any:
        pair = pki.issue(authority, SOURCE)
        certificates = (authority.certificate.encode(), pair.key.encode(), pair.certificate.encode())
        return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(*certificates))

    async def refused(authority: pki.KeyPair, port: int) -> bool:
        async with channel_of(authority, port) as channel:
            return (await Channel(channel).refusal(DELETE, "x"))[0] is REFUSED.UNAVAILABLE

    lay_out(former)
    files = {"certificate": "tls.crt", "key": "tls.key", "client_ca": "ca.crt"}
    async with (
        maestro.server(grpc_port=0),
        opened(maestro, **{k: f"{tmp_path}/{v}" for k, v in files.items()}) as (
            port,
            _,
        ),
    ):
        async with channel_of(former, port) as early:
            await Channel(early).publish(DELETE, "x")
            lay_out(next_one, "tls.crt")
            async with channel_of(former, port) as channel:
                await Channel(channel).publish(DELETE, "x")
            assert await refused(next_one, port)
            lay_out(next_one)
            async with channel_of(next_one, port) as channel:
                await Channel(channel).publish(DELETE, "x")
            assert await refused(former, port)
            await Channel(early).publish(DELETE, "x")
