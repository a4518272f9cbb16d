"""`regionctl sync`: from an edit in the checkout to pods that run it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from regional.cli.output import region_option


@click.command()
@region_option
@click.option("--head", is_flag=True, help="Only what is committed at HEAD, not the working tree as it is.")
@click.option(
    "--checkout",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Another clone (default: the one that the region came from).",
)
@click.option("--timeout", default=120.0, show_default=True, help="Seconds to wait until all clusters have arrived.")
def sync(region: str, head: bool, checkout: Path | None, timeout: float) -> int:
    """Publish the checkout to a running region and wait until every cluster runs it, or cannot.

    \b
    Example:
      edit argocd/config/regional-cluster/clm/values.yaml
      regionctl apps preview --rev HEAD --rev .    what it will change
      regionctl sync                               watch the pods roll
    """
    from regional.core.loop import run
    from regional.local.region import Region
    from regional.local.rollout import sync as roll_out

    started = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"{time.monotonic() - started:6.2f} s  {line}")

    done = run(roll_out(Region(region), say, checkout=checkout, committed_only=head, timeout=timeout))
    if done.infrastructure:
        click.echo(
            f"note: {len(done.infrastructure)} files of the infrastructure differ from what was provisioned "
            f"({', '.join(done.infrastructure[:3])}…): `regionctl up` runs the pipelines",
            err=True,
        )
    if done.lacking:
        how = "can be" if done.refused else "are"
        late = "" if done.refused else f" after {timeout:.0f} s"
        click.echo(f"error: not all clusters {how} at {done.commit[:7]}{late}:", err=True)
        for name, why in sorted(done.lacking.items()):
            click.echo(f"  {name}: {why}", err=True)
        return 1
    click.echo(f"every cluster is at {done.commit[:7]}; {done.pods_rolled} pods rolled")
    return 0
