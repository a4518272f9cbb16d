"""`regionctl trace`: one request through every log on its way, and where its time went."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regional.cli.customer import Completions, Session, connect, is_id
from regional.cli.output import age, output_option, print_value, region_option
from regional.core.problems import UserError

if TYPE_CHECKING:
    from regional.cli.hops import Hop, Share

Document = dict[str, Any]

_BAR = 24
_MOST_REQUESTS = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_TOLD = (
    *("method", "path", "operation", "status", "refused", "kind", "placement", "consumer", "version", "generation"),
    *("change", "available", "reason", "attempts", "object", "endpoint", "error"),
)
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


@click.command()
@click.argument("given", metavar="ID", shell_complete=Completions.clusters)
@region_option
@click.option("--all", "everything", is_flag=True, help="Also lines that came after the request was done.")
@output_option
def trace(given: str, region: str, everything: bool, output: str) -> int:
    """Follow a request through the region's logs: ID is a request's id, or a cluster's, node pool's or bundle's id or
    name.

    A request's id is printed by every command with -v, comes back in the header x-amzn-RequestId, and stands beside
    each change in `regionctl cluster describe`. Logs are read on this machine; pods that are
    gone took theirs with them.

    \b
    Examples:
      regionctl trace demo
      regionctl trace 0f0c6a0e-9b1f-4c55-8f1a-1d2b8a1c3d5e
      regionctl trace demo -o json | jq '.[].shares'
    """
    from regional.core.paths import RegionPaths
    from regional.local.logfiles import find_logs

    paths = RegionPaths(region)
    if not paths.root.exists():
        raise UserError(f"there is no region {region} on this machine", "logs are read where the region runs")
    if not _REQUEST_ID.fullmatch(given):
        raise UserError(f"{given!r} is neither a request's id nor a name", exit_code=2)
    traced = _traced(find_logs(paths), given)
    if output in ("json", "yaml"):
        print_value([_document(request_id, hops) for request_id, hops in traced], output)
        return 0
    for number, (request_id, hops) in enumerate(traced):
        if number:
            click.echo()
        _show(request_id, hops, everything)
    return 0


def _traced(files: dict[str, Path], given: str) -> list[tuple[str, list[Hop]]]:
    from regional.cli import hops

    found = hops.hops_of(files, [given])
    if found:
        return [(given, found)]
    request_ids = _requests_about(files, given)
    grouped: dict[str, list[Hop]] = {}
    for hop in hops.hops_of(files, request_ids):
        grouped.setdefault(hop.request_id, []).append(hop)
    changing = [i for i in request_ids if any(hop.span in hops.COMMITS for hop in grouped.get(i, ()))]
    wanted = changing or [i for i in request_ids if i in grouped]  # without a change, whoever only looked
    traced = [(request_id, grouped[request_id]) for request_id in wanted[-_MOST_REQUESTS:]]
    if not traced:
        hint = "`regionctl cluster describe NAME` lists the requests that changed a cluster"
        if request_ids:
            hint = "its requests were " + ", ".join(request_ids[-3:]) + "; the pods that wrote of them are gone"
        raise UserError(f"no log of this region speaks of {given}", hint)
    return traced


def _requests_about(files: dict[str, Path], given: str) -> list[str]:
    """Requests that changed the resource of that name or id. The API knows them; without it, the logs know an id's."""
    from regional.cli import hops

    resource = given
    with contextlib.suppress(Exception):  # logs must be readable when nothing runs any more
        session = connect(timeout=5.0, patience=0.0)
        resource, known = _asked(session, given)
        if known:
            return list(dict.fromkeys(known))
    return hops.requests_about(files, resource)


