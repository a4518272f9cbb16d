"""`regionctl logs`: the logs of any part, straight from the files, so that they can be read when nothing runs."""

from __future__ import annotations

import contextlib
import difflib
import time
from pathlib import Path

import click

from regional.cli.output import region_option

_COLOURS = ("cyan", "green", "yellow", "blue", "magenta")


@click.command()
@region_option
@click.argument("part", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on printing what is written; Ctrl-C ends it.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="Last lines of each log."
)
def logs(region: str, part: str | None, follow: bool, lines: int) -> int:
    """Logs of PART: a service of `regionctl status` (postgres, rc-api …), a pod's role (maestro-server …), a cluster
    and a role (mc01/hypershift), or a pipeline run. Without PART: the last lines of all of them."""
    from regional.core.paths import RegionPaths
    from regional.core.problems import UserError
    from regional.local.logfiles import find_logs

    paths = RegionPaths(region)
    if not paths.root.exists():
        raise UserError(f"there is no region {region} on this machine", "start it with `regionctl up`")
    known = find_logs(paths)
    chosen = known if part is None else {n: f for n, f in known.items() if _matches(part, n)}
    if not chosen:
        near = difflib.get_close_matches(part or "", {piece for name in known for piece in name.split("/")}, 1)
        hint = f"did you mean {near[0]}?" if near else "parts: " + ", ".join(sorted(known))
        raise UserError(f"no part {part!r} has a log", hint)
    prefixes = len(chosen) > 1
    offsets: dict[str, int] = {}
    for name, file in chosen.items():
        text, offsets[name] = _tail(file, lines if part or follow else min(lines, 3))
        _show(name, text, prefixes)
    with contextlib.suppress(KeyboardInterrupt):  # the way to end it, not an accident
        while follow:
            time.sleep(0.2)
            chosen |= {n: f for n, f in find_logs(paths).items() if part is None or _matches(part, n)}
            for name, file in chosen.items():
                text, offsets[name] = _since(file, offsets.get(name, 0))
                _show(name, text, prefixes)
    return 0


def _matches(part: str, name: str) -> bool:
    """`mc01/hypershift` and `hypershift` both mean mc01/hypershift/<pod>/<container>."""
    return f"/{name}/".find(f"/{part}/") >= 0 or name == part


def _tail(file: Path, lines: int) -> tuple[str, int]:
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            stream.seek(max(0, size - 512 * lines - 4096))
            data = stream.read()
    except OSError:
        return "", 0
    return "".join(data.decode(errors="replace").splitlines(keepends=True)[-lines:] if lines else []), size


def _since(file: Path, offset: int) -> tuple[str, int]:
    try:
        size = file.stat().st_size
        if size < offset:  # rotated
            offset = 0
        with file.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(size - offset)
    except OSError:
        return "", offset
    return data.decode(errors="replace"), size


def _show(name: str, text: str, prefixes: bool) -> None:
    if not text:
        return
    if not prefixes:
        click.echo(text, nl=not text.endswith("\n"))
        return
    label = click.style(name, fg=_COLOURS[hash(name) % len(_COLOURS)])
    for line in text.splitlines():
        click.echo(f"{label} {line}")
