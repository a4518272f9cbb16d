"""A real region for tests to look into, brought up once by the command that people use, from the working tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regional.core.paths import RegionPaths, tools

KUBE = os.environ.get("KUBE") or "embedded"
"""The control plane of the region's clusters: `make tour KUBE=real` runs the tour on Kubernetes' own."""
SLOW = 1 if KUBE == "embedded" else 3
UP_TIMEOUT = 180 * SLOW
LONGEST_BACKOFF = 300.0
"""Before a container that was killed often is started again; tests share a region, and some of them kill."""


class LiveRegion:
    """A region and the programs that its owner uses on it."""

    def __init__(self, home: Path, name: str = "local") -> None:
        self.home = home
        self.paths = RegionPaths(name, home)
        self.env = {**os.environ, "REGIONAL_HOME": str(home)}
        self.name = name

    def regionctl(
        self, *arguments: str, check: bool = True, timeout: float = UP_TIMEOUT
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-m", "regional.cli.main", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or result.returncode == 0, f"regionctl {arguments}: {result.stdout}\n{result.stderr}"
        return result

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.regionctl("up", self.name, "--worktree", *(["--kube", KUBE] if KUBE != "embedded" else []))

    def status(self) -> dict[str, Any]:
        result = self.regionctl("status", "--region", self.name, "-o", "json", check=False)
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    def kubectl(self, cluster: str, *arguments: str, check: bool = True, stdin: str = "") -> str:
        result = subprocess.run(
            [str(tools() / "bin" / "kubectl"), "--kubeconfig", str(self.kubeconfig(cluster)), *arguments],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            input=stdin,
        )
        assert not check or result.returncode == 0, f"kubectl {arguments}: {result.stdout}\n{result.stderr}"
        return result.stdout

    def kubeconfig(self, cluster: str) -> Path:
        return self.paths.cluster(cluster) / "admin.kubeconfig"

    def pods(self, cluster: str, namespace: str = "") -> list[dict[str, Any]]:
        """Parts of `status` that are pods of a cluster: name, pid, state."""
        return [
            part
            for part in self.status()["parts"]
            if part["kind"] == "pod" and part["where"] == cluster and part["name"].startswith(namespace)
        ]

    def pid(self, service: str) -> int:
        return next(int(p["pid"]) for p in self.status()["parts"] if p["kind"] == "service" and p["name"] == service)

    def wait_healthy(self, seconds: float = LONGEST_BACKOFF + 60) -> dict[str, Any]:
        deadline = time.monotonic() + seconds * SLOW
        while True:
            seen = self.status()
            if seen["healthy"]:
                return seen
            if time.monotonic() > deadline:
                troubled = [part for part in seen["parts"] if not part["ok"]] or seen
                raise AssertionError(f"not healthy after {seconds} s: {json.dumps(troubled, indent=1)}")
            time.sleep(0.3)

    def rest_gitops(self, cluster: str) -> None:
        """Scaled to nothing again and again, since on a busy machine GitOps may heal itself before it ends."""

        def gone() -> bool:
            self.kubectl(cluster, "-n", "argocd", "scale", "deployment/argocd", "--replicas=0")
            return not self.pods(cluster, "argocd/")

        self.eventually(gone, f"gitops of {cluster} rests")

    def eventually(self, check: Callable[[], Any], what: str, seconds: float = 120) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := check()):
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.1)
        return value


def new_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="regional-test-"))
    home.chmod(0o711)  # PostgreSQL's unprivileged user walks through it
    return home


@pytest.fixture(scope="session")
def region() -> Iterator[LiveRegion]:
    live = LiveRegion(new_home())
    try:
        live.up()
        live.wait_healthy()
        yield live
    finally:
        live.regionctl("down", "--region", live.name, "--purge", "--yes", check=False)
        shutil.rmtree(live.home, ignore_errors=True)
