"""Shell completion: click makes the script; this prints it where people look for it."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print completion for SHELL, e.g. `source <(regionctl completion bash)`."""
    from regional.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "regionctl", "_REGIONCTL_COMPLETE").source())
