"""`regionctl sync`: what is edited here is what the region follows, and how its clusters get there is shown.

Publishing is all that has to be done: GitOps on every cluster sees the branch move. The rest is watching: which
Applications are on their way, which pods came in place of which.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from regional.core.problems import UserError
from regional.gitops.arrival import LEAVING, Refused, underway
from regional.gitops.repo import Repositories
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, is_deleting, is_true, name_of, namespace_of, owner_of, uid_of
from regional.local import source
from regional.local.inspection import clusters
from regional.local.region import Region

LOOK = 0.2
NAMESPACE = "argocd"
Say = Callable[[str], None]


class Rollout(msgspec.Struct):
    """How a sync ended: `lacking` is cluster/Application -> why, empty when every cluster arrived; `refused` if none of
    it is a matter of time."""

    commit: str
    changed: bool
    pods_rolled: int = 0
    infrastructure: list[str] = []
    lacking: dict[str, str] = {}

    @property
    def refused(self) -> bool:
        return all(isinstance(why, Refused) for why in self.lacking.values())


async def sync(
    region: Region, say: Say, *, checkout: Path | None = None, committed_only: bool = False, timeout: float = 120.0
) -> Rollout:
    """`checkout` is another clone than the one that the region came from. Raises UserError if nothing can be synced."""
    record = region.record()
    if record is None or not await region.running():
        raise UserError(f"region {region.paths.region} does not run", "start it with `regionctl up`")
    checkout = checkout or Path(record.checkout)
    commit = source.declared(checkout, region.paths, record.environment, worktree=not committed_only)
    before = source.current(region.paths)
    with region.alone():
        watchers = [_Watcher(region, name, say) for name in clusters(region.paths)]
        try:
            await asyncio.gather(*(watcher.look() for watcher in watchers))
            source.publish(checkout, region.paths, commit)
            what = source.git("log", "-1", "--format=%h %s", commit, cwd=region.paths.git)
            say(f"published {what}" if commit != before else f"nothing new since {what}")
            lacking = await _arrived(watchers, timeout)
        finally:
            await asyncio.gather(*(watcher.close() for watcher in watchers))
    rolled = sum(watcher.rolled for watcher in watchers)
    changed = _infrastructure(region, record.commit, commit, f"deploy/{record.environment}/{record.region}/terraform")
    return Rollout(commit, commit != before, rolled, changed, lacking)


async def _arrived(watchers: list[_Watcher], timeout: float) -> dict[str, str]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await asyncio.gather(*(watcher.until_arrived() for watcher in watchers))
    return {f"{w.cluster}/{name}": why for w in watchers for name, why in w.lacking.items()}


def _infrastructure(region: Region, provisioned: str, commit: str, inputs: str) -> list[str]:
    """Files that only a pipeline can bring about: GitOps does not look at them."""
    if not source.git("cat-file", "-t", provisioned, cwd=region.paths.git, ok=False):
        return []
    watched = (inputs, "terraform", "tekton")
    return source.git("diff", "--name-only", provisioned, commit, "--", *watched, cwd=region.paths.git).splitlines()


def arrivals(told: Mapping[str, str], lacking: Mapping[str, str]) -> list[str]:
    """What there is to say of Applications that lacked something and no longer do."""
    done = {name: why for name, why in sorted(told.items()) if name and name not in lacking}
    # A commit that changes nothing of an Application is only noted by it.
    changed = {name: why for name, why in done.items() if not why.startswith("is at ")}
    return [f"{name}: {'removed' if why == LEAVING else 'synced and healthy'}" for name, why in changed.items()]


class _Watcher:
    """One cluster on its way: says what changes, remembers what is lacking."""

    def __init__(self, region: Region, cluster: str, say: Say) -> None:
        self.cluster = cluster
        self.rolled = 0
        self.lacking: dict[str, str] = {"": "was not looked at"}
        self._say = say
        self._client = Client.from_kubeconfig(region.paths.cluster(cluster) / "admin.kubeconfig")
        self._scratch = tempfile.TemporaryDirectory(prefix="regional-sync-")
        self._repositories = Repositories(Path(self._scratch.name))
        self._pods: dict[str, Obj] | None = None
        self._ready: set[str] = set()

    async def close(self) -> None:
        await self._client.close()
        self._scratch.cleanup()

    async def until_arrived(self) -> None:
        """Or until nothing is left that time could mend."""
        while True:
            with contextlib.suppress(ApiError):
                await self.look()
                if all(isinstance(why, Refused) for why in self.lacking.values()):
                    return
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        told = self.lacking
        # Pods last: when no Application lacks anything, the pods that made it so are among those seen.
        lacking = await underway(self._client, NAMESPACE, self._repositories)
        pods = {uid_of(pod): pod for pod in await self._client.list("v1", "Pod") if owner_of(pod)}
        first, self._pods, old = self._pods is None, pods, self._pods or {}
        self.lacking = lacking
        for line in [] if first else arrivals(told, lacking):
            self._say(f"{self.cluster} {line}")
        for uid, pod in pods.items():
            if uid not in old and not first:
                self._say(f"{self.cluster} {namespace_of(pod)}: pod {name_of(pod)} starts")
            if is_true(pod, "Ready") and uid not in self._ready:
                self._ready.add(uid)
                if not first:
                    self.rolled += 1
                    self._say(f"{self.cluster} {namespace_of(pod)}: pod {name_of(pod)} is ready")
            if is_deleting(pod) and uid in old and not is_deleting(old[uid]):
                self._say(f"{self.cluster} {namespace_of(pod)}: pod {name_of(pod)} ends")
        for name in sorted(name for name, why in lacking.items() if told.get(name) != why and "Failed" in why):
            self._say(f"{self.cluster} {name}: {lacking[name]}")
