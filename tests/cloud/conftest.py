"""A real AWS host process for each test, on an address of its own, that a test may kill and start again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from regional.cloud.aws import Aws, Credentials

TOKEN = "0123456789abcdef0123456789abcdef"
_PROGRAM = "import sys; from regional.cloud.host.main import main; sys.exit(main(sys.argv[1:]))"


class Host:
    def __init__(self, directory: Path) -> None:
        self.journal = directory / "aws"
        self.log = directory / "aws.log"
        self._token_file = directory / "token"
        self._token_file.write_text(TOKEN)
        self._address = f"127.{200 + os.getpid() // 65536 % 50}.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
        with socket.socket() as probe:
            probe.bind((self._address, 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://{self._address}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._doors: list[Aws] = []

    def start(self) -> None:
        flags = [
            *("--address", self._address, "--port", str(self._port)),
            *("--journal", str(self.journal), "--lookup-token-file", str(self._token_file)),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *flags], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(self.log.read_text())
            try:
                urllib.request.urlopen(f"{self.url}/_regional/healthz").close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("the host did not come up: " + self.log.read_text())

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def central(self) -> Aws:
        door = Aws(region="us-west-2", endpoint=self.url, credentials=Credentials("AKIACENTRAL", "central"), environ={})
        self._doors.append(door)
        return door

    def stop(self) -> None:
        for door in self._doors:
            door.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(120)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    host.start()
    yield host
    host.stop()
