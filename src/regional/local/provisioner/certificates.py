"""The step program's part in broker certificates: keys are born here, and go to Secrets Manager and nowhere else.

Before a root is applied, the key is made and the region's authority signs the request; the root gets the certificate
alone, so no state, plan or output ever holds a key. A certificate that is good for another month is kept.

An agent's certificate is replaced with overlap: the former one stays registered until a later step, which is told that
the agent was seen with the newest, withdraws it.

An agent's key crosses accounts in two steps, as the operator's commands do. The regional step leaves certificate and
key in `maestro/agent-handover/<cluster>` *before* the certificate is registered; the management step writes them into
the Management Cluster's account and then removes the hand-over. So a registered certificate without a hand-over has
arrived. The server's key waits in a hand-over of its own until the root has made its place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec
import yaml
from botocore.exceptions import ClientError

from regional.cloud.aws import Aws
from regional.cloud.secrets import get_secret, put_secret
from regional.core.problems import UserError
from regional.local.provisioner import iot_records
from regional.local.provisioner.authority import CERTIFICATE_DAYS, Authority, begins, lasts, new_request
from regional.local.provisioner.inputs import ManagementInputs
from regional.local.provisioner.mosquitto import SERVER_NAME
from regional.local.provisioner.records import error_code
from regional.local.provisioner.roots import broker, maestro_agent_iot_management, maestro_agent_iot_regional

log = logging.getLogger(__name__)

SERVER_HANDOVER = "maestro/server-handover"


class Bundle(msgspec.Struct, rename="camel"):
    """What a client of the broker mounts."""

    certificate: str
    private_key: str
    ca_cert: str

    def __repr__(self) -> str:
        return "Bundle(…)"


class Handover(Bundle, rename="camel"):
    broker_host: str = ""


class Signing(Protocol):
    """What differs between one machine and the cloud."""

    def authority(self, common_name: str) -> Authority: ...

    def broker_trust(self) -> str:
        """The authority of the broker's own certificate."""


def server_bundle(aws: Aws, signing: Signing, *, renew: bool) -> Bundle:
    """The certificate and key of Maestro's server: as stored, or new and already in the hand-over."""
    authority = signing.authority(SERVER_NAME)
    places = (SERVER_HANDOVER,) if renew else (SERVER_HANDOVER, broker.CERT_SECRET)
    for place in places:
        stored = get_secret(aws, place)
        if stored is not None:
            bundle = msgspec.json.decode(stored, type=Bundle)
            if lasts(bundle.certificate, SERVER_NAME, authority.certificate):
                return bundle
    minted = _mint(SERVER_NAME, signing)
    put_secret(aws, SERVER_HANDOVER, msgspec.to_builtins(minted))
    return minted


def store_server_bundle(aws: Aws, bundle: Bundle) -> None:
    if put_secret(aws, broker.CERT_SECRET, msgspec.to_builtins(bundle)):
        log.info("certificate stored", extra={"secret": broker.CERT_SECRET})
    _remove(aws, SERVER_HANDOVER)


def agent_certificates(
    regional: Aws,
    inputs: ManagementInputs,
    signing: Signing,
    broker_host: str,
    recorded_arn: str,
    *,
    renew: bool,
    retire: bool,
) -> tuple[str, list[str]]:
    """The agent's newest certificate, and the former ones that are still good. If the newest is made now, certificate
    and key already wait for the other half. With `retire` no former ones are named, and so they are withdrawn."""
    authority = signing.authority(inputs.cluster_id).certificate
    waiting = _handover(regional, inputs)
    if retire and waiting is not None:
        raise UserError(
            f"the new certificate of {inputs.cluster_id} has not been carried to its account yet",
            "run maestro-agent-iot-management for it first",
        )
    registered = iot_records.active_certificates(regional, maestro_agent_iot_regional.policy_name(inputs))
    newest = newest_of(registered, recorded_arn)
    if waiting is not None and lasts(waiting.certificate, inputs.cluster_id, authority):
        newest = waiting.certificate
    elif renew or not lasts(newest, inputs.cluster_id, authority):
        minted = _mint(inputs.cluster_id, signing)
        handover = Handover(minted.certificate, minted.private_key, minted.ca_cert, broker_host)
        put_secret(regional, inputs.handover_secret, msgspec.to_builtins(handover))
        log.info("certificate waits to be carried over", extra={"secret": inputs.handover_secret})
        newest = minted.certificate
    others = [pem for pem in registered.values() if pem != newest]
    former = [pem for pem in others if lasts(pem, inputs.cluster_id, authority, days=0)]
    return newest, [] if retire else sorted(former, key=begins)


def newest_of(registered: Mapping[str, str], recorded_arn: str) -> str:
    """Of certificates by their ARN: the one that the root put out last. Empty if there is none."""
    return registered.get(recorded_arn) or max(registered.values(), key=begins, default="")


def carry_over(regional: Aws, management: Aws, inputs: ManagementInputs) -> None:
    """From the regional account's hand-over into the Management Cluster's own account."""
    secrets = maestro_agent_iot_management
    waiting = _handover(regional, inputs)
    if waiting is None:
        present = get_secret(management, secrets.CONFIG_SECRET)
        if present is None or get_secret(management, secrets.CERT_SECRET) is None:
            raise UserError(
                f"no certificate waits for {inputs.cluster_id} in the regional account, and it has none yet",
                "run maestro-agent-iot-regional for it first; with --renew if its certificate was lost",
            )
        # Written by an older version, it may lack what the broker asks for now.
        host = yaml.safe_load(msgspec.json.decode(present)["config"])["brokerHost"]
        _configure(management, inputs, host)
        return
    bundle = Bundle(waiting.certificate, waiting.private_key, waiting.ca_cert)
    put_secret(management, secrets.CERT_SECRET, msgspec.to_builtins(bundle))
    _configure(management, inputs, waiting.broker_host)
    _remove(regional, inputs.handover_secret)
    log.info("certificate carried over", extra={"consumer": inputs.cluster_id})


def _configure(management: Aws, inputs: ManagementInputs, broker_host: str) -> None:
    config = broker.broker_config(broker_host, inputs.region_id, inputs.cluster_id)
    place = maestro_agent_iot_management.CONFIG_SECRET
    if put_secret(management, place, {"config": config, "consumerName": inputs.cluster_id}):
        log.info("the agent's configuration is written", extra={"secret": place})


def _remove(aws: Aws, secret: str) -> None:
    try:
        # At once: a secret that is only marked for deletion keeps its name, and its value.
        aws.client("secretsmanager").delete_secret(SecretId=secret, ForceDeleteWithoutRecovery=True)
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise


def _handover(regional: Aws, inputs: ManagementInputs) -> Handover | None:
    stored = get_secret(regional, inputs.handover_secret)
    return None if stored is None else msgspec.json.decode(stored, type=Handover)


def _mint(name: str, signing: Signing) -> Bundle:
    key, request = new_request(name)
    certificate = signing.authority(name).sign(request, CERTIFICATE_DAYS)
    log.info("certificate minted", extra={"common_name": name, "days": CERTIFICATE_DAYS})
    return Bundle(certificate, key, signing.broker_trust())
