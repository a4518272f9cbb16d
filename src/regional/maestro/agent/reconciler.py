"""From works to the cluster: applies what a work says, removes what it no longer says, and ends works that are deleted.

Each work by itself and one pass of it at a time. A pass that failed is repeated soon, one that succeeded after some
minutes, against drift; an object that somebody deletes is put back at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import prometheus_client

from regional.core.clock import rfc3339
from regional.core.mqtt import NotPublished
from regional.core.reconcile import WorkQueue, run_workers
from regional.kube.client import ApiError, ApiUnreachable, Client, Resource
from regional.kube.objects import Obj, revision_of, uid_of
from regional.maestro.agent import executor, ignored, status
from regional.maestro.agent.jsonpath import BadPath
from regional.maestro.agent.options import Option, option_for, orphaned, rank_of, unknown_strategy
from regional.maestro.agent.records import Records, entries_of, entry, identity
from regional.maestro.agent.removal import Removal
from regional.maestro.agent.reporter import Reporter
from regional.maestro.agent.rules import COMPLETE
from regional.maestro.agent.shelf import Shelf
from regional.maestro.agent.strategies import Conflict, Vanishing, Wanted, apply
from regional.maestro.agent.tracker import Tracker
from regional.maestro.agent.works import Outcome, Ref, Result, Work, Works
from regional.maestro.protocol.bundles import ManifestBundle

log = logging.getLogger(__name__)

WORKERS = 10
RECHECK_SECONDS = 240.0
LONGEST_RETRY = 30.0
SPACING = 0.2
PATIENCE = 3
"""Passes that find no API before it is worth a status: most restarts of an API take a second."""
_applied = prometheus_client.Histogram(
    "maestro_agent_apply_seconds",
    "From receiving a spec to having applied it",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
)
_passes = prometheus_client.Counter("maestro_agent_passes_total", "Passes over works, by how they ended", ["end"])


class Reconciler:
    def __init__(
        self,
        client: Client,
        works: Works,
        records: Records,
        tracker: Tracker,
        reporter: Reporter,
        consumer: str,
        shelf: Shelf,
    ) -> None:
        self._client, self._works, self._records, self._shelf = client, works, records, shelf
        self._tracker, self._reporter, self._consumer = tracker, reporter, consumer
        self._removal = Removal(client, tracker)
        self._queue: WorkQueue[str] = WorkQueue(aside=self._is_ending)
        self._before: dict[Ref, Obj] = {}
        self._resources: dict[tuple[str, str], Resource] = {}
        self._passed: dict[str, tuple[int, float]] = {}

    def due(self, work_id: str) -> None:
        self._queue.add(work_id)

    def _is_ending(self, work_id: str) -> bool:
        work = self._works.get(work_id)
        return work is not None and bool(work.deletion)

    async def keep_reconciling(self) -> None:
        await self._records.informer.synced()
        await run_workers("works", self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, work_id: str) -> float | None:
        work = self._works.get(work_id)
        if work is None:
            return None
        try:
            if work.deletion:
                self._shelf.drop(work)
                return await self._end(work)
            if soon := self._too_soon(work):
                return soon
            if work.outcome is None or work.outcome.generation != work.generation:
                self._shelf.keep_now(work)
            return await self._apply(work)
        except ApiError as error:
            work.failures += 1
            _passes.labels("unreachable" if isinstance(error, ApiUnreachable) else "failed").inc()
            log.warning("a pass failed", extra=_about(work, reason=str(error)))
            if not work.deletion and (work.failures >= PATIENCE or not isinstance(error, ApiUnreachable)):
                self._say_failed(work, str(error))
            return _pause(work.failures)
        except OSError as error:
            log.warning("a work cannot be kept on disk", extra=_about(work, reason=str(error)))
            return 5.0

    def _too_soon(self, work: Work) -> float:
        """Somebody who deletes what we apply, as often as we apply it, must not keep us busy."""
        now = time.monotonic()
        generation, last = self._passed.get(work.id, (0, 0.0))
        if generation == work.generation and now - last < SPACING:
            return SPACING - (now - last)
        self._passed[work.id] = (work.generation, now)
        return 0.0

    def _say_failed(self, work: Work, reason: str) -> None:
        """The server learns that the spec has arrived and why it is not applied. What was applied before stays said."""
        if work.bundle is None or (work.outcome is not None and work.outcome.generation == work.generation):
            return
        refs = [self._known(_provisional(manifest)) for manifest in work.bundle.manifests]
        work.outcome = Outcome(work.generation, tuple(Result(ref, fault=reason) for ref in refs))
        self._reporter.due(work.id)

    # -- applying ----------------------------------------------------------------------------------------------------

    async def _apply(self, work: Work) -> float | None:
        bundle = work.bundle
        assert bundle is not None
        record = await self._records.ensure(work)
        refs = [await self._resolved(manifest) for manifest in bundle.manifests]
        # What was there before stays followed until it is removed.
        former = [result.ref for result in work.outcome.results] if work.outcome else []
        self._tracker.track(work.id, [*refs, *former])
        results: list[Result] = [Result(ref, fault="not tried yet") for ref in refs]
        for rank in sorted({rank_of(ref.kind) for ref in refs}):
            places = [place for place, ref in enumerate(refs) if rank_of(ref.kind) == rank]
            done = await asyncio.gather(*(self._one(work, bundle, record, place, refs[place]) for place in places))
            for place, result in zip(places, done, strict=True):
                results[place] = result
        outcome = Outcome(work.generation, tuple(results))
        if self._works.get(work.id) is work and not work.deletion:
            self._finish(work, outcome)
        left = await self._record(work, record, outcome, bundle)
        if left:
            return 1.0
        self._tracker.track(work.id, refs)
        return self._next(work, outcome)

    def _finish(self, work: Work, outcome: Outcome) -> None:
        first = work.outcome is None or work.outcome.generation != outcome.generation or not work.outcome.complete
        work.outcome = outcome
        self._shelf.keep(work)
        if outcome.complete and first:
            seconds = time.monotonic() - work.received
            _applied.observe(seconds)
            log.info("bundle applied", extra=_about(work, span="agent.apply", ms=round(seconds * 1000, 3)))
        self._reporter.due(work.id)

    def _next(self, work: Work, outcome: Outcome) -> float:
        _passes.labels("complete" if outcome.complete else "incomplete").inc()
        if any(result.retry for result in outcome.results):
            work.failures += 1
            faults = "; ".join(f"{result.ref}: {result.fault}" for result in outcome.results if result.fault)
            log.warning("bundle not applied", extra=_about(work, reason=faults))
            return _pause(work.failures)
        work.failures = 0
        if any(result.denied for result in outcome.results):
            return executor.AGAIN_SECONDS
        return RECHECK_SECONDS * random.uniform(1.0, 1.5)

    async def _resolved(self, manifest: Obj) -> Ref:
        ref = _provisional(manifest)
        if (ref.api_version, ref.kind) not in self._resources:
            try:
                found = await self._client.resource_for(ref.api_version, ref.kind)
            except ApiUnreachable:
                raise
            except ApiError:
                return ref  # the kind may be defined by another manifest, or later
            self._resources[ref.api_version, ref.kind] = found
        return self._known(ref)

    def _known(self, ref: Ref) -> Ref:
        resource = self._resources.get((ref.api_version, ref.kind))
        if resource is None:
            return ref
        namespace = (ref.namespace or "default") if resource.namespaced else ""
        return Ref(ref.api_version, ref.kind, namespace, ref.name, resource.plural)

    async def _one(self, work: Work, bundle: ManifestBundle, record: Obj, place: int, ref: Ref) -> Result:
        if not ref.resource:
            # Defined a moment ago by an earlier rank of this very bundle?
            ref = await self._resolved(bundle.manifests[place])
            if not ref.resource:
                return Result(ref, fault=f"the cluster does not know {ref.kind} of {ref.api_version}", retry=True)
        option = option_for(ref, bundle.manifest_configs)
        if fault := unknown_strategy(option):
            return Result(ref, fault=fault)
        if (done := self._complete(work, bundle.manifests[place], place, ref, option)) is not None:
            return done
        owned = not option.read_only and not orphaned(ref, bundle.delete_option)
        try:
            await executor.check(
                self._client, bundle.executer, ref, bundle.manifests[place], owned=owned, reads=option.read_only
            )
        except executor.NotAllowed as error:
            return Result(ref, fault=str(error), denied=True)
        except ApiUnreachable:
            raise
        except ApiError as error:
            return Result(ref, fault=error.message, retry=True)
        wanted = Wanted(
            ref=ref,
            manifest=bundle.manifests[place],
            option=option,
            owner=self._records.owner_reference(record) if owned else None,
            owner_uid=uid_of(record),
            request_id=work.request_id,
            before=self._before.get(ref),
        )
        return await self._attempt(wanted, self._former(work, place, ref))

    def _former(self, work: Work, place: int, ref: Ref) -> Result | None:
        results = work.outcome.results if work.outcome else ()
        found = results[place] if place < len(results) else None
        return found if found is not None and found.ref == ref and found.digest else None

    def _complete(self, work: Work, manifest: Obj, place: int, ref: Ref, option: Option) -> Result | None:
        """What its rules call complete has done its work: it is not applied again, nor put back when it is gone, though
        other manifests of its bundle may change."""
        if work.outcome is None or not option.can_complete:
            return None
        former = work.outcome.results[place] if place < len(work.outcome.results) else None
        found = next((r for r in work.resource_status if r["resourceMeta"]["ordinal"] == place), None)
        if former is None or former.ref != ref or former.fault or found is None:
            return None
        if work.outcome.generation != work.generation and former.content != ignored.digest_of(manifest):
            return None
        return former if _is_complete(found["conditions"]) else None

    async def _attempt(self, wanted: Wanted, former: Result | None) -> Result:
        ref = wanted.ref
        digest = wanted.digest()
        try:
            live = await self._tracker.fetch(ref)
            if former is not None and former.digest == digest and _as_left(live, former):
                self._before.setdefault(ref, wanted.manifest)
                return former
            applied = await apply(self._client, wanted, live)
        except (Conflict, BadPath) as error:
            return Result(ref, fault=str(error))
        except Vanishing as error:
            return Result(ref, fault=str(error), retry=True)
        except ApiUnreachable:
            raise
        except ApiError as error:
            return Result(ref, fault=error.message, retry=True)
        self._tracker.observe(ref, applied)
        if not wanted.option.read_only:
            self._before[ref] = wanted.manifest
        if applied is None:
            return Result(ref)
        content = ignored.digest_of(wanted.manifest) if wanted.option.can_complete else ""
        return Result(ref, uid=uid_of(applied), digest=digest, revision=str(revision_of(applied)), content=content)

    # -- the record of it --------------------------------------------------------------------------------------------

    async def _record(self, work: Work, record: Obj, outcome: Outcome, bundle: ManifestBundle) -> int:
        """Write down what is there now, and remove what is no longer asked for. How many of those still linger."""
        former = {identity(found): found for found in entries_of(record)}
        now: dict[tuple[str, str, str, str], Obj] = {}
        for result in outcome.results:
            option = option_for(result.ref, bundle.manifest_configs)
            if not result.ref.resource or option.read_only:
                continue
            found = entry(result.ref, result.uid)
            if result.uid:
                now[identity(found)] = found
            elif identity(found) in former:
                now[identity(found)] = former[identity(found)]
        obsolete = [found for key, found in former.items() if key not in now]
        lingering = await self._removal.remove(record, obsolete, bundle.delete_option, work.id) if obsolete else []
        await self._records.write(record, [*now.values(), *lingering])
        return len(lingering)

    # -- ending ------------------------------------------------------------------------------------------------------

    async def _end(self, work: Work) -> float | None:
        now = rfc3339(datetime.now(UTC))
        try:
            record = self._records.get(work.name)
            # What was never here, or is gone already, is not on its way out: a repeated delete gets the one answer.
            if not work.deleting_said and (record is not None or work.outcome is not None):
                work.conditions = status.deleting(work.conditions, now)
                await self._reporter.send(work)
                work.deleting_said = True
            if record is not None:
                option = work.bundle.delete_option if work.bundle else None
                doomed = await self._doomed(record, work.bundle)
                lingering = await self._removal.remove(record, doomed, option, work.id)
                if lingering:
                    work.failures += 1
                    return min(5.0, 0.05 * float(2 ** min(work.failures, 7)))
                await self._records.remove(record)
            work.conditions = status.deleted(work.conditions, self._consumer, now)
            work.status_due = True
            unheard = await self._reporter.send(work)
        except NotPublished as error:
            log.info("a deletion waits for the broker", extra=_about(work, reason=str(error)))
            return 1.0
        if unheard is not None:
            return unheard
        log.info("bundle deleted", extra=_about(work))
        self._forget(work)
        return None

    async def _doomed(self, record: Obj, bundle: ManifestBundle | None) -> Sequence[Obj]:
        """What the record says, and what an agent that died before it could write that down has left."""
        doomed = {identity(found): found for found in entries_of(record)}
        for manifest in bundle.manifests if bundle else ():
            ref = await self._resolved(manifest)
            if not ref.resource or option_for(ref, bundle.manifest_configs if bundle else None).read_only:
                continue
            doomed.setdefault(identity(entry(ref, "")), entry(ref, ""))
        return list(doomed.values())

    def _forget(self, work: Work) -> None:
        for ref in [result.ref for result in work.outcome.results] if work.outcome else ():
            if not self._tracker.others(ref, work.id):
                self._before.pop(ref, None)
        self._tracker.track(work.id, ())
        self._passed.pop(work.id, None)
        self._reporter.forget(work.id)
        self._works.gone(work, time.monotonic())


def _as_left(live: Obj | None, former: Result) -> bool:
    return live is not None and uid_of(live) == former.uid and str(revision_of(live)) == former.revision


def _is_complete(conditions: Sequence[Obj]) -> bool:
    return any(found["type"] == COMPLETE and found["status"] == "True" for found in conditions)


def _provisional(manifest: Obj) -> Ref:
    metadata = manifest["metadata"]
    return Ref(manifest["apiVersion"], manifest["kind"], metadata.get("namespace") or "", metadata["name"])


def _pause(failures: int) -> float:
    return min(LONGEST_RETRY, 0.1 * float(2 ** min(failures, 12))) * random.uniform(0.7, 1.0)


def _about(work: Work, **more: object) -> dict[str, object]:
    about: dict[str, object] = {"resource": work.id, "version": work.generation, "request_id": work.request_id}
    return about | ({"deleting": True} if work.deletion else {}) | more
