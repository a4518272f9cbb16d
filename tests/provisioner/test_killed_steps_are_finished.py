"""Any step may be killed at any moment; running it again finishes the job and makes nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional.core.paths import checkout
from regional.local.provisioner.root_table import ROOTS
from tests.provisioner.harness import AWS_REGION, CENTRAL, Ground
from tests.provisioner.mqtt_client import Client, Refused, agent_bundle, server_bundle

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

# After how many log lines each step dies, one run after the other. A line is written right after something was made.
DEATHS = {
    "network": (2, 4, 6),
    "database": (2, 3, 5),
    "certificate-authority": (2, 3),
    "broker": (2, 3, 9),
    "api-gateway": (2, 4, 5, 6, 8),
    "maestro-agent-iot-regional": (2, 3, 4),
    "maestro-agent-iot-management": (2, 4),
}


async def run_step(
    ground: Ground, root: str, inputs: dict[str, Any], lines: int, tmp_path: Path, **options: bool
) -> int:
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps(inputs))
    request = {"root": root, "region": ground.paths.region, "var_files": [str(file)], **options}
    environment = {
        "PATH": os.environ["PATH"],
        "REGIONAL_HOME": os.environ["REGIONAL_HOME"],
        "AWS_ENDPOINT_URL": ground.endpoint,
        "AWS_REGION": AWS_REGION,
        "AWS_ACCESS_KEY_ID": CENTRAL.access_key,
        "AWS_SECRET_ACCESS_KEY": CENTRAL.secret_key,
    }
    if "REGIONAL_RUNTIME" in os.environ:
        environment["REGIONAL_RUNTIME"] = os.environ["REGIONAL_RUNTIME"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.provisioner.dying_step", str(lines), json.dumps(request)),
        cwd=checkout(),
        env=environment,
    )
    return await process.wait()


async def test_every_root_survives_being_killed(shared_ground: Ground, tmp_path: Path) -> None:
    await shared_ground.with_warm_parent()
    for root, deaths in DEATHS.items():
        about_region = ROOTS[root].about_region
        inputs = shared_ground.regional_inputs() if about_region else shared_ground.management_inputs("mc01")
        for lines in deaths:
            assert await run_step(shared_ground, root, inputs, lines, tmp_path) in (0, -signal.SIGKILL), root
        first = await shared_ground.provision(root, inputs)
        assert await shared_ground.provision(root, inputs) == first
    await _nothing_was_made_twice(shared_ground)


async def _nothing_was_made_twice(ground: Ground) -> None:
    regional = ground.regional()
    ec2 = regional.client("ec2")
    vpcs = ec2.describe_vpcs(Filters=[{"Name": "tag:environment", "Values": ["test"]}])["Vpcs"]
    assert len(vpcs) == 1
    subnets = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpcs[0]["VpcId"]]}])["Subnets"]
    assert len(subnets) == 6
    iot = regional.client("iot")
    active = [c for c in iot.list_certificates()["certificates"] if c["status"] == "ACTIVE"]
    described = [iot.describe_certificate(certificateId=c["certificateId"])["certificateDescription"] for c in active]
    registered = {d["certificatePem"] for d in described}
    assert registered == {agent_bundle(ground, "mc01")["certificate"], server_bundle(ground)["certificate"]}
    services = {"postgres", "broker", "warm", "gateway"}
    for service in services:
        assert await ground.service_pid(service)
    assert {s.name for s in await ground.context().supervisor.services()} == services


async def test_a_rotation_survives_being_killed(shared_ground: Ground, tmp_path: Path) -> None:
    await shared_ground.with_broker("mc02")
    inputs, former = shared_ground.management_inputs("mc02"), agent_bundle(shared_ground, "mc02")
    rotation: tuple[tuple[str, dict[str, bool], tuple[int, ...]], ...] = (
        ("maestro-agent-iot-regional", {"renew": True}, (3,)),
        ("maestro-agent-iot-management", {}, (2,)),
        ("maestro-agent-iot-regional", {"retire": True}, (2, 3)),
    )
    for root, options, deaths in rotation:
        for lines in deaths:
            ended = await run_step(shared_ground, root, inputs, lines, tmp_path, **options)
            assert ended in (0, -signal.SIGKILL), root
        await shared_ground.provision(root, inputs, **options)
    new = agent_bundle(shared_ground, "mc02")
    iot = shared_ground.regional().client("iot")
    targets = iot.list_targets_for_policy(policyName="test-local-mc02-maestro-agent")["targets"]
    described = [iot.describe_certificate(certificateId=arn.rpartition("/")[2]) for arn in targets]
    assert [found["certificateDescription"]["certificatePem"] for found in described] == [new["certificate"]]
    config = json.loads(shared_ground.secret(shared_ground.management("mc02"), "maestro/agent-config"))["config"]
    broker = yaml.safe_load(config)["brokerHost"]
    async with Client(broker, new, "mc02"):
        pass
    with pytest.raises(Refused):
        async with Client(broker, former, "mc02"):
            pass
