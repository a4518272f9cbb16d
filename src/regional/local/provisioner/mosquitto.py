"""The broker on one machine: Mosquitto, set up so that a certificate's name decides everything, as an IoT policy does.

Two listeners, because of client ids. Agents come to 8883, where the broker replaces whatever id a client sends by its
certificate's name: nobody can take another's id. Replicas of Maestro's server share one certificate and need ids of
their own (`maestro-server-<pod>`), so they come to 8884, which keeps the id that a client sends and accepts only
certificates of a second authority: an agent's certificate already fails in the handshake. No agent can be named like
a replica, because minting refuses such a cluster id. (In AWS IoT one endpoint does: policies tie ids to names there.
Mosquitto's `clientid_prefixes` would tie the server's too, but it is one setting for all listeners.)
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from regional.core import pki
from regional.core.files import write_atomic
from regional.local.provisioner.authority import FileAuthority, lasts
from regional.local.provisioner.unprivileged import give, own_directory, require_passage, user_for
from regional.local.supervisor_client import ServiceSpec
from regional.local.tools import mosquitto

log = logging.getLogger(__name__)

AGENT_PORT = 8883
SERVER_PORT = 8884
SERVER_NAME = "maestro-server"
TOPICS = "sources/maestro/consumers"  # Maestro's own; a provisioned region's carry its id
_LARGEST_MESSAGE = 128 * 1024  # what AWS IoT takes


def topics_of(region_id: str) -> str:
    """In an account that holds two regions, neither hears the other, whatever their clusters are called."""
    return f"sources/maestro-{region_id}/consumers"


def client_id_prefix(region_id: str) -> str:
    """A dot, which neither a region's nor a cluster's name has: no two of them make the same id."""
    return f"{region_id}."


class Authorities:
    """The broker's two authorities, below a directory of the region that no pod is given."""

    def __init__(self, directory: Path, region: str) -> None:
        self.agents = FileAuthority(directory / "agents", f"{region} broker")
        self.server = FileAuthority(directory / "server", f"{region} {SERVER_NAME}")

    def signer_of(self, name: str) -> FileAuthority:
        return self.server if name == SERVER_NAME else self.agents

    def ensure(self) -> None:
        for authority in (self.agents, self.server):
            if authority.ensure():
                log.info("certificate authority made", extra={"authority": authority.name})


def service(directory: Path, address: str, authorities: Authorities, topics: str = TOPICS) -> ServiceSpec:
    """Write the broker's files and say how to run it. The digest makes a changed file restart the service."""
    user = user_for("mosquitto")
    own_directory(directory, user)
    require_passage(directory, user, "Mosquitto")
    own_directory(directory / "data", user)
    certificate = _server_certificate(directory, address, authorities.agents)
    files = {
        "agents-ca.crt": authorities.agents.certificate,
        "agents.crl": authorities.agents.revocations,
        "server-ca.crt": authorities.server.certificate,
        "server.crl": authorities.server.revocations,
        "agents.acl": _agents_acl(topics),
        "server.acl": _server_acl(topics),
        "mosquitto.conf": _configuration(directory, address, user),
        "tls.key": certificate.key,
        "tls.crt": certificate.certificate,
    }
    for name, text in files.items():
        file = directory / name
        if not file.exists() or file.read_text() != text:
            write_atomic(file, text)
            log.info("broker file written", extra={"file": name})
        give(file, user, 0o600)
    binary, environment = mosquitto()
    digest = hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:16]
    return ServiceSpec(
        name="broker",
        description="Mosquitto, the region's MQTT broker",
        kind="exec",
        argv=[str(binary), "-c", str(directory / "mosquitto.conf")],
        env={**environment, "CONFIGURATION_DIGEST": digest},
        cwd="/",
        address=f"{address}:{AGENT_PORT}",
        ready=f"tcp:{address}:{AGENT_PORT}",
    )


def _server_certificate(directory: Path, address: str, authority: FileAuthority) -> pki.KeyPair:
    crt, key = directory / "tls.crt", directory / "tls.key"
    if crt.exists() and key.exists() and lasts(crt.read_text(), address, authority.certificate):
        return pki.KeyPair(crt.read_text(), key.read_text())
    return pki.issue(authority.pair(), address, addresses=[address], server=True, client=False)


def _configuration(directory: Path, address: str, user: str) -> str:
    common = [
        "allow_anonymous false",
        "require_certificate true",
        "use_identity_as_username true",
        f"certfile {directory}/tls.crt",
        f"keyfile {directory}/tls.key",
        "tls_version tlsv1.2",
    ]
    lines = [
        "per_listener_settings true",
        *([f"user {user}"] if user else []),
        "persistence true",
        f"persistence_location {directory}/data/",
        "autosave_interval 60",
        "set_tcp_nodelay true",
        "max_queued_messages 0",
        "max_inflight_messages 100",
        f"message_size_limit {_LARGEST_MESSAGE}",
        "log_dest stderr",  # stdout would be buffered
        "log_type error",
        "log_type warning",
        "log_type notice",
        "log_timestamp_format %Y-%m-%dT%H:%M:%S",
        "",
        f"listener {AGENT_PORT} {address}",
        *common,
        f"cafile {directory}/agents-ca.crt",
        f"crlfile {directory}/agents.crl",
        f"acl_file {directory}/agents.acl",
        "use_username_as_clientid true",
        "",
        f"listener {SERVER_PORT} {address}",
        *common,
        f"cafile {directory}/server-ca.crt",
        f"crlfile {directory}/server.crl",
        f"acl_file {directory}/server.acl",
    ]
    return "\n".join(lines) + "\n"


def _agents_acl(topics: str) -> str:
    """%u is the certificate's name. Resync requests travel on the same two topics; there is no broadcast topic."""
    return f"pattern read {topics}/%u/sourceevents\npattern write {topics}/%u/agentevents\n"


def _server_acl(topics: str) -> str:
    return f"user {SERVER_NAME}\ntopic write {topics}/+/sourceevents\ntopic read {topics}/+/agentevents\n"
