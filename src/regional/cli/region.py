"""`up`, `down`, `env`, `kubeconfig`: a region on this machine, as its owner handles it."""

from __future__ import annotations

import os
import shlex
import sys
import time

import click

from regional.cli.output import region_option


@click.command()
@click.argument("name", required=False)
@region_option
@click.option("--environment", default="local", show_default=True, help="Environment of the declared region.")
@click.option("--worktree", is_flag=True, help="Use the working tree as it is, not what is committed at HEAD.")
@click.option(
    "--kube",
    type=click.Choice(["embedded", "real"]),
    help="Control plane of the region's clusters, chosen once: our own (default), or Kubernetes' own (`make kube`).",
)
def up(name: str | None, region: str, environment: str, worktree: bool, kube: str | None) -> int:
    """Start region NAME (or --region) on this machine, or finish starting it.

    The region is the one declared in config.yaml and rendered under deploy/, as committed at HEAD. One that runs from
    the same commit is left alone; another commit is provisioned anew, each step looking before it acts. One that runs
    other code than this checkout has (after a pull, or an edit) is stopped first and comes back with its data.
    """
    from regional.core.loop import run
    from regional.local.inspection import Inspection
    from regional.local.region import Region

    name = name or region
    target = Region(name, environment)
    target.chosen_kube(kube or "")
    started = time.monotonic()

    async def work() -> tuple[bool, Inspection]:
        if await target.running() and not worktree:
            record = target.record()
            if record and record.complete and await _same_commit_and_code(target):
                seen = await target.inspect()
                if seen.healthy:
                    return True, seen
        return False, await target.up(report_progress, worktree=worktree, kube=kube or "")

    already, seen = run(work())
    if already:
        click.echo(f"region {name} is already running and well; nothing changed")
        click.echo("stop it with `regionctl down`, look at it with `regionctl status`")
        return 0
    _summary(name, seen, time.monotonic() - started)
    return 0 if seen.healthy else 1


async def _same_commit_and_code(region: object) -> bool:
    from regional.core import paths
    from regional.local import source
    from regional.local.code import code
    from regional.local.region import Region

    assert isinstance(region, Region)
    record = region.record()
    head = source.git("rev-parse", "--verify", "-q", "HEAD", cwd=paths.checkout(), ok=False)
    return record is not None and record.code == code() and (not head or record.commit == head)


def report_progress(event: str, text: str, seconds: float) -> None:
    mark = {"step": "✓", "task": "  ✓", "note": "  ·", "failed": "  ✗"}.get(event, event)
    timing = f"{seconds:6.2f} s" if event != "note" else ""
    click.echo(f"{mark} {text:<60} {timing}".rstrip())
    sys.stdout.flush()


def _summary(name: str, seen: object, seconds: float) -> None:
    from regional.local.inspection import Inspection

    assert isinstance(seen, Inspection)
    pods = [part for part in seen.parts if part.kind == "pod"]
    applications = [part for part in seen.parts if part.kind == "application"]
    clusters = sorted({part.where for part in seen.parts} - {"region"}, key=lambda c: (c != "rc", c))
    click.echo()
    if seen.healthy:
        click.echo(f"Region {name} is up after {seconds:.1f} s: {len(clusters)} clusters ({', '.join(clusters)}),")
        click.echo(f"{len(applications)} applications, {len(pods)} pods.")
    else:
        click.echo(f"Region {name} is running, but not all is well after {seconds:.1f} s:", err=True)
        for part in seen.problems():
            click.echo(f"  {part.where} {part.kind} {part.name}: {part.state} {part.message}", err=True)
        click.echo("`regionctl status` shows all parts, `regionctl logs PART` their logs", err=True)
    for part in seen.parts:
        if part.kind == "service" and part.address and not part.address.startswith("/"):
            click.echo(f"  {part.name:<12} {part.address:<24} {part.message}")
    regional = "" if name == "local" else f" --region {name}"
    click.echo(
        f"""
Credentials: `regionctl kubeconfig{regional} CLUSTER` prints one; the region's API and an AWS key for it come with
`regionctl env{regional}`.
Try next:
  eval "$({_program()} env{regional})"
  regionctl status
  regionctl kubeconfig rc > rc.kubeconfig && kubectl --kubeconfig rc.kubeconfig get applications -n argocd
  regionctl cluster create demo --wait
  regionctl cluster kubeconfig demo > demo.kubeconfig && kubectl --kubeconfig demo.kubeconfig get ns
  regionctl down"""
    )


def _program() -> str:
    """As the user called us, so that the hint works from where they stand."""
    called = sys.argv[0]
    return called if called.endswith("regionctl") and os.path.exists(called) else "regionctl"  # noqa: PTH110


@click.command()
@region_option
@click.option("--purge", is_flag=True, help="Remove all data of the region too.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before --purge.")
def down(region: str, purge: bool, yes: bool) -> int:
    """Stop a region. Its data stays: `up` comes back with all of it."""
    from regional.core.loop import run
    from regional.core.problems import UserError
    from regional.local.region import Region

    target = Region(region)
    if not target.paths.root.exists():
        click.echo(f"there is no region {region} on this machine")
        return 0
    if purge and not yes:
        if not sys.stdin.isatty():
            raise UserError(f"--purge would remove all data of region {region}", "add --yes if that is what you want")
        click.confirm(f"Remove all data of region {region} ({target.paths.root})?", abort=True)
    started = time.monotonic()
    stopped = run(target.down(purge=purge))
    word = "stopped" if stopped else "was not running"
    click.echo(f"region {region} {word} ({time.monotonic() - started:.1f} s)")
    if purge:
        click.echo(f"all data of region {region} is removed")
    return 0


@click.command()
@region_option
@click.argument("cluster")
def kubeconfig(region: str, cluster: str) -> int:
    """Print the kubeconfig of CLUSTER (rc, mc01, …) for the owner of this machine."""
    from regional.core.paths import RegionPaths
    from regional.core.problems import UserError
    from regional.local.inspection import clusters

    paths = RegionPaths(region)
    file = paths.cluster(cluster) / "admin.kubeconfig"
    known = clusters(paths)
    if cluster not in known:
        hint = f"clusters: {', '.join(known)}" if known else "start the region with `regionctl up`"
        raise UserError(f"region {region} has no cluster {cluster!r}", hint)
    click.echo(file.read_text(), nl=False)
    return 0


@click.command()
@region_option
def env(region: str) -> int:
    """Print shell settings for eval: PATH, the region's API and AWS, and a customer's key for them.

    API_GATEWAY_URL is host and port; any tool that signs AWS requests can use it:
    awscurl --service execute-api --region "$AWS_REGION" "https://$API_GATEWAY_URL/prod/api/v0/live"
    """
    from regional.core import paths
    from regional.local.shell import settings

    target = paths.RegionPaths(region)
    if not target.root.exists():
        click.echo(f"there is no region {region} on this machine yet: start it with `regionctl up {region}`", err=True)
    for name, value in settings(target).items():
        if name == "PATH":
            click.echo(f'export PATH={shlex.quote(value)}:"$PATH"')
        else:
            click.echo(f"export {name}={shlex.quote(value)}")
    return 0
