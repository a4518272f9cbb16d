"""The commands that pipeline steps run. People may run them too; nothing in them knows who called."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regional.core.problems import UserError

if TYPE_CHECKING:
    from regional.cloud.aws import Aws

_PAIR = "key=value; may be given several times"
_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--root", required=True, help="Directory in terraform/config, such as network or regional-cluster.")
@click.option(
    "--var-file", "var_files", multiple=True, required=True, type=click.Path(path_type=Path), help="Rendered JSON."
)
@click.option("--var", "variables", multiple=True, help=f"A variable over the files: {_PAIR}.")
@click.option("--result-file", "results", multiple=True, help=f"Write an output to a file: {_PAIR}.")
@click.option("--renew", is_flag=True, help="Mint new certificates even if the present ones are good.")
@click.option("--retire", is_flag=True, help="Withdraw an agent's former certificates: it was seen with the newest.")
@click.option("--region", envvar="REGION", default="local", show_default=True, help="Region on this machine.")
def provision(
    root: str,
    var_files: tuple[Path, ...],
    variables: tuple[str, ...],
    results: tuple[str, ...],
    renew: bool,
    retire: bool,
    region: str,
) -> int:
    """Apply one Terraform root with its rendered inputs.

    PROVISIONER=terraform runs the real Terraform; PROVISIONER=local (the default) makes the same things run on this
    machine and gives the same outputs.
    """
    from regional.core.logs import setup_logging
    from regional.local.provisioner.command import Request, parse_pairs, provision_command

    setup_logging("provision")
    if renew and retire:
        raise UserError("--renew and --retire are two steps", "retire after the agent was seen with the new one", 2)
    request = Request(
        root=root,
        region=region,
        var_files=list(var_files),
        overrides=parse_pairs(variables, "--var"),
        result_files={name: Path(path) for name, path in parse_pairs(results, "--result-file").items()},
        renew=renew,
        retire=retire,
    )
    provision_command(request)
    return 0


@click.command()
@click.option("--cluster", required=True, help="rc, or a Management Cluster's id.")
@click.option("--cluster-name", required=True, help="The cluster's name at EKS.")
@click.option("--cluster-type", required=True, type=click.Choice(["regional-cluster", "management-cluster"]))
@click.option("--environment", required=True)
@click.option("--region", required=True, help="Name of the region deployment.")
@click.option("--aws-region", required=True)
@click.option("--git-repo", required=True, help="Repository that GitOps reads.")
@click.option("--git-revision", default="main", show_default=True)
@click.option(
    "--fact",
    "facts",
    multiple=True,
    envvar="FACTS",
    show_envvar=True,
    help=f"A fact for the identity secret: {_PAIR}.",
)
@click.option("--kubeconfig", default="", envvar="KUBECONFIG", help="Default: found by --cluster-name.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds until it gives up.")
@click.option("--wait-all", is_flag=True, help="Wait for every Application, not only for self-management.")
def bootstrap(
    cluster: str,
    cluster_name: str,
    cluster_type: str,
    environment: str,
    region: str,
    aws_region: str,
    git_repo: str,
    git_revision: str,
    facts: tuple[str, ...],
    kubeconfig: str,
    timeout: float,
    wait_all: bool,
) -> int:
    """Install GitOps on a cluster from the chart that it will manage itself with, and hand over to it."""
    from regional.core.logs import setup_logging
    from regional.core.loop import run
    from regional.core.paths import RegionPaths
    from regional.gitops import bootstrap as task
    from regional.local.provisioner.cluster import bootstrap_kubeconfig

    if not kubeconfig:
        kubeconfig = str(bootstrap_kubeconfig(RegionPaths(os.environ.get("REGION", region)), cluster_name))
    settings = task.BootstrapSettings(
        kubeconfig=kubeconfig,
        git_repo=git_repo,
        git_revision=git_revision,
        environment=environment,
        region_alias=region,
        aws_region=aws_region,
        cluster_type=cluster_type,
        cluster_name=cluster,
        facts=list(facts),
        timeout=timeout,
        wait_all=wait_all,
    )
    setup_logging("bootstrap", "warning")
    run(task.bootstrap(settings))
    return 0


@click.group()
def task() -> None:
    """Pipeline steps that are not Terraform."""


@task.command("mint-account")
@click.option("--environment", required=True)
@click.option("--region", required=True, help="Name of the region deployment.")
@click.option("--cluster-id", default="", help="Management Cluster whose account it is; empty for the region's own.")
@click.option("--email-domain", default="accounts.example.com", show_default=True)
@click.option("--result-file", "results", multiple=True, help=f"Write a result to a file: {_PAIR}.")
def mint_account(environment: str, region: str, cluster_id: str, email_domain: str, results: tuple[str, ...]) -> int:
    """Find or create an AWS account in the organisation, and keep its number in SSM."""
    from regional.local.provisioner.command import parse_pairs
    from regional.pipelines.tasks import MintAccount, run_mint_account

    with _central("mint-account") as aws:
        run_mint_account(
            MintAccount(environment=environment, region=region, cluster_id=cluster_id, email_domain=email_domain),
            aws,
            {name: Path(path) for name, path in parse_pairs(results, "--result-file").items()},
        )
    return 0


@task.command("mint-customer")
@click.option("--environment", required=True)
@click.option("--region", required=True, help="Name of the region deployment.")
@click.option("--customer", default="customer", show_default=True, help="Part of the account's name.")
@click.option("--email-domain", default="accounts.example.com", show_default=True)
@click.option("--result-file", "results", multiple=True, help=f"Write a result to a file: {_PAIR}.")
def mint_customer(environment: str, region: str, customer: str, email_domain: str, results: tuple[str, ...]) -> int:
    """Find or create a customer's AWS account and an access key in it, which the owner of this machine keeps."""
    from regional.core.files import write_atomic
    from regional.core.paths import RegionPaths
    from regional.local import customer as customers
    from regional.local.provisioner.command import parse_pairs

    files = parse_pairs(results, "--result-file")
    if unknown := sorted(files.keys() - {"account-id"}):
        raise UserError(f"mint-customer has no result {', '.join(unknown)}", "its result is account-id")
    request = customers.MintCustomer(
        environment=environment, region=region, customer=customer, email_domain=email_domain
    )
    with _central("mint-customer") as aws:
        account_id = customers.mint_customer(request, aws, RegionPaths(os.environ.get("REGION", region)))
    for path in files.values():
        write_atomic(Path(path), account_id, mode=0o644)
    return 0


