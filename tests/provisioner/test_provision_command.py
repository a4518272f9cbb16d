"""What a pipeline's step types, and what it gets back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from regional.cloud.parameters import put_parameter
from regional.core.problems import UserError
from regional.local.provisioner.command import Request, parse_pairs, provision_command, read_inputs
from tests.provisioner.harness import AWS_REGION, CENTRAL, Ground


def _request(tmp_path: Path, inputs: dict[str, Any], root: str = "network", **more: Any) -> Request:
    file = tmp_path / "regional.json"
    file.write_text(json.dumps(inputs))
    return Request(root=root, region="local", var_files=[file], **more)


def _environ(ground: Ground, **more: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": ground.endpoint,
        "AWS_REGION": AWS_REGION,
        "AWS_ACCESS_KEY_ID": CENTRAL.access_key,
        "AWS_SECRET_ACCESS_KEY": CENTRAL.secret_key,
        **more,
    }


async def test_results_are_written_for_the_pipeline(ground: Ground, tmp_path: Path) -> None:
    results = {"vpc_id": tmp_path / "vpc", "private_subnet_ids": tmp_path / "subnets"}
    request = _request(tmp_path, ground.regional_inputs(), result_files=results, overrides={"vpc_cidr": "10.9.0.0/16"})
    outputs = await asyncio.to_thread(provision_command, request, _environ(ground))
    assert outputs["vpc_cidr"] == "10.9.0.0/16"
    assert results["vpc_id"].read_text() == outputs["vpc_id"]
    assert json.loads(results["private_subnet_ids"].read_text()) == outputs["private_subnet_ids"]


async def test_account_ids_are_looked_up_where_config_refers_to_them(ground: Ground, tmp_path: Path) -> None:
    name = f"/infra/test/{ground.regional_account}/account_id"
    put_parameter(ground.central, name, ground.regional_account)
    inputs = ground.regional_inputs(account_id=f"ssm://{name}", management_cluster_account_ids=[f"ssm://{name}"])
    outputs = await ground.provision("network", inputs)
    found = ground.regional().client("ec2").describe_vpcs(VpcIds=[outputs["vpc_id"]])["Vpcs"]
    assert found[0]["OwnerId"] == ground.regional_account


async def test_a_root_before_its_time_says_what_it_needs(ground: Ground) -> None:
    with pytest.raises(UserError, match="database needs vpc_id, private_subnet_ids"):
        await ground.provision("database", ground.regional_inputs())
    with pytest.raises(UserError, match="no broker yet"):
        await ground.provision("maestro-agent-iot-regional", ground.management_inputs("mc01"))
    with pytest.raises(UserError, match="no certificate authority yet"):
        await ground.provision("broker", ground.regional_inputs())


async def test_a_region_marked_for_deletion_is_not_built(ground: Ground) -> None:
    with pytest.raises(UserError, match="marked for deletion"):
        await ground.provision("network", ground.regional_inputs(delete=True))


def test_variables_are_typed_as_terraform_types_them(tmp_path: Path) -> None:
    given = {"availability_zone_count": "2", "cost_center": "007", "management_cluster_account_ids": '["1"]'}
    inputs = read_inputs(_request(tmp_path, {"region": "x"}, overrides=given))
    assert inputs == {
        "region": "x",
        "availability_zone_count": 2,
        "cost_center": "007",
        "management_cluster_account_ids": ["1"],
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"root": "netwrok"}, "no root named netwrok"),
        ({"overrides": {"vpc_cdir": "x"}}, "no variable vpc_cdir"),
        ({"overrides": {"availability_zone_count": "many"}}, "--var availability_zone_count"),
        ({"var_files": [Path("missing.json")]}, "cannot read missing.json"),
        ({"result_files": {"vpc": Path("x")}}, "no output vpc"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    request = _request(tmp_path, {})
    for name, value in change.items():
        setattr(request, name, value)
    with pytest.raises(UserError, match=said):
        provision_command(request, {})


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="PROVISIONER is 'pulumi'"):
        provision_command(_request(tmp_path, {}), {"PROVISIONER": "pulumi"})


def test_pairs_need_an_equals_sign() -> None:
    assert parse_pairs(["a=b=c"], "--var") == {"a": "b=c"}
    with pytest.raises(UserError, match="expected key=value"):
        parse_pairs(["a"], "--var")
