"""`regionctl status`: every part of a region, and an exit code that scripts can trust."""

from __future__ import annotations

import click

from regional.cli.output import age, output_option, print_table, print_value, region_option


@click.command()
@region_option
@output_option
@click.option("--wait", "wait_seconds", type=float, default=0.0, help="Wait so many seconds for all to be well.")
def status(region: str, output: str, wait_seconds: float) -> int:
    """Every part of a running region: what it is, state, address, pid, since when.

    Exit code 0 only if all is well; 1 if a part is not; 3 if the region is not running.
    """
    from regional.core.loop import run
    from regional.local.inspection import Inspection
    from regional.local.region import Region
    from regional.local.supervisor_client import SupervisorGone

    try:
        seen: Inspection = run(Region(region).inspect(wait_seconds))
    except SupervisorGone as gone:
        if output in ("json", "yaml"):
            print_value({"region": region, "healthy": False, "parts": [], "message": gone.message}, output)
        gone.exit_code = 3
        raise
    if output in ("json", "yaml"):
        print_value(seen, output)
        return 0 if seen.healthy else 1
    rows = []
    for part in seen.parts:
        message = part.message if output == "wide" or not part.ok or part.kind == "service" else ""
        pid = str(part.pid) if part.pid else ""
        rows.append((part.where, part.kind, part.name, part.state, part.address, pid, age(part.since), message))
    print_table(("WHERE", "KIND", "NAME", "STATE", "ADDRESS", "PID", "SINCE", "MESSAGE"), rows)
    click.echo(f"\n{seen.isolation}")
    troubled = seen.problems()
    if troubled:
        click.echo(f"{len(troubled)} of {len(seen.parts)} parts are not well", err=True)
    else:
        click.echo(f"all {len(seen.parts)} parts are well")
    return 0 if seen.healthy else 1
