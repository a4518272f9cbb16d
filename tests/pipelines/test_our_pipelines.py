"""The files in tekton/: whole, in the order that the roots need, and minting accounts that can be found again."""

from __future__ import annotations

from pathlib import Path

from regional.cloud.parameters import get_parameter
from regional.core import paths
from regional.pipelines import graph
from regional.pipelines.catalog import load_catalog
from regional.pipelines.commands import parse_params
from regional.pipelines.tasks import MintAccount, run_mint_account
from tests.cloud.conftest import Host, host

__all__ = ["host"]


def test_they_can_be_run_and_name_roots_that_exist() -> None:
    catalog = load_catalog(paths.checkout() / "tekton")
    assert {"provision-regional", "provision-management"} <= catalog.pipelines.keys()
    for pipeline in catalog.pipelines.values():
        for task in pipeline.spec.tasks:
            roots = [param.value for param in task.params if param.name == "root"]
            for root in roots:
                assert (paths.checkout() / "terraform" / "config" / str(root)).is_dir(), root


def test_the_order_gives_every_root_what_it_reads() -> None:
    catalog = load_catalog(paths.checkout() / "tekton")
    regional = graph.dependencies(catalog.pipelines["provision-regional"].spec.tasks)
    assert regional["database"] == {"network"}
    assert regional["broker"] == {"certificate-authority"}
    assert regional["api-gateway"] == {"network"}
    assert regional["regional-cluster"] == {"network", "database", "broker", "api-gateway"}
    assert regional["bootstrap"] == {"regional-cluster", "api-gateway"}
    management = graph.dependencies(catalog.pipelines["provision-management"].spec.tasks)
    assert management["maestro-agent-iot-management"] == {"maestro-agent-iot-regional"}
    assert management["bootstrap"] == {"management-cluster"}
    assert management["register"] == {"bootstrap"}
    rotation = graph.dependencies(catalog.pipelines["rotate-agent-certificate"].spec.tasks)
    assert rotation == {
        "mint": set(),
        "carry-over": {"mint"},
        "await-agent": {"carry-over"},
        "retire-former": {"await-agent"},
    }
    customer = graph.dependencies(catalog.pipelines["provision-customer"].spec.tasks)
    assert customer["register-account"] == {"mint-customer"}


def test_lists_are_given_with_commas_on_the_command_line() -> None:
    catalog = load_catalog(paths.checkout() / "tekton")
    given = parse_params(catalog, "provision-regional", ["environment=a=b", "management-clusters=mc01,mc02"])
    assert given == {"environment": "a=b", "management-clusters": ["mc01", "mc02"]}


def test_an_account_is_minted_once_and_its_number_kept(host: Host, tmp_path: Path) -> None:
    aws = host.central()
    request = MintAccount(environment="local", region="local", cluster_id="mc01")
    first = run_mint_account(request, aws, {"account-id": tmp_path / "account-id"})
    assert (tmp_path / "account-id").read_text() == first
    assert get_parameter(aws, "/infra/local/local/mc01/account_id") == first
    assert run_mint_account(request, aws) == first
    regional = run_mint_account(MintAccount(environment="local", region="local"), aws)
    assert get_parameter(aws, "/infra/local/local/account_id") == regional != first
