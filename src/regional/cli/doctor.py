"""`regionctl doctor`: what this machine lacks, and how to get it."""

from __future__ import annotations

import click

from regional.cli.output import output_option, print_table, print_value


@click.command()
@output_option
def doctor(output: str) -> int:
    """List what a region needs on this machine, whether it is there, and how to get it. Exit 1 if something lacks."""
    from regional.local.machine import examine

    findings = examine()
    if output in ("json", "yaml"):
        print_value(findings, output)
    else:
        rows = [
            ("ok", f.what, f.found, "") if f.ok else ("warn" if f.optional else "MISSING", f.what, f.found, f.hint)
            for f in findings
        ]
        print_table(("", "WHAT", "FOUND", "HOW TO GET IT"), rows)
    return 0 if all(f.ok or f.optional for f in findings) else 1
