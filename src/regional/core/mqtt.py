"""A role's MQTT 5 session: TLS client certificate, one event loop thread, subscriptions renewed at each connect.

awscrt reconnects by itself, but it neither re-subscribes nor fails a call whose reason code is an error, so both are
done here. Its callbacks come on its own thread and are handed to the role's loop. The broker's address is looked up in
the pod's hosts file; a name that is not there goes to awscrt as it is, because AWS IoT needs it for SNI. When a
mounted certificate or the configuration changes, the session is made anew with what is there now.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from awscrt import io, mqtt5
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from regional.core.loop import lookup
from regional.core.mounts import mounted
from regional.core.pace import Pace
from regional.core.role import Backoff, Dependency

log = logging.getLogger(__name__)

Receive = Callable[[mqtt5.PublishPacket], None]

NO_SUBSCRIBERS = 0x10
_REFUSED = 0x80
_UNKNOWN_REFUSAL = 0xFF  # awscrt knows no name for some codes, such as Mosquitto's 0x95 (packet too large)
_ACK_SECONDS = 10
_CHANGE_SECONDS = 10.0
_REFUSED_SECONDS = 5.0


class NotPublished(Exception):
    """The broker did not take a message: it is away, or it refused (`code` is the PUBACK's reason, else 0)."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class Topics(msgspec.Struct, frozen=True, rename="camel"):
    source_events: str
    agent_events: str


class Profile(msgspec.Struct, frozen=True):
    """What one connection to a broker may send. What is beyond it AWS IoT Core discards, without a word to a client."""

    largest: int = 0
    """Bytes of one message's payload; 0: as many as it is configured to take."""
    messages: int = 0
    """In a second; 0: no limit."""
    size: int = 0
    """Bytes in a second."""


PROFILES = {"plain": Profile(), "aws-iot": Profile(largest=128 * 1024, messages=100, size=512 * 1000)}
_AWS_IOT = re.compile(r"\.iot\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$")


class BrokerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The file that Maestro's server and agent are given: `brokerHost`, certificate files, topics. Additions of
    ours are what client ids begin with (regions whose clusters are called alike may share an account of AWS IoT), and
    the profile."""

    broker_host: str
    ca_file: str
    client_cert_file: str
    client_key_file: str
    topics: Topics
    client_id_prefix: str = ""
    broker_profile: Literal["", "plain", "aws-iot"] = ""
    """What the broker allows; "": what its name says."""

    @property
    def host(self) -> str:
        return self.broker_host.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.broker_host.rpartition(":")[2])

    @property
    def profile(self) -> Profile:
        return PROFILES[self.broker_profile or ("aws-iot" if _AWS_IOT.search(self.host) else "plain")]


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


def _checked_pair(certificate_pem: bytes, key_pem: bytes) -> str:
    """The certificate's digest. Files that are just being replaced may be of two pairs, which awscrt would not say."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except TypeError:
        raise ValueError("the client key is encrypted") from None
    if key.public_key() != certificate.public_key():
        raise ValueError("the client certificate and the client key do not belong together")
    return certificate.fingerprint(hashes.SHA256()).hex()


def _check_files(config: BrokerConfig) -> None:
    """Raises OSError, ValueError."""
    _checked_pair(mounted(config.client_cert_file).read_bytes(), mounted(config.client_key_file).read_bytes())
    x509.load_pem_x509_certificates(mounted(config.ca_file).read_bytes())


class Broker:
    """`topics(config)` says what to subscribe to; `receive` is called on the role's loop.

    `ready` is called after each successful subscribing: nothing was received since the session before ended. The
    client id is the certificate's name, after the configured prefix. With `replica` (a pod's name) it is that name and
    the replica's, because two sessions with one id throw each other out.
    """

    def __init__(
        self,
        config_file: str | Path,
        topics: Callable[[BrokerConfig], Sequence[str]],
        receive: Receive,
        *,
        replica: str = "",
        ready: Callable[[], None] = lambda: None,
        dependency: Dependency | None = None,
    ) -> None:
        self._config_file = config_file
        self._replica = replica
        self._topics = topics
        self._receive = receive
        self._ready = ready
        self._stopped = asyncio.Event()
        self._ending = False
        self._session = 0
        self.dependency = dependency or Dependency("broker")
        self.client: mqtt5.Client | None = None
        self.config: BrokerConfig | None = None
        """What the session was made with; None before the first."""
        self.pace: Pace | None = None
        """None if the broker takes whatever comes."""
        self.certificate_id = ""
        """SHA-256 of the certificate that the session was made with: what AWS IoT calls its id."""

    @property
    def connected(self) -> bool:
        return not self.dependency.reason

    async def keep_connected(self) -> None:
        self._loop = asyncio.get_running_loop()
        while True:
            config, options, made_from = await self._prepared()
            self.config = self._config = config
            profile = config.profile
            self.pace = Pace(profile.messages, profile.size) if profile.messages else None
            self._ending = False
            self._stopped.clear()
            self.client = mqtt5.Client(options)
            self.client.start()
            try:
                await self._until_changed(config, made_from)
                log.info("the broker's configuration or certificate has changed; connecting anew")
            finally:
                await self._end(self.client)

    async def _end(self, client: mqtt5.Client) -> None:
        self._ending = True
        client.stop(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION))
        try:
            async with asyncio.timeout(0.5):
                await self._stopped.wait()
        except TimeoutError:
            log.warning("the broker session did not end in time")

    async def publish(
        self, topic: str, payload: bytes, properties: Iterable[tuple[str, str]] = (), content_type: str = ""
    ) -> int:
        """Once the broker has it (QoS 1): 0, or NO_SUBSCRIBERS if nobody listens. Raises NotPublished.

        awscrt's future of a refused publish resolves like any other: only the reason code tells.
        """
        properties = list(properties)
        if self.pace is not None:
            await self.pace.turn(_length(topic, payload, properties))
        if self.client is None or self._ending:
            raise NotPublished("no session with the broker")
        packet = mqtt5.PublishPacket(
            topic=topic,
            payload=payload,
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            content_type=content_type or None,
            user_properties=[mqtt5.UserProperty(name, value) for name, value in properties],
        )
        settled: asyncio.Future[mqtt5.PublishCompletionData] = self._loop.create_future()
        try:
            future = self.client.publish(packet)
        except RuntimeError as error:  # no packet of MQTT: a property is too long, or holds what no text may
            raise NotPublished(f"a message for {topic} is not possible: {error}", _UNKNOWN_REFUSAL) from None
        future.add_done_callback(lambda done: self._hand_over(_settle, settled, done))
        try:
            puback = (await settled).puback
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise NotPublished(str(error) or type(error).__name__) from None
        code = _UNKNOWN_REFUSAL if puback.reason_code is None else int(puback.reason_code)
        if code >= _REFUSED:
            said = f": {puback.reason_string}" if puback.reason_string else ""
            raise NotPublished(f"the broker refused a message for {topic} ({puback.reason_code!r}){said}", code)
        return code

    async def _prepared(self) -> tuple[BrokerConfig, mqtt5.ClientOptions, str]:
        backoff = Backoff()
        while True:
            try:
                config = read_config(self._config_file)
                made_from = self._digest(config)
                return config, self._options(config), made_from
            except (OSError, ValueError) as error:
                self.dependency.down(str(error))
                await backoff.pause()

    def _digest(self, config: BrokerConfig) -> str:
        files = (self._config_file, config.ca_file, config.client_cert_file, config.client_key_file)
        return hashlib.sha256(b"\0".join(mounted(file).read_bytes() for file in files)).hexdigest()

    async def _until_changed(self, config: BrokerConfig, made_from: str) -> None:
        """Until there is something else that a session can be made of: a file that is half replaced, or wrong, costs
        nobody the session that works."""
        complaint = ""
        while True:
            await asyncio.sleep(_CHANGE_SECONDS)
            try:
                if self._digest(config) != made_from:
                    _check_files(read_config(self._config_file))
                    return
                complaint = ""
            except (OSError, ValueError) as error:
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("the broker's session goes on with its former files", extra={"reason": complaint})

    def _options(self, config: BrokerConfig) -> mqtt5.ClientOptions:
        certificate = mounted(config.client_cert_file).read_bytes()
        key = mounted(config.client_key_file).read_bytes()
        self.certificate_id = _checked_pair(certificate, key)
        tls = io.TlsContextOptions.create_client_with_mtls(certificate, key)
        tls.override_default_trust_store(mounted(config.ca_file).read_bytes())
        group = io.EventLoopGroup(1)
        return mqtt5.ClientOptions(
            host_name=lookup(config.host) or config.host,
            port=config.port,
            bootstrap=io.ClientBootstrap(group, io.DefaultHostResolver(group)),
            tls_ctx=io.ClientTlsContext(tls),
            connect_options=mqtt5.ConnectPacket(
                client_id=config.client_id_prefix + self._client_id(certificate), keep_alive_interval_sec=60
            ),
            session_behavior=mqtt5.ClientSessionBehaviorType.CLEAN,
            offline_queue_behavior=mqtt5.ClientOperationQueueBehaviorType.FAIL_ALL_ON_DISCONNECT,
            min_reconnect_delay_ms=100,
            max_reconnect_delay_ms=2000,
            min_connected_time_to_reset_reconnect_delay_ms=1000,
            ack_timeout_sec=_ACK_SECONDS,
            disable_metrics=True,
            on_publish_callback_fn=lambda data: self._hand_over(self._receive, data.publish_packet),
            on_lifecycle_event_connection_success_fn=lambda _: self._hand_over(self._connected),
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

    def _connected(self) -> None:
        self._session += 1
        _send_at_once(self._config.port)
        self._subscribe(self._session)

    def _subscribe(self, session: int) -> None:
        if session != self._session or self._ending:
            return  # a newer connection subscribes for itself
        topics = list(self._topics(self._config))
        packet = mqtt5.SubscribePacket(
            subscriptions=[mqtt5.Subscription(topic, qos=mqtt5.QoS.AT_LEAST_ONCE) for topic in topics]
        )
        assert self.client is not None
        future = self.client.subscribe(packet)
        future.add_done_callback(lambda done: self._hand_over(self._subscribed, session, topics, done))

    def _subscribed(self, session: int, topics: list[str], done: Any) -> None:
        if error := done.exception():
            self.dependency.down(f"subscribing: {error}")
            self._loop.call_later(1.0, self._subscribe, session)
            return
        refused = [
            f"{topic} ({code!r})"
            for topic, code in zip(topics, done.result().reason_codes, strict=True)
            if code >= 0x80
        ]
        if refused:
            self.dependency.down(f"the broker refused {', '.join(refused)}")
            self._loop.call_later(_REFUSED_SECONDS, self._subscribe, session)  # its rules may change
        else:
            self.dependency.up(f"broker {self._config.broker_host}, topics {', '.join(topics)}")
            self._ready()


def _send_at_once(port: int) -> None:
    """Nagle's algorithm off for our connections to this port.

    awscrt leaves it on and has no option for it. An acknowledgement followed by a message then waits for the peer's
    delayed ACK: 40 ms for each status that answers a spec.
    """
    for entry in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile, or without a peer
            descriptor = int(entry.name)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.getpeername()[1] == port:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _length(topic: str, payload: bytes, properties: Iterable[tuple[str, str]]) -> int:
    """Of a message on the wire, or a little more."""
    return 64 + len(topic) + len(payload) + sum(5 + len(name) + len(value.encode()) for name, value in properties)


def _settle(settled: asyncio.Future[Any], done: Any) -> None:
    if settled.done():  # whoever waited has given up
        return
    if error := done.exception():
        settled.set_exception(error)
    else:
        settled.set_result(done.result())
