"""`regionctl maestro`: what to do when Maestro's own store was lost, and what its agents have that nobody knows."""

from __future__ import annotations

import time
from typing import Any

import click

from regional.cli.customer import TIMED_OUT, Completions, Document, Session, api_command
from regional.cli.iot_policy import iot_policy
from regional.cli.output import age, output_option, print_table, print_value
from regional.cli.waiting import Duration, Progress, until
from regional.core.problems import UserError

REBUILD = "/api/v0/maestro/rebuild"
UNKNOWN = "/api/v0/maestro/unknown"
CONSUMERS = "/api/v0/management_clusters"
BUNDLES = "/api/v0/resource_bundles"
HEAR_SECONDS = 15.0
"""Agents that are there answer within moments; who does not is away, and is caught up with when it comes."""
SEND_AGAIN_SECONDS = 10.0
_AGAIN = "stopped watching; the region goes on. Safe to repeat: regionctl maestro rebuild"


@click.group()
def maestro() -> None:
    """Maestro, which carries bundles to management clusters. Needs an account that may run the region.

    \b
    Examples:
      regionctl maestro rebuild     after its database was lost or set back
      regionctl maestro unknown     works on management clusters that Maestro knows nothing of
      regionctl maestro iot-policy agent --account 123456789012    what certificates may do at AWS IoT Core
    """


maestro.add_command(iot_policy)


@maestro.command()
@click.option(
    "--timeout", type=Duration(), default="10m", show_default=True, help="How long to wait for agents: 90s, 10m, 1h."
)
@output_option
@api_command
def rebuild(session: Session, timeout: float, output: str) -> int:
    """Bring back what Maestro's database has lost: consumers, then every bundle of a cluster or node pool, from CLM.

    Bundles have the same ids as before, so agents know them for their own: nothing on a management cluster is deleted
    or made anew. Works that CLM knows nothing of are left alone; `regionctl maestro unknown` names them. Safe to break
    off and to repeat; with nothing lost it changes nothing. Exit code 4: not all is confirmed in time.

    \b
    Examples:
      regionctl maestro rebuild
      regionctl maestro rebuild --timeout 30m -o json
    """
    shown = _Rebuild(session, timeout, Progress()).run()
    if output in ("json", "yaml"):
        print_value(shown, output)
        return 0
    click.echo(f"Maestro has all {shown['wanted']} bundles that CLM wants; {shown['applied']} of them are applied")
    if shown["unknown"]:
        click.echo(f"{shown['unknown']} works are known to their agents only: regionctl maestro unknown", err=True)
    return 0


class _Rebuild:
    def __init__(self, session: Session, timeout: float, progress: Progress) -> None:
        self._session, self._progress = session, progress
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._sent: dict[str, float] = {}

    def run(self) -> Document:
        before = self._seen()
        began = self._session.call("POST", REBUILD, {"step": "consumers"}).json()
        made = began["made"]
        self._step("consumers", f"{len(began['consumers'])}" + (f", made anew: {', '.join(made)}" if made else ""))
        # First what agents have, then bundles: those then count on from their agents' versions at once.
        heard = self._hear(before, set(began["consumers"]))
        away = sorted(set(began["consumers"]) - heard)
        self._step("agents", f"{len(heard)} heard" + (f", not: {', '.join(away)}" if away else ""))
        self._session.call("POST", REBUILD, {"step": "bundles"})
        self._until("bundles", lambda found: found["current"] == found["wanted"])
        found = self._until("confirmed", self._confirmed)
        return {"consumers": began["consumers"], "made": made} | found

    def _step(self, name: str, note: str) -> None:
        self._progress.step(name, self._progress.elapsed, note)

    def _seen(self) -> dict[str, str]:
        return {found["name"]: found.get("last_seen_at", "") for found in self._session.numbered_pages(CONSUMERS)}

    def _hear(self, before: dict[str, str], wanted: set[str]) -> set[str]:
        limit = time.monotonic() + HEAR_SECONDS
        heard: set[str] = set()

        def look() -> Document | None:
            nonlocal heard
            now = self._seen()
            heard = {name for name in wanted if now.get(name) and now[name] != before.get(name)}
            self._progress.waiting("agents", f"waits for {', '.join(sorted(wanted - heard)[:10])}")
            return {} if heard == wanted or time.monotonic() > limit else None

        until(look, HEAR_SECONDS * 4, self._progress, late=self._late("agents are not asked"), stopped=_AGAIN)
        return heard

    def _until(self, name: str, done: Any) -> Document:
        found: Document = {}

        def look() -> Document | None:
            nonlocal found
            found = self._session.get(REBUILD)
            first = next(iter(found["waiting"]), None)
            reason = f"{first['kind']} {first['name']} on {first['consumer_name']}: {first['reason']}" if first else ""
            counted = found["confirmed"] if name == "confirmed" else found["current"]
            self._progress.waiting(name, f"{counted} of {found['wanted']}; {reason}")
            return found if done(found) else None

        left = max(0.0, self._deadline - time.monotonic())
        until(look, left, self._progress, late=self._late(f"not all {name}"), stopped=_AGAIN)
        self._step(name, f"{found['confirmed'] if name == 'confirmed' else found['current']} of {found['wanted']}")
        return found

    def _confirmed(self, found: Document) -> bool:
        """Those that came back before their agent had said which version it has are sent again above it."""
        from regional.gateway.client import ApiError

        now = time.monotonic()
        for waiting in found["waiting"]:
            bundle = waiting.get("bundle", "")
            first = self._sent.setdefault(bundle, now - SEND_AGAIN_SECONDS / 2)
            if bundle and now - first >= SEND_AGAIN_SECONDS:
                self._sent[bundle] = now
                try:
                    self._session.call("POST", f"{BUNDLES}/{bundle}/redeliver")
                except ApiError as error:
                    if error.status != 404:  # it was deleted meanwhile
                        raise
        return bool(found["confirmed"] == found["wanted"])

    def _late(self, what: str) -> UserError:
        return UserError(
            f"{what} after {self._timeout:g} s; the region goes on",
            "what is waited for: regionctl bundle list --not-applied; then again: regionctl maestro rebuild",
            TIMED_OUT,
        )


@maestro.command()
@click.option(
    "--to", "consumer", metavar="MC", shell_complete=Completions.management_clusters, help="Only of this one."
)
@output_option
@api_command
def unknown(session: Session, consumer: str | None, output: str) -> int:
    """Works that agents run and Maestro does not know, or knows in an older version only. They are left alone.

    After a lost database `regionctl maestro rebuild` brings back those of clusters. What is left was sent by hand: send
    it again, and it is the same work; or delete it after that.

    \b
    Examples:
      regionctl maestro unknown
      regionctl maestro unknown --to mc01 -o json
    """
    found = session.get(UNKNOWN, {"consumer_name": consumer} if consumer else None)
    if output in ("json", "yaml"):
        print_value(found, output)
        return 0
    if not found["items"]:
        click.echo("no works but those that Maestro knows" + (f" on {consumer}" if consumer else ""), err=True)
        return 0
    rows = [
        [
            f["id"],
            f["consumer_name"],
            str(f["version"]),
            str(f.get("known_version", "none")),
            f"{age(f['seen_at'])} ago",
        ]
        for f in found["items"]
    ]
    print_table(["ID", "MC", "AGENT'S VERSION", "MAESTRO'S", "SAID"], rows)
    if found["total"] > len(rows):
        click.echo(f"and {found['total'] - len(rows)} more", err=True)
    return 0
