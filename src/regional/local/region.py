"""A region on this machine, from the outside: up, down, inspect, purge. The CLI and our own tests use this.

`up` is level-triggered: it looks at what is there and does what is missing. Everything past the two base services
(AWS, the warm parent) is made by the pipelines in tekton/, so an interrupted `up` is finished by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from regional.core import paths
from regional.core.files import write_json
from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.local import guardian, pods, source, tools
from regional.local.addresses import Addresses
from regional.local.inspection import Inspection, inspect
from regional.local.provisioning import Provisioning, RegionRecord, Report
from regional.local.supervisor import running_mark
from regional.local.supervisor_client import ServiceSpec, SupervisorClient, SupervisorGone, socket_path

STATE_VERSION = 1


class Region:
    def __init__(self, name: str = "local", environment: str = "local") -> None:
        self.paths = paths.RegionPaths(name)
        self.environment = environment
        self.client = SupervisorClient.of(self.paths)
        self._record_file = self.paths.supervisor / "region.json"

    # -- what is there ------------------------------------------------------------------------------------------

    def record(self) -> RegionRecord | None:
        try:
            raw = self._record_file.read_bytes()
        except FileNotFoundError:
            return None
        found = msgspec.json.decode(raw)
        if found.get("version") != STATE_VERSION:
            raise UserError(
                f"the data of region {self.paths.region!r} is of version {found.get('version')}; "
                f"this regionctl reads version {STATE_VERSION}",
                f"use the regionctl that made it, or remove it with `regionctl down --purge` ({self.paths.root})",
            )
        return msgspec.convert(found, RegionRecord)

    async def running(self) -> bool:
        return await self.client.ping()

    async def inspect(self, wait_seconds: float = 0.0) -> Inspection:
        record = self.record()
        expected = ["rc", *record.management_clusters] if record else ["rc"]
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            seen = await inspect(self.paths, expected)
            if seen.healthy or asyncio.get_running_loop().time() >= deadline:
                return seen
            await asyncio.sleep(0.2)

    # -- up -----------------------------------------------------------------------------------------------------

    async def up(self, report: Report, *, worktree: bool = False, checkout: Path | None = None) -> Inspection:
        """Raises UserError with one clear line; what was done so far stays and is not done again."""
        checkout = checkout or paths.checkout()
        with self._alone():
            self._check_owner(checkout)
            async with _step(report, "tools (kubectl, Helm, Mosquitto)"):
                await asyncio.to_thread(tools.ensure_kubectl_and_helm)
                await asyncio.to_thread(tools.mosquitto)
            async with _step(report, "declared region, from " + ("the working tree" if worktree else "HEAD")):
                commit = source.publish(checkout, self.paths, self.environment, worktree=worktree)
                workspace = source.export(self.paths, commit)
                record = self._declare(checkout, workspace, commit)
            async with _step(report, "supervisor"):
                await self.start_supervisor()
            async with _step(report, "AWS and warm parent"):
                await asyncio.gather(*(self.client.ensure(spec, 60) for spec in self._base_services(record)))
            if not record.complete:
                try:
                    await Provisioning(self.paths, record, workspace).whole_region(report)
                except* UserError as errors:
                    raise errors.exceptions[0] from None
                record.complete = True
                self._store(record)
            async with _step(report, "all parts well"):
                return await self.inspect(60)

    @contextlib.contextmanager
    def _alone(self) -> Any:
        self.paths.supervisor.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.paths.supervisor / "up.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"another `regionctl up` or `down` is at work on region {self.paths.region!r}",
                    "wait for it; `regionctl status` shows how far it is",
                ) from None
            yield

    def _check_owner(self, checkout: Path) -> None:
        record = self.record()
        if record and Path(record.checkout) != checkout and Path(record.checkout).exists():
            raise UserError(
                f"region {self.paths.region!r} on this machine belongs to the checkout {record.checkout}",
                "run `regionctl down --purge` there, or set REGIONAL_HOME to keep the data of this checkout elsewhere",
            )

    def _declare(self, checkout: Path, workspace: Path, commit: str) -> RegionRecord:
        directory = workspace / "deploy" / self.environment / self.paths.region / "terraform"
        inputs = msgspec.json.decode((directory / "regional.json").read_bytes())
        clusters = sorted(path.stem for path in (directory / "management").glob("*.json"))
        old = self.record()
        record = RegionRecord(
            version=STATE_VERSION,
            region=self.paths.region,
            environment=self.environment,
            aws_region=inputs["region"],
            checkout=str(checkout),
            commit=commit,
            management_clusters=clusters,
            complete=bool(old and old.complete and old.commit == commit),
        )
        self._store(record)
        return record

    def _store(self, record: RegionRecord) -> None:
        write_json(self._record_file, record)

    async def start_supervisor(self) -> None:
        if await self.running():
            return
        self.paths.service_logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark = running_mark(self.paths)
        mark.touch()
        os.environ["REGIONAL_GUARDIAN_LOG"] = str(self.paths.service_logs / "supervisor.log")
        os.environ["REGIONAL_RUNNING_MARK"] = str(mark)
        guardian.start(self.paths.region)
        async with asyncio.timeout(20):
            while not await self.running():
                await asyncio.sleep(0.02)

    def _base_services(self, record: RegionRecord) -> list[ServiceSpec]:
        infra = Addresses(self.paths).block("region")
        warm_socket = socket_path(self.paths).with_name("warm.sock")
        token = self.paths.aws / "lookup-token"
        if not token.exists():
            from secrets import token_urlsafe

            self.paths.aws.mkdir(parents=True, exist_ok=True, mode=0o700)
            token.touch(mode=0o600)
            token.write_text(token_urlsafe(32))
        program = [sys.executable, "-m", "regional.cli.main", "serve"]
        return [
            ServiceSpec(
                name="aws",
                description="AWS on this machine (moto, with a journal)",
                kind="exec",
                argv=[
                    *program,
                    *("aws", "--address", infra.infra(3), "--port", "4566"),
                    *("--journal", str(self.paths.aws), "--lookup-token-file", str(token)),
                ],
                address=f"{infra.infra(3)}:4566",
                ready=f"http://{infra.infra(3)}:4566/_regional/healthz",
            ),
            ServiceSpec(
                name="warm",
                description="warm parent: pods and steps are its forks",
                kind="exec",
                argv=[*program, "warm", "--socket", str(warm_socket)],
                address=str(warm_socket),
                ready=f"unix:{warm_socket}",
            ),
        ]

    # -- down ---------------------------------------------------------------------------------------------------

    async def down(self) -> bool:
        """True if something was stopped. Works also on what a killed supervisor and guardian left behind."""
        if not self.paths.root.exists():
            return False
        with self._alone():
            running_mark(self.paths).unlink(missing_ok=True)
            try:
                await self.client.shutdown()
                stopped = True
            except SupervisorGone:
                stopped = await self._stop_leftovers()
            for _ in range(100):
                if not await self.running():
                    break
                await asyncio.sleep(0.02)
            return stopped

    async def _stop_leftovers(self) -> bool:
        refs = pods.running(self.paths)
        for file in (self.paths.supervisor / "run").glob("*.json"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                ref = msgspec.json.decode(file.read_bytes(), type=ProcessRef)
                if ref.alive():
                    refs.append(ref)
        await asyncio.gather(*(ref.stop(3.0) for ref in refs))
        return bool(refs)

    def purge(self) -> None:
        """Remove all data. Only after `down`."""
        Addresses(self.paths).release_all()
        shutil.rmtree(self.paths.root, ignore_errors=True)
        shutil.rmtree(socket_path(self.paths).parent, ignore_errors=True)
        if self.paths.root.exists():
            raise UserError(f"could not remove {self.paths.root}", "look who owns the files there")


@contextlib.asynccontextmanager
async def _step(report: Report, text: str) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    yield
    report("step", text, loop.time() - started)
