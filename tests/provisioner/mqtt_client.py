"""A plain MQTT 5 client for tests: what the broker answers, without the roles' own reconnecting session around it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from awscrt import io, mqtt5

from regional.cloud.aws import Aws
from tests.provisioner.harness import Ground


class Refused(Exception):
    pass


class Client:
    def __init__(self, host: str, bundle: dict[str, str], client_id: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.received: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.lost = asyncio.Event()
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._stopped = asyncio.Event()
        options = io.TlsContextOptions.create_client_with_mtls(
            bundle["certificate"].encode(), bundle["privateKey"].encode()
        )
        options.override_default_trust_store(bundle["caCert"].encode())
        address, _, port = host.rpartition(":")
        self._client = mqtt5.Client(
            mqtt5.ClientOptions(
                host_name=address,
                port=int(port),
                tls_ctx=io.ClientTlsContext(options),
                connect_options=mqtt5.ConnectPacket(client_id=client_id, keep_alive_interval_sec=60),
                min_reconnect_delay_ms=60_000,
                max_reconnect_delay_ms=60_000,
                on_publish_callback_fn=self._on_publish,
                on_lifecycle_event_connection_success_fn=self._on_success,
                on_lifecycle_event_connection_failure_fn=self._on_failure,
                on_lifecycle_event_disconnection_fn=self._on_lost,
                on_lifecycle_event_stopped_fn=self._on_stopped,
            )
        )

    async def __aenter__(self) -> Client:
        self._client.start()
        try:
            await asyncio.wait_for(asyncio.shield(self._connected), 60)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.stop()
        await asyncio.wait_for(self._stopped.wait(), 60)

    async def subscribe(self, topic: str) -> None:
        subscription = mqtt5.Subscription(topic_filter=topic, qos=mqtt5.QoS.AT_LEAST_ONCE)
        future = self._client.subscribe(mqtt5.SubscribePacket(subscriptions=[subscription]))
        await asyncio.wait_for(asyncio.wrap_future(future), 60)

    async def publish(self, topic: str, payload: bytes) -> int:
        """The reason code: below 128 the broker took it."""
        packet = mqtt5.PublishPacket(topic=topic, payload=payload, qos=mqtt5.QoS.AT_LEAST_ONCE)
        done = await asyncio.wait_for(asyncio.wrap_future(self._client.publish(packet)), 60)
        # awscrt gives None for codes that it does not know, such as Mosquitto's 0x95 (packet too large).
        return 0xFF if done.puback.reason_code is None else int(done.puback.reason_code)

    async def next_message(self) -> tuple[str, bytes]:
        return await asyncio.wait_for(self.received.get(), 60)

    def _on_publish(self, data: Any) -> None:
        packet = data.publish_packet
        self._loop.call_soon_threadsafe(self.received.put_nowait, (packet.topic, packet.payload))

    def _on_success(self, _: Any) -> None:
        self._loop.call_soon_threadsafe(self._settle, None)

    def _on_failure(self, data: Any) -> None:
        self._loop.call_soon_threadsafe(self._settle, Refused(str(data.exception)))

    def _on_lost(self, _: Any) -> None:
        self._loop.call_soon_threadsafe(self.lost.set)

    def _on_stopped(self, _: Any) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)

    def _settle(self, error: Exception | None) -> None:
        if self._connected.done():
            return
        if error is None:
            self._connected.set_result(None)
        else:
            self._connected.set_exception(error)


def agent_bundle(ground: Ground, cluster_id: str) -> dict[str, str]:
    return _bundle(ground, ground.management(cluster_id), "maestro/agent-cert")


def server_bundle(ground: Ground) -> dict[str, str]:
    return _bundle(ground, ground.regional(), "maestro/server-cert")


def _bundle(ground: Ground, aws: Aws, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(ground.secret(aws, name))
    return found
