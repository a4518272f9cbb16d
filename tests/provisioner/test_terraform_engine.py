"""The real Terraform behind the same command: same inputs, same outputs, same secrets at the end."""

from __future__ import annotations

import json

import pytest

from regional.local.provisioner.authority import PrivateCa, lasts, new_request
from regional.local.provisioner.inputs import ManagementInputs, RegionalInputs
from regional.local.provisioner.outputs import bucket_name
from regional.local.provisioner.root_table import ROOTS
from regional.local.provisioner.terraform_engine import amazon_root, backend_configuration
from tests.provisioner.harness import AWS_REGION, Ground
from tests.provisioner.mqtt_client import agent_bundle
from tests.terraform.installed import terraform_environment

COMMON = {
    "account_id": "111111111111",
    "region": "eu-west-1",
    "region_alias": "eu-west-1",
    "app_code": "infra",
    "service_phase": "dev",
    "cost_center": "000",
}


@pytest.mark.timeout(900)
async def test_terraform_applies_a_root_and_the_key_stays_out_of_its_state(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in terraform_environment().items():
        monkeypatch.setenv(name, value)
    if "TF_CLI_CONFIG_FILE" not in terraform_environment():
        monkeypatch.delenv("TF_CLI_CONFIG_FILE", raising=False)
    await ground.with_broker("mc01")
    theirs = ground.management_inputs("mc02")
    await ground.provision("maestro-agent-iot-regional", theirs)
    ours = await ground.provision("maestro-agent-iot-management", ground.management_inputs("mc01"))
    outputs = await ground.provision("maestro-agent-iot-management", theirs, engine="terraform")
    assert set(outputs) == set(ours)
    assert outputs["consumer_name"] == "mc02"
    assert set(agent_bundle(ground, "mc02")) == {"certificate", "privateKey", "caCert"}
    client = ground.management("mc02").client("s3")
    state = client.get_object(
        Bucket=bucket_name(theirs["account_id"], AWS_REGION), Key="test/local/maestro-agent-iot-management/mc02.tfstate"
    )["Body"].read()
    assert json.loads(state)["resources"]
    assert b"PRIVATE KEY" not in state


async def test_a_private_authority_signs_what_the_step_made(ground: Ground) -> None:
    client = ground.regional().client("acm-pca")
    arn = client.create_certificate_authority(
        CertificateAuthorityType="ROOT",
        CertificateAuthorityConfiguration={
            "KeyAlgorithm": "RSA_2048",
            "SigningAlgorithm": "SHA256WITHRSA",
            "Subject": {"CommonName": "test broker"},
        },
    )["CertificateAuthorityArn"]
    issued = client.issue_certificate(
        CertificateAuthorityArn=arn,
        Csr=client.get_certificate_authority_csr(CertificateAuthorityArn=arn)["Csr"].encode(),
        SigningAlgorithm="SHA256WITHRSA",
        TemplateArn="arn:aws:acm-pca:::template/RootCACertificate/V1",
        Validity={"Type": "YEARS", "Value": 10},
    )["CertificateArn"]
    root = client.get_certificate(CertificateAuthorityArn=arn, CertificateArn=issued)["Certificate"]
    client.import_certificate_authority_certificate(CertificateAuthorityArn=arn, Certificate=root.encode())
    _, request = new_request("mc01")
    assert lasts(PrivateCa(client, root).sign(request, 90), "mc01", root)


def test_two_environments_never_share_a_state() -> None:
    regions = [
        RegionalInputs(alias="regional-eu-west-1", environment=environment, **COMMON)  # type: ignore[arg-type]
        for environment in ("staging", "production")
    ]
    assert backend_configuration(ROOTS["network"], regions[0]) != backend_configuration(ROOTS["network"], regions[1])
    assert 'key = "staging/eu-west-1/network.tfstate"' in backend_configuration(ROOTS["network"], regions[0])


def test_each_management_cluster_has_a_state_in_its_own_account() -> None:
    inputs = ManagementInputs(
        alias="mc01",
        environment="staging",
        cluster_id="mc01",
        regional_aws_account_id="222222222222",
        **COMMON,  # type: ignore[arg-type]
    )
    cluster = backend_configuration(ROOTS["management-cluster"], inputs)
    assert 'key = "staging/eu-west-1/management-cluster/mc01.tfstate"' in cluster
    assert "terraform-state-111111111111-eu-west-1" in cluster
    assert "terraform-state-222222222222-eu-west-1" in backend_configuration(
        ROOTS["maestro-agent-iot-regional"], inputs
    )


def test_the_trust_of_iots_endpoints_is_at_hand() -> None:
    assert amazon_root().startswith("-----BEGIN CERTIFICATE-----")
