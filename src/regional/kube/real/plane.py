"""A real control plane for as long as it is needed: what tests and benchmarks compare the embedded API with.

    async with RealControlPlane(directory) as plane:
        client = Client.from_kubeconfig(plane.kubeconfig)

It has an address of its own in 127.0.0.0/8, so that any number run side by side. Its processes die with the one that
started them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import signal
import socket
import ssl
import subprocess
from pathlib import Path
from types import TracebackType

import aiohttp

from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.kube.real.flags import ETCD_PORT, ControlPlane, Process, processes
from regional.kube.real.programs import Programs, require_programs

READY_SECONDS = 120.0
_API_PORT = 6443
_PR_SET_PDEATHSIG = 1


class RealControlPlane:
    """`directory` keeps keys and data: the same directory again is the same cluster again.

    `controllers` starts kube-controller-manager and kube-scheduler too (if the programs at hand have them).
    Without `fsync` it is quicker, and an outage of the machine may lose what it acknowledged: for tests.
    """

    def __init__(
        self,
        directory: Path,
        *,
        address: str = "",
        programs: Programs | None = None,
        controllers: bool = True,
        without: tuple[str, ...] = (),
        fsync: bool = False,
        extra_api_flags: tuple[str, ...] = (),
    ) -> None:
        self._programs = programs or require_programs()
        self.plane = ControlPlane(
            name=directory.name or "real",
            directory=directory,
            address=address or free_address(),
            controllers=controllers,
            without=without,
            fsync=fsync,
            extra_api_flags=extra_api_flags,
        )
        self._running: list[tuple[Process, subprocess.Popen[bytes]]] = []

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.plane.admin_kubeconfig

    @property
    def endpoint(self) -> str:
        return self.plane.endpoint

    @property
    def pki(self) -> Path:
        """ca.crt, ca.key (to issue further clients with) and the rest."""
        return self.plane.pki

    @property
    def pids(self) -> list[int]:
        return [child.pid for _, child in self._running]

    def log(self, name: str = "api") -> Path:
        return self.plane.directory / f"{name}.log"

    async def __aenter__(self) -> RealControlPlane:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Returns when /readyz answers 200. Raises UserError with the log's last lines if it does not come up."""
        await asyncio.to_thread(self.plane.ensure_keys)
        for process in processes(self.plane, self._programs):
            child = self._launch(process)
            self._running.append((process, child))
            await self._ready(process, child)

    def kill(self) -> None:
        """SIGKILL, as a crash; `start` again afterwards finds what was acknowledged."""
        for _, child in self._running:
            child.kill()
            child.wait()
        self._running.clear()

    async def stop(self) -> None:
        """Ends them, the last one first."""
        for _, child in reversed(self._running):
            ref = ProcessRef.of(child.pid)
            if ref is not None and child.poll() is None:
                await ref.stop(10.0)
            await asyncio.to_thread(child.wait)
        self._running.clear()

    def _launch(self, process: Process) -> subprocess.Popen[bytes]:
        with self.log(process.name).open("ab") as output:
            return subprocess.Popen(
                process.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=process.env,
                cwd=self.plane.directory,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    async def _ready(self, process: Process, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                while child.poll() is None:
                    if await self._answers(process):
                        return
                    await asyncio.sleep(0.05)
        lines = self.log(process.name).read_text(errors="replace").splitlines()[-5:]
        fate = "ended" if child.poll() is not None else f"was not ready after {READY_SECONDS:.0f} s"
        raise UserError(f"{process.name} of {self.plane.name} {fate}", "\n".join(lines))

    async def _answers(self, process: Process) -> bool:
        if not process.ready:
            return True
        try:
            if process.ready.startswith("tcp:"):
                host, _, port = process.ready.removeprefix("tcp:").rpartition(":")
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                return True
            context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
                async with session.get(process.ready, ssl=context) as answer:
                    return answer.status == 200
        except (OSError, TimeoutError, aiohttp.ClientError):
            return False


def free_address() -> str:
    """Of the half of 127.0.0.0/8 that regions do not use, one where nobody listens on the two ports."""
    while True:
        address = f"127.{random.randrange(130, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        if all(_is_free(address, port) for port in (_API_PORT, ETCD_PORT, ETCD_PORT + 1)):
            return address


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
