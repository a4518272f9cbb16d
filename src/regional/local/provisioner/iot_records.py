"""The broker's certificates and policies as IoT records them: what a name may do, and which certificates bear it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from regional.cloud.aws import Aws
from regional.local.provisioner.mosquitto import TOPICS
from regional.local.provisioner.records import error_code

log = logging.getLogger(__name__)

_NAME = "${iot:Certificate.Subject.CommonName}"


def server_policy(region: str, account: str) -> dict[str, Any]:
    iot = f"arn:aws:iot:{region}:{account}"
    filters = [f"{TOPICS}/+/agentevents", f"$share/statussubscribers/{TOPICS}/+/agentevents"]
    return _policy(
        ("iot:Connect", f"{iot}:client/{_NAME}-*"),
        ("iot:Publish", f"{iot}:topic/{TOPICS}/*/sourceevents"),
        ("iot:Receive", f"{iot}:topic/{TOPICS}/*/agentevents"),
        ("iot:Subscribe", [f"{iot}:topicfilter/{item}" for item in filters]),
    )


def agent_policy(region: str, account: str) -> dict[str, Any]:
    iot = f"arn:aws:iot:{region}:{account}"
    return _policy(
        ("iot:Connect", [f"{iot}:client/{_NAME}", f"{iot}:client/{_NAME}-work-agent-client"]),
        ("iot:Publish", f"{iot}:topic/{TOPICS}/{_NAME}/agentevents"),
        ("iot:Receive", f"{iot}:topic/{TOPICS}/{_NAME}/sourceevents"),
        ("iot:Subscribe", f"{iot}:topicfilter/{TOPICS}/{_NAME}/sourceevents"),
    )


def _policy(*statements: tuple[str, str | list[str]]) -> dict[str, Any]:
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": action, "Resource": resource} for action, resource in statements],
    }


def ensure_authority(aws: Aws, certificate: str) -> str:
    client = aws.client("iot")
    found = _described(client.describe_ca_certificate, certificate)
    if found is not None:
        return str(found["certificateDescription"]["certificateId"])
    made = client.register_ca_certificate(caCertificate=certificate, setAsActive=True, certificateMode="SNI_ONLY")
    log.info("certificate authority registered", extra={"id": made["certificateId"]})
    return str(made["certificateId"])


def ensure_certificate(aws: Aws, certificate: str, authority: str) -> str:
    """Its ARN, registered and active."""
    client = aws.client("iot")
    found = _described(client.describe_certificate, certificate)
    if found is None:
        made = client.register_certificate(certificatePem=certificate, caCertificatePem=authority, setAsActive=True)
        log.info("certificate registered", extra={"id": made["certificateId"]})
        return str(made["certificateArn"])
    description = found["certificateDescription"]
    if description["status"] != "ACTIVE":
        client.update_certificate(certificateId=description["certificateId"], newStatus="ACTIVE")
    return str(description["certificateArn"])


def ensure_policy(aws: Aws, name: str, document: dict[str, Any], certificate_arn: str) -> None:
    client = aws.client("iot")
    text = json.dumps(document)
    try:
        if json.loads(client.get_policy(policyName=name)["policyDocument"]) != document:
            client.create_policy_version(policyName=name, policyDocument=text, setAsDefault=True)
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        client.create_policy(policyName=name, policyDocument=text)
        log.info("IoT policy made", extra={"policy": name})
    client.attach_policy(policyName=name, target=certificate_arn)


def active_certificates(aws: Aws, policy: str) -> dict[str, str]:
    """ARN to PEM of the active certificates that a policy is attached to."""
    client = aws.client("iot")
    try:
        targets = client.list_targets_for_policy(policyName=policy)["targets"]
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        return {}
    described = [
        client.describe_certificate(certificateId=arn.rpartition("/")[2])["certificateDescription"] for arn in targets
    ]
    return {str(d["certificateArn"]): str(d["certificatePem"]) for d in described if d["status"] == "ACTIVE"}


def retire_others(aws: Aws, policy: str, kept_arn: str) -> list[str]:
    """Take the policy away from every certificate but one; the PEM of each that lost it."""
    client = aws.client("iot")
    retired = []
    for arn, certificate in active_certificates(aws, policy).items():
        if arn == kept_arn:
            continue
        client.detach_policy(policyName=policy, target=arn)
        client.update_certificate(certificateId=arn.rpartition("/")[2], newStatus="INACTIVE")
        log.info("certificate retired", extra={"certificate": arn})
        retired.append(certificate)
    return retired


def _described(describe: Callable[..., dict[str, Any]], certificate: str) -> dict[str, Any] | None:
    """IoT's id is the digest of the certificate; moto takes that of the PEM text instead."""
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    binary = loaded.public_bytes(serialization.Encoding.DER)
    for content in (binary, certificate.encode()):
        try:
            return describe(certificateId=hashlib.sha256(content).hexdigest())
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
    return None
