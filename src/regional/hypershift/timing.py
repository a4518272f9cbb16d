"""How long a control plane took from the moment its HostedCluster was seen until it was Available: one span each."""

from __future__ import annotations

import logging

from regional.core.clock import Clock
from regional.hypershift.names import FINALIZER, Traced, resource_of
from regional.kube.objects import Obj, finalizers_of, parse_time, uid_of

log = logging.getLogger(__name__)
SPAN = "hypershift.control_plane"


class Stretches:
    """Remembers when each cluster was first seen; a cluster that a predecessor took on counts from its creation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, float] = {}

    def note(self, change: str, hosted: Obj, _before: Obj | None) -> None:
        """A listener of HostedClusters."""
        if change == "DELETED":
            self._seen.pop(uid_of(hosted), None)
        elif change == "ADDED" and FINALIZER not in finalizers_of(hosted):
            self._seen.setdefault(uid_of(hosted), self._clock.monotonic())

    def end(self, hosted: Obj, endpoint: str) -> None:
        """It is Available for the first time."""
        seen = self._seen.pop(uid_of(hosted), None)
        if seen is not None:
            seconds = self._clock.monotonic() - seen
        else:
            created = parse_time(str(hosted["metadata"].get("creationTimestamp") or ""))
            seconds = (self._clock.now() - created).total_seconds() if created is not None else 0.0
        told = {"span": SPAN, "ms": round(max(0.0, seconds) * 1000, 1), "resource": resource_of(hosted)}
        Traced(log, hosted).info("hosted cluster is available", extra=told | {"endpoint": endpoint})
