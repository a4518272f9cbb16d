"""A role's MQTT 5 session: TLS client certificate, one event loop thread, subscriptions renewed at each connect.

awscrt reconnects by itself, but it neither re-subscribes nor fails a call whose reason code is an error, so both are
done here. Its callbacks come on its own thread and are handed to the role's loop. The broker's address is looked up in
the pod's hosts file; a name that is not there goes to awscrt as it is, because AWS IoT needs it for SNI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from awscrt import io, mqtt5
from cryptography import x509
from cryptography.x509.oid import NameOID

from regional.core.loop import lookup
from regional.core.mounts import mounted
from regional.core.role import Backoff, Dependency

log = logging.getLogger(__name__)

Receive = Callable[[mqtt5.PublishPacket], None]


class Topics(msgspec.Struct, frozen=True, rename="camel"):
    source_events: str
    agent_events: str


class BrokerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The file that Maestro's server and agent are given: `brokerHost`, certificate files, topics."""

    broker_host: str
    ca_file: str
    client_cert_file: str
    client_key_file: str
    topics: Topics

    @property
    def host(self) -> str:
        return self.broker_host.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.broker_host.rpartition(":")[2])


def read_config(path: str | Path) -> BrokerConfig:
    """Raises ValueError that names the file."""
    try:
        config = msgspec.convert(yaml.safe_load(mounted(path).read_text()), BrokerConfig)
        if not config.host or not 0 < config.port < 65536:
            raise ValueError("brokerHost is not host:port")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return config


def common_name(certificate_pem: bytes) -> str:
    """Who the broker will take us for: what a client may do follows from its certificate's name."""
    names = x509.load_pem_x509_certificate(certificate_pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        raise ValueError("the client certificate has no common name")
    return str(names[0].value)


class Broker:
    """`topics(config)` says what to subscribe to; `receive` is called on the role's loop.

    The client id is the certificate's name. With `replica` (a pod's name) it is that name and the replica's, because
    two sessions with one id throw each other out.
    """

    def __init__(
        self,
        config_file: str | Path,
        topics: Callable[[BrokerConfig], Sequence[str]],
        receive: Receive,
        *,
        replica: str = "",
    ) -> None:
        self._config_file = config_file
        self._replica = replica
        self._topics = topics
        self._receive = receive
        self._stopped = asyncio.Event()
        self._ending = False
        self.dependency = Dependency("broker")
        self.client: mqtt5.Client | None = None

    async def keep_connected(self) -> None:
        self._loop = asyncio.get_running_loop()
        config, options = await self._prepared()
        self._config = config
        self.client = mqtt5.Client(options)
        self.client.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._ending = True
            self.client.stop(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION))
            try:
                await asyncio.wait_for(self._stopped.wait(), 0.5)
            except TimeoutError:
                log.warning("the broker session did not end in time")

    async def _prepared(self) -> tuple[BrokerConfig, mqtt5.ClientOptions]:
        backoff = Backoff()
        while True:
            try:
                config = read_config(self._config_file)
                return config, self._options(config)
            except (OSError, ValueError) as error:
                self.dependency.down(str(error))
                await backoff.pause()

    def _options(self, config: BrokerConfig) -> mqtt5.ClientOptions:
        certificate = mounted(config.client_cert_file).read_bytes()
        tls = io.TlsContextOptions.create_client_with_mtls(certificate, mounted(config.client_key_file).read_bytes())
        tls.override_default_trust_store(mounted(config.ca_file).read_bytes())
        group = io.EventLoopGroup(1)
        return mqtt5.ClientOptions(
            host_name=lookup(config.host) or config.host,
            port=config.port,
            bootstrap=io.ClientBootstrap(group, io.DefaultHostResolver(group)),
            tls_ctx=io.ClientTlsContext(tls),
            connect_options=mqtt5.ConnectPacket(client_id=self._client_id(certificate), keep_alive_interval_sec=60),
            session_behavior=mqtt5.ClientSessionBehaviorType.CLEAN,
            offline_queue_behavior=mqtt5.ClientOperationQueueBehaviorType.FAIL_ALL_ON_DISCONNECT,
            min_reconnect_delay_ms=100,
            max_reconnect_delay_ms=2000,
            min_connected_time_to_reset_reconnect_delay_ms=1000,
            disable_metrics=True,
            on_publish_callback_fn=lambda data: self._hand_over(self._receive, data.publish_packet),
            on_lifecycle_event_connection_success_fn=lambda _: self._hand_over(self._subscribe),
            on_lifecycle_event_connection_failure_fn=lambda data: self._hand_over(self._lost, data.exception),
            on_lifecycle_event_disconnection_fn=lambda data: self._hand_over(self._lost, data.exception),
            on_lifecycle_event_stopped_fn=lambda _: self._hand_over(self._stopped.set),
        )

    def _client_id(self, certificate: bytes) -> str:
        name = common_name(certificate)
        if not self._replica or self._replica.startswith(f"{name}-"):
            return self._replica or name
        return f"{name}-{self._replica}"

    def _hand_over(self, what: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:  # the loop is closed: the role has ended
            pass

    def _lost(self, reason: BaseException | None) -> None:
        if not self._ending:
            self.dependency.down(f"{self._config.broker_host}: {reason or 'disconnected'}")

    def _subscribe(self) -> None:
        topics = list(self._topics(self._config))
        packet = mqtt5.SubscribePacket(
            subscriptions=[mqtt5.Subscription(topic, qos=mqtt5.QoS.AT_LEAST_ONCE) for topic in topics]
        )
        assert self.client is not None
        future = self.client.subscribe(packet)
        future.add_done_callback(lambda done: self._hand_over(self._subscribed, topics, done))

    def _subscribed(self, topics: list[str], done: Any) -> None:
        if error := done.exception():
            self.dependency.down(f"subscribing: {error}")
            return
        refused = [
            f"{topic} ({code!r})"
            for topic, code in zip(topics, done.result().reason_codes, strict=True)
            if code >= 0x80
        ]
        if refused:
            self.dependency.down(f"the broker refused {', '.join(refused)}")
        else:
            self.dependency.up(f"broker {self._config.broker_host}, topics {', '.join(topics)}")
