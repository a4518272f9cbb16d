"""The broker's certificates and policies as IoT records them: what a name may do, and which certificates bear it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from botocore.exceptions import ClientError
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from regional.cloud.aws import Aws
from regional.local.provisioner.mosquitto import client_id_prefix, topics_of
from regional.local.provisioner.records import error_code

log = logging.getLogger(__name__)

_NAME = "${iot:Certificate.Subject.CommonName}"


def server_policy(region: str, account: str, region_id: str, partition: str = "aws") -> dict[str, Any]:
    """Its replicas share a certificate; each adds its pod's name to the certificate's for a client id of its own."""
    iot, topics = f"arn:{partition}:iot:{region}:{account}", topics_of(region_id)
    filters = [f"{topics}/+/agentevents", f"$share/statussubscribers/{topics}/+/agentevents"]
    return _policy(
        ("iot:Connect", f"{iot}:client/{client_id_prefix(region_id)}{_NAME}-*"),
        ("iot:Publish", f"{iot}:topic/{topics}/*/sourceevents"),
        ("iot:Receive", f"{iot}:topic/{topics}/*/agentevents"),
        ("iot:Subscribe", [f"{iot}:topicfilter/{item}" for item in filters]),
    )


def agent_policy(region: str, account: str, region_id: str, partition: str = "aws") -> dict[str, Any]:
    """The second client id is what the Go agent makes of --cloudevents-client-id=<region id>.<consumer>-work-agent."""
    iot, topics = f"arn:{partition}:iot:{region}:{account}", topics_of(region_id)
    client = f"{iot}:client/{client_id_prefix(region_id)}{_NAME}"
    return _policy(
        ("iot:Connect", [client, f"{client}-work-agent-client"]),
        ("iot:Publish", f"{iot}:topic/{topics}/{_NAME}/agentevents"),
        ("iot:Receive", f"{iot}:topic/{topics}/{_NAME}/sourceevents"),
        ("iot:Subscribe", f"{iot}:topicfilter/{topics}/{_NAME}/sourceevents"),
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


def retire(aws: Aws, policy: str, certificate_arns: Iterable[str]) -> None:
    """Take the policy away from these certificates, and their life."""
    client = aws.client("iot")
    for arn in certificate_arns:
        client.detach_policy(policyName=policy, target=arn)
        client.update_certificate(certificateId=arn.rpartition("/")[2], newStatus="INACTIVE")
        log.info("certificate retired", extra={"certificate": arn})


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