def _asked(session: Session, given: str) -> tuple[str, list[str]]:
    """(id of what has that name, ids of the requests that changed it, oldest first, if the API keeps them)"""
    from regional.cli.bundle import BUNDLES, REQUEST_ID, named

    if cluster := session.find_or_none("cluster", given):
        changes = session.get(f"/api/v0/clusters/{cluster['id']}/history")["items"]
        return cluster["id"], [entry["request_id"] for entry in reversed(changes) if entry["request_id"]]
    if pool := session.find_or_none("node pool", given):
        return pool["id"], []
    if is_id(given):
        return given, []
    bundles = session.numbered_pages(
        BUNDLES, {"search": named(given), "orderBy": "created_at asc"}, most=_MOST_REQUESTS
    )
    annotated = [((b.get("metadata") or {}).get("annotations") or {}).get(REQUEST_ID, "") for b in bundles]
    return given, [found for found in annotated if found]


# -- showing -------------------------------------------------------------------------------------------------------


def _document(request_id: str, found: Sequence[Hop]) -> Document:
    from regional.cli import hops

    led, after = hops.until_ready(found)
    begin = min(hop.start for hop in led)
    return {
        "request_id": request_id,
        "began": begin,
        "seconds": (hops.ending(led) - begin).total_seconds(),
        "ready": any(hop.ready for hop in led),
        "shares": hops.shares_of(led),
        "hops": [*led, *after],
    }


def _show(request_id: str, found: Sequence[Hop], everything: bool) -> None:
    from regional.cli import hops

    led, after = hops.until_ready(found)
    begin, end = min(hop.start for hop in led), hops.ending(led)
    total = max(0.001, (end - begin).total_seconds())
    ready = ", to Ready" if any(hop.ready for hop in led) else ""
    click.echo(
        f"request {request_id}: {begin:%Y-%m-%d %H:%M:%S} UTC ({age(begin.isoformat())} ago), {_time(total)}{ready}"
    )
    click.echo(f"{'START':>10} {'TOOK':>9}  {'':<{_BAR}}  {'WHERE':<20} WHAT")
    for hop in [*led, *(after if everything else ())]:
        at = (hop.start - begin).total_seconds()
        took = "" if hop.ms is None else _time(hop.ms / 1000)
        bar = _bar(at / total, (hop.ms or 0.0) / 1000 / total, hop.ms is not None)
        click.echo(f"{_time(at):>10} {took:>9}  {bar}  {hop.where:<20} {_what(hop)}")
    if after and not everything:
        click.echo(f"{len(after)} more of its lines came after that; --all shows them")
    shares = hops.shares_of(led)
    if shares:
        click.echo("\nWhere the time went")
        for share in sorted(shares, key=lambda share: -share.seconds):
            if share.seconds >= 0.0005:
                _show_share(share, total)


def _show_share(share: Share, total: float) -> None:
    label = f"on the way to {share.span or 'the last line'}" if share.on_the_way else share.span
    part = share.seconds / total
    click.echo(f"  {label:<42}{_time(share.seconds):>9}{part * 100:>5.0f} %  {_bar(0.0, part, True).rstrip()}")


def _what(hop: Hop) -> str:
    told = " ".join(f"{key}={_short(hop.more[key])}" for key in _TOLD if hop.more.get(key) not in (None, "", [], {}))
    text = " ".join(part for part in (hop.span, f"({hop.message})" if hop.span else hop.message, told) if part)
    if hop.level in ("error", "critical"):
        return click.style(text, fg="red")
    return text if hop.span else click.style(text, dim=True)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    text = text.splitlines()[-1] if "\n" in text.strip() else text.strip()
    return text if len(text) <= 60 else text[:59] + "…"


def _time(seconds: float) -> str:
    return (
        f"{seconds * 1000:.1f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
        if seconds < 600
        else f"{seconds / 60:.1f} min"
    )


def _bar(at: float, share: float, stretch: bool) -> str:
    """Where in the whole time a stretch lies; a line that ends no stretch is a point."""
    first = min(_BAR - 1, int(at * _BAR))
    if not stretch:
        return " " * first + "·" + " " * (_BAR - first - 1)
    eighths = max(1, round(share * _BAR * 8))
    full, rest = divmod(min(eighths, (_BAR - first) * 8), 8)
    text = " " * first + "█" * full + (_EIGHTHS[rest] if rest else "")
    return text.ljust(_BAR)[:_BAR]
