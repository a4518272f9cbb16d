"""The step program's part in broker certificates: keys are born here, and go to Secrets Manager and nowhere else.

Before a root is applied, the key is made and the region's authority signs the request; the root gets the certificate
alone, so no state, plan or output ever holds a key. A certificate that is good for another month is kept.

An agent's key crosses accounts in two steps, as the operator's commands do. The regional step leaves certificate and
key in `maestro/agent-handover/<cluster>` *before* the certificate is registered; the management step writes them into
the Management Cluster's account and then removes the hand-over. So a registered certificate without a hand-over has
arrived. The server's key waits in a hand-over of its own until the root has made its place.
"""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec
from botocore.exceptions import ClientError

from regional.cloud.aws import Aws
from regional.cloud.secrets import get_secret, put_secret
from regional.core.problems import UserError
from regional.local.provisioner import iot_records
from regional.local.provisioner.authority import CERTIFICATE_DAYS, Authority, lasts, new_request
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


def agent_certificate(
    regional: Aws, inputs: ManagementInputs, signing: Signing, broker_host: str, *, renew: bool
) -> str:
    """The agent's certificate. If it is new, certificate and key already wait for the other half."""
    authority = signing.authority(inputs.cluster_id)
    waiting = _handover(regional, inputs)
    if waiting is not None and lasts(waiting.certificate, inputs.cluster_id, authority.certificate):
        return waiting.certificate
    registered = iot_records.active_certificates(regional, maestro_agent_iot_regional.policy_name(inputs))
    for certificate in registered.values():
        if not renew and lasts(certificate, inputs.cluster_id, authority.certificate):
            return certificate
    minted = _mint(inputs.cluster_id, signing)
    handover = Handover(minted.certificate, minted.private_key, minted.ca_cert, broker_host)
    put_secret(regional, inputs.handover_secret, msgspec.to_builtins(handover))
    log.info("certificate waits to be carried over", extra={"secret": inputs.handover_secret})
    return minted.certificate


def carry_over(regional: Aws, management: Aws, inputs: ManagementInputs) -> None:
    """From the regional account's hand-over into the Management Cluster's own account."""
    secrets = maestro_agent_iot_management
    waiting = _handover(regional, inputs)
    if waiting is None:
        if get_secret(management, secrets.CERT_SECRET) is None or get_secret(management, secrets.CONFIG_SECRET) is None:
            raise UserError(
                f"no certificate waits for {inputs.cluster_id} in the regional account, and it has none yet",
                "run maestro-agent-iot-regional for it first; with --renew if its certificate was lost",
            )
        return
    bundle = Bundle(waiting.certificate, waiting.private_key, waiting.ca_cert)
    config = broker.broker_config(waiting.broker_host, inputs.cluster_id)
    put_secret(management, secrets.CERT_SECRET, msgspec.to_builtins(bundle))
    put_secret(management, secrets.CONFIG_SECRET, {"config": config, "consumerName": inputs.cluster_id})
    _remove(regional, inputs.handover_secret)
    log.info("certificate carried over", extra={"consumer": inputs.cluster_id})


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
