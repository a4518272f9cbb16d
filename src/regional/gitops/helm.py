"""Charts through the real Helm. A rendering depends on nothing but the chart's files and its values, so each is made
once and kept by their digests: `helm template` costs 50-120 ms, a look into the cache nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

HELM_TIMEOUT = 60.0
REMEMBERED = 256


class HelmError(Exception):
    pass


class ChartError(HelmError):
    """Helm's own verdict on a chart and its values: the same files get the same one again."""


class Release(msgspec.Struct, frozen=True):
    """Everything a rendering depends on, besides the chart's files, which `tree` names by content."""

    tree: str
    name: str
    namespace: str
    values: tuple[bytes, ...]  # in order, the last wins
    kube_version: str = ""
    api_versions: tuple[str, ...] = ()
    include_crds: bool = True
    skip_tests: bool = False
    parameters: tuple[tuple[str, str, bool], ...] = ()  # --set and --set-string

    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Helm:
    def __init__(self, root: Path, *, binary: str = "helm", parallel: int = 2) -> None:
        self._root = root
        self._binary = binary
        self._slots = asyncio.Semaphore(parallel)
        self._rendered: OrderedDict[str, asyncio.Task[str]] = OrderedDict()

    def scratch(self) -> Path:
        self._root.mkdir(parents=True, exist_ok=True)
        return self._root

    async def template(self, chart: Path, release: Release, *, keep: bool = True) -> str:
        if not keep:
            return await self._render(chart, release)
        digest = release.digest()
        task = self._rendered.get(digest)
        if task is None:
            task = asyncio.create_task(self._render(chart, release))
            self._rendered[digest] = task
            while len(self._rendered) > REMEMBERED:
                self._rendered.popitem(last=False)
        self._rendered.move_to_end(digest)
        try:
            return await asyncio.shield(task)
        except HelmError:
            self._rendered.pop(digest, None)
            raise

    async def close(self) -> None:
        running = [task for task in self._rendered.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _render(self, chart: Path, release: Release) -> str:
        self._root.mkdir(parents=True, exist_ok=True)
        async with self._slots:
            with tempfile.TemporaryDirectory(dir=self._root, prefix="values.") as directory:
                files = _written(Path(directory), release.values)
                return await self._run(arguments(chart, release, files))

    async def _run(self, argv: Sequence[str]) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                self._binary,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(),
            )
        except FileNotFoundError:
            raise HelmError(f"{self._binary} is not on PATH") from None
        try:
            async with asyncio.timeout(HELM_TIMEOUT):
                out, errors = await process.communicate()
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise HelmError(f"helm template took longer than {HELM_TIMEOUT:.0f} s") from None
            raise
        if process.returncode:
            kind = ChartError if process.returncode > 0 else HelmError  # a killed Helm said nothing of the chart
            raise kind(f"`helm template` failed: {_reason(errors)}")
        return out.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        """Helm of this process only: no repositories, plugins or cluster of the user who runs it."""
        home = str(self._root / "home")
        kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        # One P is enough for a rendering, and leaves the machine's other cores to other charts.
        return kept | {
            "HOME": home,
            "HELM_CACHE_HOME": f"{home}/cache",
            "HELM_CONFIG_HOME": f"{home}/config",
            "HELM_DATA_HOME": f"{home}/data",
            "KUBECONFIG": os.devnull,
            "GOMAXPROCS": "2",
        }


def arguments(chart: Path, release: Release, values: Sequence[Path]) -> list[str]:
    argv = ["template", "--namespace", release.namespace or "default"]
    if release.kube_version:
        argv += ["--kube-version", release.kube_version]
    for version in release.api_versions:
        argv += ["--api-versions", version]
    for file in values:
        argv += ["--values", str(file)]
    for name, value, text in release.parameters:
        argv += ["--set-string" if text else "--set", f"{name}={_escaped(value)}"]
    if release.include_crds:
        argv.append("--include-crds")
    if release.skip_tests:
        argv.append("--skip-tests")
    # Names come out of Applications: none of them may be an option of Helm's.
    return [*argv, "--", release.name, str(chart)]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,")


def _written(directory: Path, values: Sequence[bytes]) -> list[Path]:
    files = []
    for number, content in enumerate(values):
        file = directory / f"{number}.yaml"
        file.write_bytes(content)
        files.append(file)
    return files


def _reason(errors: bytes) -> str:
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    wanted = [line for line in lines if not line.startswith(("WARNING", "level=WARN", "time=", "Use --debug"))]
    return " ".join(wanted or lines)[:2000].removeprefix("Error: ") or "no reason given"
