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
from regional.core.files import read_json, write_json
from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.kube.real.programs import require_programs
from regional.local import guardian, pods, source, tools
from regional.local.addresses import Addresses
from regional.local.code import code
from regional.local.inspection import Inspection, inspect
from regional.local.provisioning import Provisioning, RegionRecord, Report
from regional.local.supervisor import identity_file, running_mark, services_file
from regional.local.supervisor_client import ServiceSpec, SupervisorClient, SupervisorGone, socket_path

STATE_VERSION = 1
_SUPERVISOR_SECONDS = 20.0
_LEAVING_SECONDS = 10.0


class _Versioned(msgspec.Struct):
    version: int


class Region:
    def __init__(self, name: str = "local", environment: str = "local") -> None:
        self.paths = paths.RegionPaths(name)
        self.environment = environment
        self.client = SupervisorClient.of(self.paths)
        self._record_file = self.paths.supervisor / "region.json"

    # -- what is there ------------------------------------------------------------------------------------------

    def record(self) -> RegionRecord | None:
        try:
            version = read_json(self._record_file, _Versioned).version
        except (FileNotFoundError, NotADirectoryError):
            return None
        if version != STATE_VERSION:
            raise UserError(
                f"the data of region {self.paths.region!r} is of version {version}; "
                f"this regionctl reads version {STATE_VERSION}",
                f"use the regionctl that made it, or remove it with `regionctl down --purge` ({self.paths.root})",
            )
        return read_json(self._record_file, RegionRecord)

    async def running(self) -> bool:
        return await self.client.ping()

    async def inspect(self, wait_seconds: float = 0.0) -> Inspection:
        record = self.record()
        expected = ["rc", *record.management_clusters] if record else ["rc"]
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            seen = await inspect(self.paths, expected)
            if seen.healthy or seen.without_gitops() or asyncio.get_running_loop().time() >= deadline:
                return seen
            await asyncio.sleep(0.2)

    # -- up -----------------------------------------------------------------------------------------------------

    async def up(
        self, report: Report, *, worktree: bool = False, checkout: Path | None = None, kube: str = ""
    ) -> Inspection:
        """Raises UserError with one clear line; what was done so far stays and is not done again.

        `kube` is `embedded` or `real`; empty keeps what the region has, or takes the embedded one.
        """
        checkout = checkout or paths.checkout()
        kube = self.chosen_kube(kube)
        commit = source.declared(checkout, self.paths, self.environment, worktree=worktree)
        with self.alone():
            self._check_owner(checkout)
            async with _step(report, "tools (kubectl, Helm, Mosquitto)"):
                await asyncio.to_thread(tools.ensure_kubectl_and_helm)
                await asyncio.to_thread(tools.mosquitto)
            started = asyncio.get_running_loop().time()
            if await self._stop_other_code():
                report("step", "stopped what ran other code", asyncio.get_running_loop().time() - started)
            async with _step(report, "declared region, from " + ("the working tree" if worktree else "HEAD")):
                source.publish(checkout, self.paths, commit)
                workspace = source.export(self.paths, commit)
                record = self._declare(checkout, workspace, commit, kube)
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
            started = asyncio.get_running_loop().time()
            seen = await self.inspect(60)
            if lost := seen.without_gitops():
                report("note", f"GitOps does not run on {', '.join(lost)}: provisioned again", 0)
                await self._provision_again(lost, record, workspace, report)
                seen = await self.inspect(60)
            report(*outcome(seen), asyncio.get_running_loop().time() - started)
            return seen

    async def _stop_other_code(self) -> bool:
        """Processes keep the code that they began with, and two versions side by side are nobody's test: all of it
        stops, and comes back with its data as the pipelines ask for it. Not sooner: pods that start before the
        pipelines have renewed their secrets would keep the former ones for minutes. The code is noted only after this,
        so a kill in between loses nothing."""
        record = self.record()
        if record is None or record.code == code():
            return False
        stopped = await self._stop()
        services_file(self.paths).unlink(missing_ok=True)
        return stopped

    async def _provision_again(self, lost: list[str], record: RegionRecord, workspace: Path, report: Report) -> None:
        """A run that succeeded is not done again by itself: here it is, and its bootstrap brings GitOps back."""
        provisioning = Provisioning(self.paths, record, workspace)
        for cluster in lost:
            regional = cluster == "rc"
            pipeline = "provision-regional" if regional else "provision-management"
            await provisioning.by_name(pipeline, "" if regional else cluster, report)

    @contextlib.contextmanager
    def alone(self) -> Any:
        try:
            self.paths.supervisor.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError(
                f"cannot keep data in {self.paths.root}: {error.strerror}", "set REGIONAL_HOME to a directory of yours"
            ) from None
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

    def chosen_kube(self, wanted: str) -> str:
        """A cluster's objects are in a SQLite file or in etcd: there is no way from one to the other."""
        record = self.record()
        if record and wanted and wanted != record.kube:
            raise UserError(
                f"the clusters of region {self.paths.region!r} run on the {record.kube} Kubernetes, not on {wanted}",
                f"`regionctl down --region {self.paths.region} --purge` removes its data; then choose again",
            )
        kube = record.kube if record else wanted or "embedded"
        if kube == "real" and not (record and record.complete):
            require_programs()
        return kube

    def _declare(self, checkout: Path, workspace: Path, commit: str, kube: str) -> RegionRecord:
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
            complete=bool(old and old.complete and old.commit == commit and old.code == code()),
            code=code(),
            kube=kube,
        )
        self._store(record)
        return record

    def _store(self, record: RegionRecord) -> None:
        write_json(self._record_file, record)

    async def start_supervisor(self) -> None:
        if await self.running():
            return
        paths.own_runtime()
        with contextlib.suppress(FileNotFoundError):
            read_json(services_file(self.paths), list[ServiceSpec])  # else a supervisor could not start
        self.paths.service_logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = self.paths.service_logs / "supervisor.log"
        mark = running_mark(self.paths)
        mark.touch()
        os.environ["REGIONAL_GUARDIAN_LOG"] = str(log)
        os.environ["REGIONAL_GUARDIAN_REF"] = str(identity_file(self.paths, "guardian"))
        os.environ["REGIONAL_RUNNING_MARK"] = str(mark)
        guardian.start(self.paths.region)
        try:
            async with asyncio.timeout(_SUPERVISOR_SECONDS):
                while not await self.running():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            said = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
            raise UserError(
                f"the supervisor does not answer after {_SUPERVISOR_SECONDS:.0f} s" + (f": {said[0]}" if said else ""),
                f"`regionctl down` ends what is left of it; its log is {log}",
            ) from None

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
                env={"REGIONAL_CODE": record.code},  # other code is another parent, should one have outlived its region
                address=str(warm_socket),
                ready=f"unix:{warm_socket}",
            ),
        ]

    # -- down ---------------------------------------------------------------------------------------------------

    async def down(self, *, purge: bool = False) -> bool:
        """True if something was stopped. Works also on what a killed supervisor and guardian left behind."""
        if not self.paths.root.exists():
            return False
        if not self.paths.supervisor.exists():
            raise UserError(f"{self.paths.root} is not the data of a region", "look what it is; nothing was done")
        with self.alone():
            stopped = await self._stop()
            if purge:
                self._purge()
            return stopped

    async def _stop(self) -> bool:
        running_mark(self.paths).unlink(missing_ok=True)  # first: nothing may come back from here on
        stopped = False
        if await self.running():
            with contextlib.suppress(SupervisorGone):
                await self.client.shutdown()
                stopped = True
        return await self._stop_leftovers() or stopped

    async def _stop_leftovers(self) -> bool:
        """What an orderly shutdown did not reach. The guardian goes first, or it would start a supervisor anew."""
        found = False
        for who in ("guardian", "supervisor"):
            ref = _recorded(identity_file(self.paths, who))
            if ref is not None:
                with contextlib.suppress(TimeoutError):  # the end of an orderly shutdown: they leave by themselves
                    async with asyncio.timeout(1.0):
                        await ref.wait()
            if ref is not None and ref.alive():
                found = True
                await ref.stop(_LEAVING_SECONDS if who == "supervisor" else 0.5)
        refs = [ref for file in (self.paths.supervisor / "run").glob("*.json") if (ref := _recorded(file))]
        nodes = [ref for file in (self.paths.supervisor / "run").glob("*-node.json") if (ref := _recorded(file))]
        await asyncio.gather(*(ref.stop(3.0) for ref in nodes))
        found |= await pods.stop_all(self.paths)
        await asyncio.gather(*(ref.stop(3.0) for ref in refs))
        return found or bool(refs)

    def _purge(self) -> None:
        Addresses(self.paths).release_all()
        shutil.rmtree(self.paths.root, ignore_errors=True)
        shutil.rmtree(socket_path(self.paths).parent, ignore_errors=True)
        if self.paths.root.exists():
            raise UserError(f"could not remove {self.paths.root}", "look who owns the files there")


def _recorded(file: Path) -> ProcessRef | None:
    try:
        ref = msgspec.json.decode(file.read_bytes(), type=ProcessRef)
    except (OSError, msgspec.DecodeError):
        return None
    return ref if ref.alive() else None


def outcome(seen: Inspection) -> tuple[str, str]:
    """The last line of `up`: event and text."""
    count = len(seen.problems())
    return ("step", "all parts well") if seen.healthy else ("failed", f"parts that are not well: {count}")


@contextlib.asynccontextmanager
async def _step(report: Report, text: str) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    yield
    report("step", text, loop.time() - started)
