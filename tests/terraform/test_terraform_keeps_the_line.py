"""What the design promises about accounts, keys and doors, read from the files (no Terraform needed)."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from regional.cli.steps import bootstrap
from regional.core.paths import checkout

TERRAFORM = checkout() / "terraform"
ROOTS = sorted((TERRAFORM / "config").iterdir())
FILES = {path: path.read_text() for path in sorted(TERRAFORM.rglob("*.tf"))}


def test_no_key_can_reach_a_state() -> None:
    for path, text in FILES.items():
        assert "tls_private_key" not in text, path
        assert not re.search(r"^  (password|csr|secret_binary)\s+=", text, re.M), path
        for body in re.findall(r'resource "aws_iot_certificate" "[^"]+" {\n(.*?)^}', text, re.M | re.S):
            assert "certificate_pem" in body, path  # without it IoT would make a key and put it into the state
        for body in re.findall(
            r'resource "aws_secretsmanager_secret_version" "(?!config)[^"]+" {\n(.*?)^}', text, re.M | re.S
        ):
            assert re.search(r"^\s*secret_string_wo\s", body, re.M), path


def test_client_ids_are_tied_to_certificates() -> None:
    for path, text in FILES.items():
        for line in re.findall(r'"[^"]*:client/[^"]*"', text):
            assert re.search(r"client/\$\{(var.region_id\}\.|local.prefix\})\$\{local.name\}", line), (path, line)
        if ":client/" in text:
            assert 'name   = "$${iot:Certificate.Subject.CommonName}"' in text, path


def test_kubernetes_answers_inside_its_vpc_only() -> None:
    text = FILES[TERRAFORM / "modules" / "eks-cluster" / "main.tf"]
    assert re.search(r"endpoint_public_access\s+= false", text)
    assert re.search(r"endpoint_private_access\s+= true", text)


def test_no_network_joins_two_clusters() -> None:
    for path, text in FILES.items():
        for kind in ("aws_vpc_peering", "aws_ec2_transit_gateway", "aws_vpc_endpoint_service"):
            assert kind not in text, path


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_every_root_locks_its_state_and_pins_its_provider(root: Path) -> None:
    text = (root / "versions.tf").read_text()
    assert re.search(r'backend "s3" {.*use_lockfile = true', text, re.S)
    assert re.search(r'version = "\d+\.\d+\.\d+"', text)


def test_a_management_root_never_takes_the_regional_clusters_facts() -> None:
    text = (TERRAFORM / "config" / "management-cluster" / "variables.tf").read_text()
    names = set(re.findall(r'^variable "([^"]+)"', text, re.M))
    assert not names & {"cluster_endpoint", "database_security_group_id", "maestro_db_secret_arn", "broker_host"}


def test_the_bootstrap_task_calls_regionctl_as_it_is() -> None:
    text = FILES[TERRAFORM / "modules" / "ecs-bootstrap" / "main.tf"]
    command = text[text.index("exec regionctl bootstrap") :].partition("]),")[0]
    given = set(re.findall(r"--[a-z-]+", command))
    options = [option for option in bootstrap.params if isinstance(option, click.Option)]
    assert given <= {flag for option in options for flag in option.opts}
    assert {option.opts[0] for option in options if option.required} <= given


def test_the_bootstrap_task_takes_facts_of_other_roots_from_its_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ECS task is started with environment, not with words: without this its cluster never learns of them."""
    assert "FACTS" in FILES[TERRAFORM / "modules" / "ecs-bootstrap" / "main.tf"]
    required = [option for option in bootstrap.params if isinstance(option, click.Option) and option.required]
    values = {"--cluster-type": "regional-cluster"}
    argv = [word for option in required for word in (option.opts[0], values.get(option.opts[0], "x"))]
    monkeypatch.setenv("FACTS", "api_target_group_arn=arn:aws:1 vpc_id=vpc-1")
    assert bootstrap.make_context("bootstrap", [*argv]).params["facts"] == (
        "api_target_group_arn=arn:aws:1",
        "vpc_id=vpc-1",
    )
    monkeypatch.delenv("FACTS")
    assert bootstrap.make_context("bootstrap", [*argv, "--fact=vpc_id=2"]).params["facts"] == ("vpc_id=2",)
