"""`regionctl serve ROLE`: the one command behind every pod and every part of a region."""

from __future__ import annotations

import importlib

import click

from regional.core.problems import UserError

ROLES: dict[str, tuple[str, str]] = {
    "gateway": ("regional.gateway.main:main", "the region's edge: TLS and AWS signatures"),
    "platform-api": ("regional.platform_api.main:main", "the customers' API, behind the gateway"),
    "clm-api": ("regional.clm.api.main:main", "Cluster Lifecycle Manager: the source of truth"),
    "sentinel": ("regional.clm.sentinel.main:main", "decides what needs work"),
    "adapter": ("regional.clm.adapter.main:main", "turns decisions into manifests"),
    "maestro-server": ("regional.maestro.server.main:main", "publishes manifests to Management Clusters"),
    "maestro-agent": ("regional.maestro.agent.main:main", "applies manifests on a Management Cluster"),
    "hypershift": ("regional.hypershift.main:main", "operator for hosted control planes"),
    "gitops": ("regional.gitops.main:main", "Applications and ApplicationSets from Git"),
    "kube-api": ("regional.kube.apiserver.main:main", "the Kubernetes API of one cluster"),
    "kube-host": ("regional.kube.apiserver.hostmain:main", "the Kubernetes APIs of many clusters on one port"),
    "kube-node": ("regional.kube.node.main:main", "a node: pods as processes"),
    "kube-controllers": ("regional.kube.controllers.main:main", "controllers beside an API that lacks them"),
    "aws": ("regional.cloud.host.main:main", "AWS on one machine"),
    "warm": ("regional.core.spawn:main", "the parent that pods are forked from"),
    "supervisor": ("regional.local.supervisor:main", "keeps the parts of a region running"),
}


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    help="Run one role in the foreground. `regionctl serve` lists the roles.",
)
@click.argument("role", required=False)
@click.pass_context
def serve(ctx: click.Context, role: str | None) -> int:
    if role is None or role in ("-h", "--help"):
        click.echo("Usage: regionctl serve ROLE [--flag value …]\n\nRoles:")
        for name, (_, text) in ROLES.items():
            click.echo(f"  {name:<16}{text}")
        return 0
    if role not in ROLES:
        raise UserError(f"there is no role {role!r}", "roles: " + ", ".join(ROLES), exit_code=2)
    module, _, attribute = ROLES[role][0].partition(":")
    return int(getattr(importlib.import_module(module), attribute)(list(ctx.args)) or 0)