@task.command("register-account")
@click.option("--var-file", required=True, type=_FILE, help="Rendered JSON of the region.")
@click.option("--account-id", required=True, help="Account to let in.")
@click.option("--privileged", type=bool, default=False, show_default=True, help="May it manage the region too?")
def register_account(var_file: Path, account_id: str, privileged: bool) -> int:
    """Let an account use the region, through the region's API."""
    from regional.local import registration

    with _central("register-account") as aws:
        registration.register_account(aws, var_file, account_id, privileged=privileged)
    return 0


@task.command("register-management-cluster")
@click.option("--var-file", required=True, type=_FILE, help="Rendered JSON of the Management Cluster.")
def register_management_cluster(var_file: Path) -> int:
    """Tell the region of a Management Cluster and of its capacity, through the region's API."""
    from regional.local import registration

    with _central("register-management-cluster") as aws:
        registration.register_management_cluster(aws, var_file)
    return 0


@task.command("await-agent-certificate")
@click.option("--var-file", required=True, type=_FILE, help="Rendered JSON of the Management Cluster.")
@click.option("--timeout", default=900.0, show_default=True, help="Seconds until it gives up.")
def await_agent_certificate(var_file: Path, timeout: float) -> int:
    """Wait until the region has seen a Management Cluster's agent with the newest of its certificates."""
    from regional.local import agent_certificate

    with _central("await-agent-certificate") as aws:
        agent_certificate.await_agent_certificate(aws, var_file, timeout)
    return 0


@contextlib.contextmanager
def _central(role: str) -> Iterator[Aws]:
    """The central account's door, for a step that logs as `role`."""
    from regional.cloud.aws import Aws
    from regional.core.logs import setup_logging

    setup_logging(role)
    if not os.environ.get("AWS_ACCESS_KEY_ID"):
        raise UserError("no AWS credentials are set", "set AWS_ACCESS_KEY_ID and its secret, of the central account")
    aws = Aws()
    try:
        yield aws
    finally:
        aws.close()
