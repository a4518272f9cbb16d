"""The arithmetic of a rolling update, apart from everything that talks to an API.

Two bounds hold at every step: never more than `replicas + surge` pods in all, and never fewer than
`replicas - unavailable` available ones, as far as that depends on us.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from regional.kube.objects import Obj, spec_of, status_of


class Bounds(NamedTuple):
    surge: int
    unavailable: int


def bounds(deployment: Obj) -> Bounds:
    spec = spec_of(deployment)
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return Bounds(0, 0)
    rolling = strategy.get("rollingUpdate") or {}
    replicas = desired(deployment)
    surge = resolve(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = resolve(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    if surge == 0 and unavailable == 0:
        # Both can round to nothing, and then no pod could ever be replaced.
        unavailable = 1
    return Bounds(surge, min(unavailable, replicas))


def resolve(value: int | str, whole: int, *, up: bool) -> int:
    """A count or a percentage of `whole`."""
    if isinstance(value, int):
        return value
    if value.endswith("%"):
        share = int(value[:-1]) * whole / 100
        return math.ceil(share) if up else math.floor(share)
    return int(value)


def desired(obj: Obj) -> int:
    return int(spec_of(obj).get("replicas", 1))


def available(replicaset: Obj) -> int:
    return int(status_of(replicaset).get("availableReplicas") or 0)


def total(replicasets: Sequence[Obj]) -> int:
    return sum(desired(replicaset) for replicaset in replicasets)


def grown_size(deployment: Obj, new: Obj, everyone: Sequence[Obj]) -> int:
    """How large the new ReplicaSet may be now."""
    replicas = desired(deployment)
    if (spec_of(deployment).get("strategy") or {}).get("type") == "Recreate":
        return replicas
    room = replicas + bounds(deployment).surge - total(everyone)
    if room <= 0:
        return desired(new)
    return desired(new) + min(room, replicas - desired(new))


def shrunk_sizes(deployment: Obj, new: Obj, old: Sequence[Obj]) -> dict[str, int]:
    """Name -> size for the old ReplicaSets that may lose pods now.

    Pods that do not work go first, wherever they are: removing them lowers nobody's availability, and leaving them
    would let a broken release block its own replacement.
    """
    sizes = {rs["metadata"]["name"]: desired(rs) for rs in old}
    least = desired(deployment) - bounds(deployment).unavailable
    new_unavailable = desired(new) - available(new)
    spare = total([*old, new]) - least - new_unavailable
    if spare <= 0:
        return {}
    oldest_first = sorted(old, key=lambda rs: rs["metadata"].get("creationTimestamp", ""))
    for rs in oldest_first:
        name = rs["metadata"]["name"]
        broken = min(spare, max(0, sizes[name] - available(rs)))
        sizes[name] -= broken
        spare -= broken
    working = sum(min(sizes[rs["metadata"]["name"]], available(rs)) for rs in old) + available(new)
    give = max(0, working - least)
    for rs in oldest_first:
        name = rs["metadata"]["name"]
        taken = min(give, sizes[name])
        sizes[name] -= taken
        give -= taken
    return {
        rs["metadata"]["name"]: sizes[rs["metadata"]["name"]]
        for rs in old
        if sizes[rs["metadata"]["name"]] != desired(rs)
    }


def proportional_sizes(deployment: Obj, everyone: Sequence[Obj], allowed: int) -> dict[str, int]:
    """Spread a change of scale in the middle of a rollout over all ReplicaSets by their share, largest first.

    What rounding leaves over goes to the largest that can take it, so that the sum is exactly `allowed`.
    """
    current = total(everyone)
    change = allowed - current
    if change == 0 or not everyone:
        return {}
    order = sorted(everyone, key=lambda rs: (-desired(rs), rs["metadata"].get("creationTimestamp", "")))
    sizes = {rs["metadata"]["name"]: desired(rs) for rs in order}
    left = change
    for rs in order:
        if current and left:
            share = round(desired(rs) * change / current)
            share = max(left, share) if change < 0 else min(left, share)
            share = max(share, -desired(rs))
            sizes[rs["metadata"]["name"]] += share
            left -= share
    for name in sizes:
        rest = max(left, -sizes[name])
        sizes[name] += rest
        left -= rest
    return sizes
