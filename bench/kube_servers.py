"""The two servers under the bench: ours as a fork of a warm parent, and the real one if its binary is at hand.

Both get certificates of the same kind, TLS, fsync, an empty data directory on the same disk, and no controllers: the
API with its storage is what is compared.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kube_client import Connection, Endpoint, request
from regional.core import pki
from regional.core.paths import RegionPaths
from regional.core.process import ProcessRef, proportional_memory
from regional.core.spawn import SpawnRequest, spawn_sync
from regional.kube.real.build import control_plane
from regional.kube.real.flags import ControlPlane, processes
from regional.kube.real.programs import Programs
from regional.local.addresses import API_PORT, Addresses
from regional.local.provisioner.cluster_directory import ClusterDirectory

READY = request("GET", "/readyz")
PATIENCE = 60.0


@dataclass
class Server:
    name: str
    endpoint: Endpoint
    process: ProcessRef
    started_in: float = 0.0  # seconds from the order to the first 200 of /readyz
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def cpu(self) -> float:
        """Seconds of CPU so far, of all its threads."""
        total = 0
        for thread in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(thread.read_text().split()[0])
        return total / 1e9

    def memory(self) -> tuple[float, float]:
        """(private, proportional) MB."""
        private = 0
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                private += int(line.split()[1]) * 1024
        return private / 1e6, proportional_memory(self.process.pid) / 1e6

    def stop(self) -> None:
        self.process.signal(signal.SIGTERM)
        until(lambda: not self.process.alive(), f"{self.name} to leave", children=self.children)


class Machine:
    """A directory with addresses of its own, and the warm parent that our servers are forked from."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.region = RegionPaths("bench", home)
        self.region.root.mkdir(parents=True)
        self.addresses = Addresses(self.region)
        self.socket = home / "warm.sock"
        self._started: list[ProcessRef] = []

    @contextlib.contextmanager
    def warm(self) -> Iterator[None]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(Path(__file__).parent)}
        start = "import sys; from regional.core.spawn import main; sys.exit(main(sys.argv[1:]))"
        flags = ["--socket", str(self.socket), "--entry", "kube_pod_role:main"]
        with (self.home / "warm.log").open("ab") as log:
            parent = subprocess.Popen([sys.executable, "-c", start, *flags], env=environment, stdout=log, stderr=log)
        try:
            until(self._forks, "the warm parent")
            yield
        finally:
            for process in self._started:  # whatever a run that failed has left
                process.signal(signal.SIGKILL)
            parent.terminate()
            parent.wait()
            self.addresses.release_all()

    def _forks(self) -> bool:
        with contextlib.suppress(OSError):
            spawn_sync(self.socket, SpawnRequest(["/bin/true"], {}))
            return True
        return False

    def fork(self, name: str, *argv: str) -> ProcessRef:
        log = str(self.home / f"{name}.log")
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        process = spawn_sync(self.socket, SpawnRequest(["regionctl", *argv], environment, log=log, title=name))
        self._started.append(process)
        return process

    def directory(self, name: str) -> ClusterDirectory:
        """Certificates for a cluster, and the administrator's as files."""
        found = ClusterDirectory(self.region.cluster(name), name, self.addresses.block(name))
        found.ensure()
        authority = pki.KeyPair(
            (found.certificates / "ca.crt").read_text(), (found.certificates / "ca.key").read_text()
        )
        admin = pki.issue(authority, "admin", organizations=["system:masters"])
        (found.certificates / "admin.crt").write_text(admin.certificate)
        (found.certificates / "admin.key").write_text(admin.key)
        return found

    # -- the two -----------------------------------------------------------------------------------------------------

    def ours(self, name: str = "ours", *flags: str) -> Server:
        directory = self.directory(name)
        block, data = directory.block, str(directory.data)
        place = ["--address", block.api, "--port", str(API_PORT), "--service-cidr", block.service_cidr]
        argv = ["serve", "kube-api", "--cluster", name, "--data", data, "--pki", str(directory.certificates), *place]
        endpoint = Endpoint(block.api, API_PORT, directory.certificates)
        began = time.perf_counter()
        server = Server(name, endpoint, self.fork(name, *argv, *(flags or ("--controllers", "none"))))
        server.started_in = _ready(server, began)
        return server

    def real(self, binary: Path, name: str = "real") -> Server:
        directory = self.directory(name)
        endpoint = Endpoint(directory.block.api, API_PORT, directory.certificates)
        command = _real_command(binary, directory)
        # A session of its own, as our forks have: the kernel may share the CPU out by sessions.
        environment = {"GOGC": "50", "HOME": str(self.home)}
        began = time.perf_counter()
        with (self.home / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        process = ProcessRef.of(child.pid)
        assert process is not None
        self._started.append(process)
        server = Server(name, endpoint, process, children=[child])
        server.started_in = _ready(server, began)
        return server


def find_real() -> Path | None:
    """The real Kubernetes in one binary, where `make kube` puts it; None if nobody has built it."""
    built = control_plane().built()
    return built if built.exists() else None


def _real_command(binary: Path, directory: ClusterDirectory) -> list[str]:
    plane = ControlPlane(
        name=directory.name,
        directory=directory.directory,
        address=directory.block.api,
        service_cidr=directory.block.service_cidr,
        controllers=False,
    )
    plane.ensure_keys()
    return processes(plane, Programs(one=str(binary)))[0].argv


def _ready(server: Server, began: float) -> float:
    def look() -> bool:
        with contextlib.suppress(OSError):
            connection = Connection(server.endpoint)
            try:
                return connection.ask(READY)[0] == 200
            finally:
                connection.close()
        return False

    until(look, f"{server.name} to be ready", pause=0.002)
    return time.perf_counter() - began


def until(
    look: Callable[[], bool], what: str, pause: float = 0.02, children: Sequence[subprocess.Popen[bytes]] = ()
) -> None:
    deadline = time.monotonic() + PATIENCE
    while not look():
        for each in children:
            each.poll()
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(pause)
