"""GitOps: an ApplicationSet evaluated, 300 regions previewed, a controller at rest, a commit on its way to pods.

`make bench-gitops`. The first rows need no cluster, and judge CPU seconds (with Helm's and Git's), because machines are
shared; the wall time stands beside them. The last two bring up a region of their own; `--without-region` leaves them
out. The baseline of a preview is one run of Helm for each Application, reckoned from ten of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import regional.cli.apps
import regional.gitops.preview  # noqa: F401
from regional.cli.main import main as regionctl
from regional.config.applicationset import application_set
from regional.core.paths import RegionPaths, checkout
from regional.gitops.applicationset import evaluate
from regional.gitops.identity import ClusterIdentity
from regional.local.tools import ensure_kubectl_and_helm
from render import forked, make
from verdicts import Limit, Row, Table, p50

REST_SECONDS = 20.0
CHART = "argocd/config/management-cluster/hypershift"
IDENTITY = ClusterIdentity(
    cluster_type="regional-cluster",
    cluster_name="rc",
    environment="production",
    region_alias="one",
    aws_region="eu-west-1",
    git_repo="https://github.com/example/platform.git",
    git_revision="main",
)


def evaluated(directories: int) -> float:
    """Milliseconds for one cluster, the best of several: the rest is what others do on this machine."""

    async def tree(url: str, revision: str) -> tuple[str, ...]:
        return tuple(f"argocd/config/shared/chart-{number:03}" for number in range(directories))

    async def once() -> float:
        started = time.perf_counter()
        found = await evaluate(application_set(), [IDENTITY.cluster()], tree)
        assert len(found.applications) == directories
        return (time.perf_counter() - started) * 1000

    return min(asyncio.run(once()) for _ in range(9))


def previewed(folder: Path) -> tuple[float, float]:
    return forked(lambda: regionctl(["apps", "preview", "--checkout", str(folder), "--rev", "HEAD"]))


def one_helm() -> float:
    helm = str(ensure_kubectl_and_helm() / "helm")
    command = [helm, "template", "hypershift", str(checkout() / CHART)]
    return p50(
        [forked(lambda: subprocess.run(command, check=False, capture_output=True).returncode)[0] for _ in range(10)]
    )


def committed(folder: Path) -> None:
    author = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    regionctl(["config", "--checkout", str(folder), "render"])
    for words in (["add", "-A"], [*author, "commit", "-q", "-m", "rendered"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


class Live:
    """A region of its own, handled as its owner would."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="regional-bench-"))
        self._home.chmod(0o711)
        self._environment = os.environ | {"REGIONAL_HOME": str(self._home)}
        self._paths = RegionPaths("local", self._home)

    def regionctl(self, *words: str) -> str:
        command = [sys.executable, "-m", "regional.cli.main", *words]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def __enter__(self) -> Live:
        self.regionctl("up", "--worktree")
        return self

    def __exit__(self, *_: object) -> None:
        self.regionctl("down", "--purge", "--yes")
        shutil.rmtree(self._home, ignore_errors=True)

    def idle_share(self) -> float:
        """Percent of a core that the busiest of the clusters' controllers takes."""
        parts = json.loads(self.regionctl("status", "-o", "json"))["parts"]
        pids = [part["pid"] for part in parts if part["kind"] == "pod" and part["name"].startswith("argocd/")]
        before, started = [_cpu_seconds(pid) for pid in pids], time.monotonic()
        time.sleep(REST_SECONDS)
        took = time.monotonic() - started
        return max((_cpu_seconds(pid) - old) / took * 100 for pid, old in zip(pids, before, strict=True))

    def rolled(self, rounds: int) -> list[float]:
        """Seconds from the moment that the branch has moved until the last pod that rolls is ready."""
        clone = self._home / "clone"
        subprocess.run(["git", "-c", "safe.directory=*", "clone", "-q", str(self._paths.git), str(clone)], check=True)
        values = clone / CHART / "values.yaml"
        taken = []
        for level in ("debug", "info", "warning", "error", "debug")[:rounds]:
            values.write_text(re.sub(r"logLevel: \w+", f"logLevel: {level}", values.read_text()))
            said = self.regionctl("sync", "--checkout", str(clone)).splitlines()
            moments = [(float(line.split()[0]), line) for line in said if re.match(r" *[0-9.]+ s ", line)]
            ready = [moment for moment, line in moments if line.endswith("is ready")]
            taken += [max(ready) - moments[0][0]] if ready else []
        return taken


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def add_live_rows(table: Table, rounds: int) -> None:
    with Live() as live:
        table.add(Row("controller at rest, busiest cluster", "%", live.idle_share(), None, Limit(1.0)))
        table.add(Row("commit → pods rolled, p50", "s", p50(live.rolled(rounds)), None, Limit(3.0)))


def in_memory(work: Callable[[Path], None]) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "checkout"
        folder.mkdir()
        work(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-region", action="store_true")
    given = parser.parse_args()
    table = Table("GitOps", "ours", "each")
    table.head()
    table.add(Row("1 cluster × 50 directories evaluated", "ms", evaluated(50), None, Limit(50.0)))

    def preview(folder: Path) -> None:
        make(folder, given.regions, 1)
        forked(lambda: committed(folder))
        taken = [previewed(folder) for _ in range(given.rounds)]
        wall = p50([wall for _, wall in taken])
        baseline = one_helm() * 7 * given.regions
        title = f"preview of {given.regions} regions"
        cpu = p50([cpu for cpu, _ in taken])
        table.add(Row(title, "s", cpu, baseline, Limit(10.0), f"CPU; wall {wall:.1f} s"))

    in_memory(preview)
    if not given.without_region:
        add_live_rows(table, given.rounds)
    return 0 if table.close() else 1


if __name__ == "__main__":
    sys.exit(main())
