"""The region's edge as its root makes it: a door with a certificate of its own, a secret that stays, a key to try."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from regional.cloud.aws import Aws
from regional.cloud.parameters import get_parameter
from regional.core.problems import UserError
from regional.local.customer import MintCustomer, key_file, load_key, mint_customer
from regional.local.provisioner import edge
from regional.local.provisioner.roots.api_gateway import CONFIG_SECRET, PORT, EdgeFiles
from tests.provisioner.harness import AWS_REGION, Ground

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outputs(shared_ground: Ground) -> dict[str, Any]:
    await shared_ground.with_warm_parent()
    shared_ground.paths.aws.mkdir(parents=True, exist_ok=True)
    await shared_ground.provision("network", shared_ground.regional_inputs())
    return await shared_ground.provision("api-gateway", shared_ground.regional_inputs())


async def _answer(ground: Ground) -> bytes:
    """The first line of what the edge says to somebody who trusts its authority and signs nothing."""
    context = ssl.create_default_context(cafile=str(EdgeFiles(ground.paths).trust))
    reader, writer = await asyncio.open_connection(ground.context().gateway_address(), PORT, ssl=context)
    writer.write(b"GET /prod/api/v0/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await writer.drain()
    line = await reader.readline()
    writer.close()
    return line


async def test_the_url_leads_to_a_door_that_asks_for_a_signature(
    shared_ground: Ground, outputs: dict[str, Any]
) -> None:
    address = shared_ground.context().gateway_address()
    assert outputs["invoke_url"] == f"https://{address}:{PORT}/prod"
    assert b"403" in await _answer(shared_ground)


async def test_the_secret_is_in_secrets_manager_and_stays(shared_ground: Ground, outputs: dict[str, Any]) -> None:
    regional = shared_ground.regional()
    first = json.loads(shared_ground.secret(regional, edge.GATEWAY_SECRET))["secret"]
    assert EdgeFiles(shared_ground.paths).secret.read_text() == first
    assert len(first) >= 32
    before = await shared_ground.service_pid("gateway")
    assert await shared_ground.provision("api-gateway", shared_ground.regional_inputs()) == outputs
    assert json.loads(shared_ground.secret(regional, edge.GATEWAY_SECRET))["secret"] == first
    assert await shared_ground.service_pid("gateway") == before, "nothing changed, so nothing is started again"
    assert first not in json.dumps(outputs)


async def test_a_rotated_secret_reaches_the_edge(shared_ground: Ground, outputs: dict[str, Any]) -> None:
    client = shared_ground.regional().client("secretsmanager")
    client.put_secret_value(SecretId=edge.GATEWAY_SECRET, SecretString='{"secret": "another one, just as long"}')
    await shared_ground.provision("api-gateway", shared_ground.regional_inputs())
    assert EdgeFiles(shared_ground.paths).secret.read_text() == "another one, just as long"


async def test_the_regions_own_account_runs_the_region(shared_ground: Ground, outputs: dict[str, Any]) -> None:
    config = json.loads(shared_ground.secret(shared_ground.regional(), CONFIG_SECRET))
    assert config == {"privilegedAccounts": shared_ground.regional_account}


async def test_files_are_private_and_the_certificate_is_for_the_address(
    shared_ground: Ground, outputs: dict[str, Any]
) -> None:
    files = EdgeFiles(shared_ground.paths)
    assert files.directory.stat().st_mode & 0o777 == 0o700
    for file in files.directory.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert addresses == [shared_ground.context().gateway_address()]
    authority = files.authority.read_text()
    assert files.trust.read_text().endswith(authority)


async def test_a_key_that_is_not_the_certificates_is_replaced_with_it(
    shared_ground: Ground, outputs: dict[str, Any]
) -> None:
    """The two are written one after the other; a step may have been killed between them."""
    files = EdgeFiles(shared_ground.paths)
    files.key.write_text((files.authority_directory / "ca.key").read_text())
    await shared_ground.provision("api-gateway", shared_ground.regional_inputs())
    assert b"403" in await _answer(shared_ground)


async def test_the_edge_comes_back_when_killed(shared_ground: Ground, outputs: dict[str, Any]) -> None:
    await shared_ground.kill_service("gateway")
    assert b"403" in await _answer(shared_ground)


def _rest_api(aws: Aws) -> tuple[str, list[str]]:
    """As the Terraform module leaves it: an API with two deployments and no stage."""
    client = aws.client("apigateway")
    api = client.create_rest_api(name="test")["id"]
    root = client.get_resources(restApiId=api)["items"][0]["id"]
    client.put_method(restApiId=api, resourceId=root, httpMethod="ANY", authorizationType="AWS_IAM")
    client.put_integration(
        restApiId=api,
        resourceId=root,
        httpMethod="ANY",
        type="HTTP_PROXY",
        integrationHttpMethod="ANY",
        uri="http://lb.example.com/",
    )
    return api, [client.create_deployment(restApiId=api)["id"] for _ in range(2)]


async def test_in_the_cloud_the_stage_carries_the_secret_and_shows_the_last_deployment(
    shared_ground: Ground, outputs: dict[str, Any]
) -> None:
    aws = shared_ground.regional()
    api, deployments = await asyncio.to_thread(_rest_api, aws)
    client = aws.client("apigateway")
    for deployment in (*deployments, deployments[1]):
        await asyncio.to_thread(edge.publish_stage, aws, api, deployment)
        stage = client.get_stage(restApiId=api, stageName="prod")
        assert stage["deploymentId"] == deployment
        assert stage["variables"] == {"gatewaySecret": edge.gateway_secret(aws)}


# -- somebody to try it with -----------------------------------------------------------------------------------------


def _mint(ground: Ground, customer: str) -> str:
    request = MintCustomer(environment="test", region=ground.regional_account, customer=customer)
    return mint_customer(request, ground.central, ground.paths)


async def test_a_customers_key_is_made_once_and_works(shared_ground: Ground) -> None:
    account = await asyncio.to_thread(_mint, shared_ground, "ada")
    key = load_key(shared_ground.paths, "ada")
    assert key is not None and key.account_id == account
    assert key.secret_key not in repr(key)
    assert key_file(shared_ground.paths, "ada").stat().st_mode & 0o777 == 0o600
    aws = Aws(region=AWS_REGION, endpoint=shared_ground.endpoint, credentials=key.credentials(), environ={})
    assert aws.account_id() == account
    aws.close()
    assert await asyncio.to_thread(_mint, shared_ground, "ada") == account
    assert load_key(shared_ground.paths, "ada") == key
    parameter = f"/infra/test/{shared_ground.regional_account}/customers/ada/account_id"
    assert get_parameter(shared_ground.central, parameter) == account


async def test_a_key_whose_secret_was_lost_is_replaced(shared_ground: Ground) -> None:
    account = await asyncio.to_thread(_mint, shared_ground, "bob")
    lost = load_key(shared_ground.paths, "bob")
    Path(key_file(shared_ground.paths, "bob")).unlink()
    await asyncio.to_thread(_mint, shared_ground, "bob")
    found = load_key(shared_ground.paths, "bob")
    assert lost is not None and found is not None and found.access_key != lost.access_key
    inside = shared_ground.context().account(account, AWS_REGION)
    listed = inside.client("iam").list_access_keys(UserName="owner")["AccessKeyMetadata"]
    assert [key["AccessKeyId"] for key in listed] == [found.access_key]


@pytest.mark.parametrize("name", ["", "-ada", "Ada", "../ada", "a" * 40])
async def test_a_name_that_is_none_is_refused(shared_ground: Ground, name: str) -> None:
    with pytest.raises(UserError, match="customer's name"):
        await asyncio.to_thread(_mint, shared_ground, name)
