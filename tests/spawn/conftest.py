from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regional.core.process import ProcessRef
from regional.core.spawn import SpawnRequest, spawn_sync


class Warm:
    """A warm parent of our own, and a list of what it was asked for, so that nothing is left behind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "warm.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self._born: list[ProcessRef] = []

    def start(self) -> None:
        command = [
            sys.executable,
            "-c",
            "import sys; from regional.core.spawn import main; sys.exit(main(sys.argv[1:]))",
        ]
        with (self.directory / "warm.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--socket", str(self.socket), "--entry", "entry:main", "--modules", "regional.core.loop"],
                env={"PYTHONPATH": str(Path(__file__).parent), "PATH": os.defpath, "WARM_PARENTS_OWN": "secret"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                spawn_sync(self.socket, SpawnRequest(["/bin/true"], {}))
                return
            assert self.process.poll() is None, (self.directory / "warm.log").read_text()
            assert time.monotonic() < deadline, "the warm parent did not come up"
            time.sleep(0.02)

    def spawn(self, *argv: str, **options: str) -> ProcessRef:
        env = {"PATH": os.defpath, "GIVEN": "yes"}
        process = spawn_sync(self.socket, SpawnRequest(list(argv), env, **options))
        self._born.append(process)
        return process

    def role(self, *argv: str, **options: str) -> ProcessRef:
        return self.spawn("regionctl", *argv, **options)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for process in self._born:
            process.signal(9)
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


@pytest.fixture
def warm() -> Iterator[Warm]:
    directory = Path(tempfile.mkdtemp(prefix="warm-"))  # short: a socket's path may have 107 bytes
    parent = Warm(directory)
    try:
        parent.start()
        yield parent
    finally:
        parent.close()
        shutil.rmtree(directory, ignore_errors=True)
