"""The request path on this machine, part by part: `make bench-path`.

Brings up a region of its own (own data, own addresses), makes clusters in it one by one and ten at once, sends work,
and takes it down. Times are read from the region's own timeline and log lines, so that asking does not slow what is
measured. The baselines, measured in the same run, are a signed request that does nothing, and the same objects applied
by hand to a management cluster: ratios travel between machines, seconds do not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from regional.cli import hops
from regional.cloud.aws import Credentials
from regional.core.loop import run
from regional.core.paths import RegionPaths, checkout
from regional.gateway.client import ApiClient, ApiError
from regional.local.logfiles import find_logs
from regional.local.region import Region
from regional.local.shell import settings

ONE_BY_ONE, AT_ONCE, WORKS, CALLS = 12, 10, 20, 50
GOAL_CREATE, GOAL_AT_ONCE, GOAL_WORK = 3.0, 15.0, 0.5
PATIENCE = 120.0

# Stage → the spans whose time it is, with the way to them. `late` are those that end after the control plane is up.
STAGES = {
    "door": ("gateway.request", "platform_api.request"),
    "CLM commit": ("clm.commit",),
    "sentinel": ("sentinel.event",),
    "adapter": ("adapter.run", "clm.status"),
    "Maestro commit": ("maestro.commit",),
    "publish": ("maestro.publish",),
    "apply": ("agent.apply",),
    "control plane": (hops.CONTROL_PLANE,),
    "status back": ("maestro.status", "adapter.status", "late adapter.run"),
    "commit": ("late clm.status",),
}
Document = dict[str, Any]


class Bench:
    def __init__(self, paths: RegionPaths) -> None:
        self._paths = paths
        self._environment = settings(paths)
        self.client = self._client()

    def _client(self) -> ApiClient:
        found = self._environment
        key = Credentials(
            found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"], found.get("AWS_SESSION_TOKEN", "")
        )
        return ApiClient(found["API_GATEWAY_URL"], found["AWS_REGION"], key, ca_file=found["AWS_CA_BUNDLE"])

    # -- clusters ----------------------------------------------------------------------------------------------------

    def create(self, name: str, client: ApiClient | None = None) -> tuple[str, str, float]:
        """(id, request id, moment at which it was asked for)"""
        asked = time.time()
        answer = (client or self.client).call("POST", "/api/v0/clusters", {"name": name})
        return answer.json()["id"], answer.request_id, asked

    def ready_at(self, cluster_id: str) -> float:
        def look() -> float | None:
            status = self.client.get(f"/api/v0/clusters/{cluster_id}", patience=5.0)["status"]
            steps = {entry["step"]: entry["time"] for entry in status["timeline"]}
            return datetime.fromisoformat(steps["Ready"]).timestamp() if "Ready" in steps else None

        return float(_until(look, f"cluster {cluster_id} to be Ready", 0.1))

    def delete(self, cluster_id: str) -> float:
        """Seconds until it is gone."""
        asked = time.time()
        self.client.call("DELETE", f"/api/v0/clusters/{cluster_id}")

        def look() -> float | None:
            try:
                self.client.get(f"/api/v0/clusters/{cluster_id}", patience=5.0)
            except ApiError as error:
                if error.status == 404:
                    return time.time() - asked
                raise
            return None

        return float(_until(look, f"cluster {cluster_id} to be gone", 0.1))

    def one_by_one(self, count: int) -> tuple[list[float], list[float], list[dict[str, float]]]:
        totals, deletes, stages = [], [], []
        for number in range(count):
            cluster_id, request_id, asked = self.create(f"bench-{number}")
            ready = self.ready_at(cluster_id)
            ended, found = self.stages_of(request_id)
            totals.append(max(ready, ended) - asked)
            stages.append(found)
            deletes.append(self.delete(cluster_id))
            time.sleep(0.5)  # at rest again
        return totals, deletes, stages

    def at_once(self, count: int) -> tuple[float, list[float]]:
        """(seconds until all are Ready, each one's)"""
        clients = [self._client() for _ in range(count)]
        started = time.time()
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            made = list(pool.map(lambda pair: self.create(f"many-{pair[0]}", pair[1]), enumerate(clients)))
        ready = [self.ready_at(cluster_id) for cluster_id, _, _ in made]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(self.delete, [cluster_id for cluster_id, _, _ in made]))
        for client in clients:
            client.close()
        return max(ready) - started, [moment - asked for moment, (_, _, asked) in zip(ready, made, strict=True)]

    def stages_of(self, request_id: str) -> tuple[float, dict[str, float]]:
        """(moment at which the commit to Ready was done, seconds of each stage)"""
        led, _ = hops.until_ready(hops.hops_of(find_logs(self._paths), [request_id]))
        up = min((hop.time for hop in led if hop.span == hops.CONTROL_PLANE), default=None)
        marked = [
            msgspec.structs.replace(hop, span=f"late {hop.span}")
            if up is not None and hop.time > up and hop.span in ("adapter.run", "clm.status")
            else hop
            for hop in led
        ]
        end = hops.ending(led)
        of_span = {span: stage for stage, spans in STAGES.items() for span in spans}
        sums = dict.fromkeys(STAGES, 0.0) | {"other": 0.0}
        for share in hops.shares_of(marked, end):
            sums[of_span.get(share.span, "other")] += share.seconds
        return end.timestamp(), sums

    # -- work and baselines ------------------------------------------------------------------------------------------

    def works(self, count: int) -> list[float]:
        payload = msgspec.json.decode((checkout() / "examples" / "work" / "payload.json").read_bytes())
        times = []
        for number in range(count):
            payload["data"]["metadata"]["name"] = f"bench-work-{number}"
            for manifest in payload["data"]["spec"]["workload"]["manifests"]:
                manifest["data"]["message"] = f"number {number}"
            started = time.perf_counter()
            bundle_id = self.client.call("POST", "/api/v0/work", payload).json()["id"]

            def look(bundle_id: str = bundle_id) -> bool | None:
                found = self.client.get(f"/api/v0/resource_bundles/{bundle_id}")
                return True if found["delivery"]["state"] == "applied" else None

            _until(look, "work to be applied", 0.005)
            times.append(time.perf_counter() - started)
            self.client.call("DELETE", f"/api/v0/resource_bundles/{bundle_id}")
            time.sleep(0.2)
        return times

    def empty_calls(self, count: int) -> list[float]:
        return [_timed(lambda: self.client.get("/api/v0/live")) for _ in range(count)]

    async def applied_by_hand(self, count: int) -> list[float]:
        """The payload's own objects, applied to mc01 with its owner's credentials, as kubectl would."""
        from regional.kube.client import Client

        payload = msgspec.json.decode((checkout() / "examples" / "work" / "payload.json").read_bytes())
        client = Client.from_kubeconfig(self._paths.cluster("mc01") / "admin.kubeconfig")
        times = []
        try:
            for number in range(count):
                started = time.perf_counter()
                for manifest in payload["data"]["spec"]["workload"]["manifests"]:
                    manifest["metadata"]["name"] = "bench-by-hand"
                    manifest["data"]["message"] = f"number {number}"
                    await client.apply(manifest, field_manager="bench", force=True)
                times.append(time.perf_counter() - started)
            await client.delete("v1", "ConfigMap", "bench-by-hand", "default")
        finally:
            await client.close()
        return times


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _until(look: Callable[[], Any], what: str, pause: float) -> Any:
    deadline = time.monotonic() + PATIENCE
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(pause)
    return found


