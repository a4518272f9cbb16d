"""The entry point of every process of ours: people's commands, pods (`serve ROLE`) and pipeline steps alike."""

from __future__ import annotations

import importlib
import os
import sys

import click

from regional import __version__
from regional.core.problems import UserError

# command → (module:attribute, one line of help). The line stands here so that `--help` imports nothing.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("regional.cli.region:up", "Start a region on this machine (or finish starting it)."),
    "sync": ("regional.cli.sync:sync", "Let a running region follow what is edited here; show its pods roll."),
    "down": ("regional.cli.region:down", "Stop a region; its data stays unless --purge is given."),
    "status": ("regional.cli.status:status", "Every part of a running region: state, address, pid, since when."),
    "env": ("regional.cli.region:env", 'Print shell settings: eval "$(regionctl env)".'),
    "kubeconfig": ("regional.cli.region:kubeconfig", "Print a kubeconfig of one of the region's clusters."),
    "logs": ("regional.cli.logs:logs", "Logs of a part, of a pod's role, or of all of them."),
    "kube": ("regional.cli.kube:kube", "Data of the region's clusters: snapshot, snapshots, restore."),
    "doctor": ("regional.cli.doctor:doctor", "What this machine lacks, and how to get it."),
    "cluster": ("regional.cli.cluster:cluster", "Clusters: create, list, describe, kubeconfig, update, wait, delete."),
    "nodepool": ("regional.cli.nodepool:nodepool", "Node pools: create, list, describe, scale, wait, delete."),
    "management-cluster": (
        "regional.cli.management_cluster:management_cluster",
        "Management clusters (mc): list, describe, register, rotate-certificate.",
    ),
    "bundle": (
        "regional.cli.bundle:bundle",
        "Resource bundles: list, describe (why not applied), history, redeliver, delete.",
    ),
    "consumer": ("regional.cli.consumer:consumer", "Consumers of bundles: list, describe (and what they lack)."),
    "maestro": ("regional.cli.maestro:maestro", "Maestro: rebuild its store, works unknown to it, IoT policies."),
    "work": ("regional.cli.work:work", "Send a ManifestWork to a management cluster."),
    "account": ("regional.cli.account:account", "Accounts that may use the region: list, create, delete."),
    "trace": ("regional.cli.trace:trace", "Follow one request through every log on its way."),
    "config": ("regional.config.commands:config", "Declared regions: validate, render, explain, diff, graph, migrate."),
    "apps": ("regional.cli.apps:apps", "Applications that clusters would get, and what a change does to them."),
    "pipeline": ("regional.cli.pipeline:pipeline", "Provisioning pipelines: run, list, show, logs."),
    "provision": ("regional.cli.steps:provision", "Apply one Terraform root (a pipeline step)."),
    "bootstrap": ("regional.cli.steps:bootstrap", "Install GitOps on a cluster and hand over to it (a pipeline step)."),
    "task": ("regional.cli.steps:task", "Other pipeline steps, such as minting accounts."),
    "serve": ("regional.cli.serve:serve", "Run one role in the foreground (what pods do)."),
    "completion": ("regional.cli.completion:completion", "Print shell completion for bash, zsh or fish."),
}


SHORT = {"mc": "management-cluster"}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = SHORT.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])


_UNATTENDED = "What pods and pipeline steps run"
_SECTIONS = {
    "A region on this machine": ("up", "sync", "status", "env", "kubeconfig", "kube", "logs", "down", "doctor"),
    "Clusters of a customer": ("cluster", "nodepool", "trace"),
    "Who runs a region": ("management-cluster", "consumer", "bundle", "work", "maestro", "account"),
    "Declared regions and pipelines": ("config", "apps", "pipeline"),
    _UNATTENDED: ("serve", "provision", "bootstrap", "task"),
    "Shell": ("completion",),
}

_HELP = """Regions of hosted control planes, whole on one machine.

\b
Start here:
  regionctl up                          a region: one Regional Cluster, two Management Clusters
  eval "$(regionctl env)"               kubectl and friends on PATH
  regionctl status                      what runs, where
  regionctl kubeconfig rc > rc.kubeconfig && kubectl --kubeconfig rc.kubeconfig get applications -n argocd
  regionctl cluster create demo --wait  a cluster, from a signed request to Ready
  regionctl down                        stop; `up` comes back with all data
"""


@click.group(cls=_LazyGroup, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regionctl")
def cli() -> None:
    pass


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        result = cli.main(args=arguments, prog_name="regionctl", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except UserError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; nothing is lost, run the command again to go on", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except OSError as error:
        if (arguments[:1] and arguments[0] in _SECTIONS[_UNATTENDED]) or os.environ.get("REGIONAL_DEBUG"):
            raise  # their logs want the whole story
        click.echo(f"error: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), err=True)
        click.echo("hint: `regionctl doctor` looks at this machine; REGIONAL_DEBUG=1 shows where it happened", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
