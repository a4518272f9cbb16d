"""Two steps: minted in the regional account, carried to the Management Cluster's account, left nowhere else."""

from __future__ import annotations

import json

import pytest
import yaml

from regional.cloud.secrets import get_secret, put_secret
from regional.core.problems import UserError
from regional.local.provisioner.authority import common_name
from regional.local.provisioner.outputs import bucket_name
from tests.provisioner.harness import AWS_REGION, Ground
from tests.provisioner.mqtt_client import agent_bundle

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

HANDOVER = "maestro/agent-handover/{}"


async def test_the_key_ends_in_the_management_account_alone(shared_ground: Ground) -> None:
    await shared_ground.with_broker()
    regional, management = shared_ground.regional(), shared_ground.management("mc01")
    inputs = shared_ground.management_inputs("mc01")
    outputs = await shared_ground.provision("maestro-agent-iot-regional", inputs)
    waiting = json.loads(shared_ground.secret(regional, outputs["handover_secret_name"]))
    assert common_name(waiting["certificate"]) == "mc01"
    await shared_ground.provision("maestro-agent-iot-management", inputs)
    assert get_secret(regional, outputs["handover_secret_name"]) is None
    assert agent_bundle(shared_ground, "mc01")["privateKey"] == waiting["privateKey"]
    config = json.loads(shared_ground.secret(management, "maestro/agent-config"))
    assert config["consumerName"] == "mc01"
    assert yaml.safe_load(config["config"])["clientIdPrefix"] == "test-local."
    assert yaml.safe_load(config["config"])["topics"] == {
        "sourceEvents": "sources/maestro-test-local/consumers/mc01/sourceevents",
        "agentEvents": "sources/maestro-test-local/consumers/mc01/agentevents",
    }


async def test_again_keeps_a_certificate_that_lasts(shared_ground: Ground) -> None:
    await shared_ground.with_broker("mc01")
    before = agent_bundle(shared_ground, "mc01")
    await shared_ground.with_broker("mc01")
    assert agent_bundle(shared_ground, "mc01") == before


async def test_a_configuration_of_an_older_version_is_brought_up_to_date(shared_ground: Ground) -> None:
    await shared_ground.with_broker("mc01")
    management, before = shared_ground.management("mc01"), agent_bundle(shared_ground, "mc01")
    present = json.loads(shared_ground.secret(management, "maestro/agent-config"))
    old = present | {"config": present["config"].replace("maestro-test-local", "maestro")}
    put_secret(management, "maestro/agent-config", old)
    await shared_ground.provision("maestro-agent-iot-management", shared_ground.management_inputs("mc01"))
    assert json.loads(shared_ground.secret(management, "maestro/agent-config")) == present
    assert agent_bundle(shared_ground, "mc01") == before


async def test_again_between_the_steps_keeps_what_waits(shared_ground: Ground) -> None:
    await shared_ground.with_broker()
    inputs = shared_ground.management_inputs("mc02")
    first = await shared_ground.provision("maestro-agent-iot-regional", inputs)
    waiting = shared_ground.secret(shared_ground.regional(), HANDOVER.format("mc02"))
    assert await shared_ground.provision("maestro-agent-iot-regional", inputs) == first
    assert shared_ground.secret(shared_ground.regional(), HANDOVER.format("mc02")) == waiting


async def test_the_second_step_without_the_first_says_so(shared_ground: Ground) -> None:
    with pytest.raises(UserError, match="no certificate waits for mc09"):
        await shared_ground.provision("maestro-agent-iot-management", shared_ground.management_inputs("mc09"))


@pytest.mark.parametrize(
    "name", ["maestro-server", "maestro-server-2", "x-work-agent-client", "UPPER", "a/b", "+", "#"]
)
async def test_names_that_would_mislead_the_broker_are_refused(shared_ground: Ground, name: str) -> None:
    inputs = shared_ground.management_inputs("mc01") | {"cluster_id": name, "alias": "mc01"}
    with pytest.raises(UserError, match="cluster_id"):
        await shared_ground.provision("maestro-agent-iot-regional", inputs)


async def test_no_private_key_is_in_any_stored_output_or_in_iot(shared_ground: Ground) -> None:
    await shared_ground.with_broker("mc01")
    for aws, account in (
        (shared_ground.regional(), shared_ground.regional_account),
        (shared_ground.management("mc01"), shared_ground.management_inputs("mc01")["account_id"]),
    ):
        client, bucket = aws.client("s3"), bucket_name(account, AWS_REGION)
        keys = [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"]]
        assert all(key.startswith("test/local/") for key in keys)
        for key in keys:
            text = client.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
            assert "PRIVATE KEY" not in text
            assert "password" not in text


async def test_iot_policies_bind_ids_and_topics_to_the_certificates_name(shared_ground: Ground) -> None:
    await shared_ground.with_broker("mc01")
    iot = shared_ground.regional().client("iot")
    for policy in iot.list_policies()["policies"]:
        document = json.loads(iot.get_policy(policyName=policy["policyName"])["policyDocument"])
        for statement in document["Statement"]:
            resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
            if statement["Action"] == "iot:Connect":
                own = "client/test-local.${iot:Certificate.Subject.CommonName}"
                assert all(own in resource for resource in resources)
            else:
                assert all("/sources/maestro-test-local/consumers/" in resource for resource in resources)
            assert not any(resource.endswith("/*") or resource == "*" for resource in resources)