def p95(values: Sequence[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def _row(label: str, values: Sequence[float], goal: float = 0.0, base: float = 0.0) -> None:
    middle = statistics.median(values)
    aim = f"{goal:>8.2f}{middle / goal:>8.2f}" if goal else f"{'':>8}{'':>8}"
    ratio = f"{middle / base:>12.1f}" if base else ""
    print(f"{label:<44}{middle:>9.3f}{p95(values):>9.3f}{aim}{ratio}".rstrip())


def report(bench: Bench, creates: int) -> bool:
    calls = bench.empty_calls(CALLS)
    by_hand = run(bench.applied_by_hand(WORKS))
    base = statistics.median(by_hand)
    print(f"baseline: a signed request that does nothing takes {statistics.median(calls) * 1000:.1f} ms (p50),")
    print(f"          the work's objects applied by hand {base * 1000:.1f} ms (p50)\n")
    works = bench.works(WORKS)
    totals, deletes, stages = bench.one_by_one(creates)
    together, each = bench.at_once(AT_ONCE)
    print(f"{'':<44}{'p50 s':>9}{'p95 s':>9}{'goal':>8}{'of it':>8}{'× by hand':>12}")
    _row(f"work → Applied, {len(works)}×", works, GOAL_WORK, base)
    _row(f"create → Ready, at rest, {len(totals)}×", totals, GOAL_CREATE)
    _row(f"delete → gone, at rest, {len(deletes)}×", deletes)
    _row(f"create → Ready, each of {AT_ONCE} at once", each)
    label = f"{AT_ONCE} creates at once → all Ready"
    print(f"{label:<44}{together:>9.3f}{'':>9}{GOAL_AT_ONCE:>8.2f}{together / GOAL_AT_ONCE:>8.2f}")
    whole = statistics.mean(totals)
    print(f"\n{'create → Ready, where the time went':<44}{'p50 ms':>9}{'mean ms':>9}{'share':>8}")
    for stage in [*STAGES, "other"]:
        values = [found[stage] * 1000 for found in stages]
        mean = statistics.mean(values)
        print(f"  {stage:<42}{statistics.median(values):>9.1f}{mean:>9.1f}{mean / whole / 10:>7.1f}%")
    unseen = whole - statistics.mean(sum(found.values()) for found in stages)
    print(f"  {'the client and its connection':<42}{'':>9}{unseen * 1000:>9.1f}{unseen / whole * 100:>7.1f}%")
    reached = [
        statistics.median(totals) < GOAL_CREATE,
        together < GOAL_AT_ONCE,
        statistics.median(works) < GOAL_WORK,
    ]
    print(f"\n{sum(reached)} of {len(reached)} goals reached")
    return all(reached)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worktree", action="store_true", help="a region from the working tree, not from HEAD")
    parser.add_argument("--creates", type=int, default=ONE_BY_ONE, help="how many clusters one by one")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="regional-bench-"))
    home.chmod(0o711)
    os.environ["REGIONAL_HOME"] = str(home)
    region = Region("local")
    try:
        try:
            seen = run(region.up(lambda *_: None, worktree=options.worktree))
            if not seen.healthy:
                raise SystemExit(f"not healthy: {seen.problems()}")
            return 0 if report(Bench(region.paths), options.creates) else 1
        finally:
            run(region.down(purge=True))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
