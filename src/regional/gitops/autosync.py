"""When a sync starts by itself, and when one that failed is tried again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regional.gitops.compare import OUT_OF_SYNC, Comparison, prune_allowed
from regional.gitops.manifests import ObjectKey
from regional.gitops.sources import Revisions
from regional.kube.objects import Obj, spec_of, status_of

MISSING_KIND_SECONDS = 1.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str | None, fallback: float) -> float:
    """Go's durations (`5s`, `1m30s`)."""
    found = _DURATION.findall(text or "")
    if not found or "".join(number + unit for number, unit in found) != text:
        return fallback
    return sum(float(number) * _UNITS[unit] for number, unit in found)


@dataclass(slots=True, frozen=True)
class Retry:
    """Without a limit of its own an Application is tried for ever: nobody sits beside a region that starts."""

    limit: int = -1
    first: float = 5.0
    factor: float = 2.0
    longest: float = 180.0

    @classmethod
    def of(cls, application: Obj) -> Retry:
        """For automated syncs, which the Application's policy rules."""
        policy = (spec_of(application).get("syncPolicy") or {}).get("retry")
        return cls() if policy is None else cls.said(policy)

    @classmethod
    def said(cls, policy: Obj) -> Retry:
        """A policy without a limit allows no retry: to Argo CD an omitted number is zero."""
        backoff = policy.get("backoff") or {}
        return cls(
            int(policy.get("limit") or 0),
            seconds(backoff.get("duration"), 5.0),
            float(backoff.get("factor") or 2),
            seconds(backoff.get("maxDuration"), 180.0),
        )

    def policy(self) -> Obj:
        """As `operation.retry` says it, so that a controller that takes over keeps to it."""
        backoff = {
            "duration": f"{self.first:g}s",
            "factor": int(self.factor),
            "maxDuration": f"{self.longest:g}s",
        }
        return {"limit": self.limit, "backoff": backoff}

    def allows(self, attempt: int) -> bool:
        return self.limit < 0 or attempt <= self.limit

    def delay(self, attempt: int, *, missing_kind: bool = False) -> float:
        """A kind that is missing usually comes within the second, with another Application's CRD."""
        if missing_kind:
            return float(min(MISSING_KIND_SECONDS * 2 ** max(0, attempt - 5), self.longest))
        return float(min(self.first * self.factor ** max(0, attempt - 1), self.longest))


@dataclass(slots=True, frozen=True)
class Decision:
    sync: bool = False
    heal: frozenset[ObjectKey] = frozenset()  # nothing but these; empty for all
    prune: bool = False
    refused: str = ""


def decide(application: Obj, comparison: Comparison, revisions: Revisions) -> Decision:
    automated = (spec_of(application).get("syncPolicy") or {}).get("automated")
    if automated is None or automated.get("enabled") is False or comparison.status != OUT_OF_SYNC:
        return Decision()
    prune = bool(automated.get("prune"))
    outside = comparison.out_of_sync()
    to_do = [r for r in outside if not r.requires_pruning or (prune and r.live and prune_allowed(r.live))]
    if not to_do:
        return Decision()
    if prune and not automated.get("allowEmpty") and outside and all(r.requires_pruning for r in comparison.resources):
        return Decision(refused="auto-sync will wipe out all resources")
    if not attempted(application, revisions):
        return Decision(sync=True, prune=prune)
    state = status_of(application).get("operationState") or {}
    if state.get("phase") in ("Failed", "Error"):
        return Decision(refused=failed_message(revisions, state.get("message", "")))
    if not automated.get("selfHeal"):
        return Decision()
    return Decision(sync=True, heal=frozenset(r.key for r in to_do), prune=prune)


def failed_message(revisions: Revisions, message: str) -> str:
    return f"Failed last sync attempt to [{revisions}]: {message}"


def attempted(application: Obj, revisions: Revisions) -> bool:
    """The last sync was to these very commits, from these very sources."""
    result = (status_of(application).get("operationState") or {}).get("syncResult") or {}
    field = "sources" if spec_of(application).get("sources") else "source"
    same = result.get(field) == spec_of(application).get(field)
    return bool(same and revisions.fields().items() <= result.items())
