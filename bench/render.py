"""The configuration of 300 regions with 10 management clusters each, checked, rendered, changed: `make bench-render`.

Every command runs as a fork of this process, so that the figures are the command's own work; the time that Python takes
to start is a row of its own. Files are in memory, because creating thousands of them costs from ten to four hundred
microseconds each, as the disk likes (`--disk` shows it). CPU seconds (with Git's) are judged, because machines are
shared; the wall time stands beside them. The baseline is what PyYAML takes to load the same file, or to load it and
dump it again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

import regional.config.commands  # noqa: F401 - so that forks do not import it again
from regional.cli.main import main as regionctl
from regional.core.paths import checkout
from verdicts import Limit, Row, Table, p50

HEAD = """\
defaults:
  terraform_vars:
    account_id: "{{ account_id }}"
    alias: "regional-{{ region_alias }}"
    app_code: "infra"
    cost_center: "000"
    environment: "{{ environment }}"
    region: "{{ aws_region }}"
    region_alias: "{{ region_alias }}"
    service_phase: "dev"
  values:
    management-cluster:
      hypershift:
        oidcStorageS3Bucket:
          name: "hypershift-mc-{{ environment }}-{{ region_alias }}"
          region: "{{ aws_region }}"
sectors:
  - name: "integration"
  - name: "staging"
    terraform_vars:
      service_phase: "stage"
  - name: "production"
    terraform_vars:
      service_phase: "prod"
    values:
      regional-cluster:
        platformApi:
          replicas: 3
region_deployments:
"""


def region(number: int, clusters: int, pin: str) -> str:
    sector = ("integration", "staging", "production")[number % 3]
    text = f"""\
  - name: "region-{number:03}"
    aws_region: "us-east-{number % 9 + 1}"
    sector: "{sector}"
    account_id: "ssm:///infra/{{{{ environment }}}}/{{{{ region_alias }}}}/account_id"
"""
    if sector != "integration":
        text += f'    config_revision:\n      management-cluster: "{pin}"\n      regional-cluster: "{pin}"\n'
    text += f"""\
    terraform_vars:
      cost_center: "{number:04}"
    values:
      regional-cluster:
        platformApi:
          replicas: {number % 5 + 1}
    management_clusters:
"""
    for cluster in range(clusters):
        text += f'      - cluster_id: "mc{cluster:02}-{{{{ region_alias }}}}"\n'
        text += f'        account_id: "{number * 10 + cluster:012}"\n'
        if cluster == 0 and number % 10 == 0:  # a canary
            text += "        values: {management-cluster: {hypershift: {logLevel: debug}}}\n"
    return text


def make(folder: Path, regions: int, clusters: int) -> Path:
    shutil.copytree(checkout() / "argocd", folder / "argocd")
    author = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "charts"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    pin = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True).stdout
    entries = "".join(region(number, clusters, pin.strip()) for number in range(regions))
    (folder / "config.yaml").write_text(HEAD + entries)
    return folder


def forked(work: Callable[[], int | None]) -> tuple[float, float]:
    """CPU and wall seconds of `work` in a process of its own, with all that it started."""
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            os._exit(work() or 0)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit("a command failed")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start


def command(folder: Path, *words: str) -> Callable[[], int]:
    return lambda: regionctl(["config", "--checkout", str(folder), *words])


def started() -> int:
    return subprocess.run(
        [sys.executable, "-c", "import regional.cli.main, regional.config.commands"], check=True
    ).returncode


@contextlib.contextmanager
def workspace(regions: int, clusters: int, memory: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory) as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "checkout"
        folder.mkdir()
        yield make(folder, regions, clusters)


class Bench:
    def __init__(self, folder: Path, rounds: int, middle: int) -> None:
        self.folder = folder
        self.middle = middle
        self.rounds = rounds
        self.table = Table("Rendering regions (CPU seconds)", "ours", "PyYAML")

    def measure(
        self,
        title: str,
        work: Callable[[], int | None],
        limit: Limit,
        baseline: float | None,
        before: Callable[[], None],
    ) -> None:
        taken = []
        for _ in range(self.rounds):
            before()
            taken.append(forked(work))
        wall = p50([wall for _, wall in taken])
        self.table.add(Row(title, "s", p50([cpu for cpu, _ in taken]), baseline, limit, f"wall {wall:.2f} s"))

    def run(self) -> bool:
        config = self.folder / "config.yaml"
        text = config.read_text()
        load, _ = forked(lambda: bool(yaml.safe_load(text)) and 0)
        both, _ = forked(lambda: bool(yaml.safe_dump(yaml.safe_load(text))) and 0)
        edits = iter(range(1000))

        def clean() -> None:
            shutil.rmtree(self.folder / "deploy", ignore_errors=True)
            shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)

        def edit(what: str) -> Callable[[], None]:
            return lambda: void(config.write_text(text.replace(what, f'{what.rstrip(chr(34))}{next(edits)}"', 1)))

        middle = f'cost_center: "{self.middle:04}"'
        name = f"region-{self.middle:03}"
        path = "values.regional-cluster.platformApi.replicas"
        self.table.head()
        self.measure("validate", command(self.folder, "validate"), Limit(0.5), load, lambda: None)
        self.measure("render, nothing there yet", command(self.folder, "render"), Limit(1.2), both, clean)
        self.measure("render, one region changed", command(self.folder, "render"), Limit(0.3), both, edit(middle))
        config.write_text(text)
        forked(command(self.folder, "render"))
        self.measure("render, nothing changed", command(self.folder, "render"), Limit(0.3), both, lambda: None)
        self.measure("render --check", command(self.folder, "render", "--check"), Limit(), both, lambda: None)
        explain = command(self.folder, "explain", path, "--region", name, "--cluster", f"mc00-{name}")
        self.measure("explain", explain, Limit(0.3), load, lambda: None)
        self.measure("start of Python, not in the others", started, Limit(), None, lambda: None)
        return self.table.close()


def void(_: object) -> None:
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", type=int, default=300)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--disk", action="store_true", help="in the temporary directory instead of in memory")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, to see that it runs; judges nothing")
    given = parser.parse_args()
    if given.quick:
        given.regions, given.clusters, given.rounds = 12, 2, 1
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with workspace(given.regions, given.clusters, None if given.disk else memory) as folder:
        kept = Bench(folder, given.rounds, given.regions // 2).run()
    return 0 if kept or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
