from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.provisioner.harness import Ground


def _free_address(port: int) -> str:
    while True:
        address = f"127.{10 + secrets.randbelow(50)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return address


@pytest.fixture(scope="session")
def aws_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One AWS host per test process; tests are kept apart by accounts."""
    directory = tmp_path_factory.mktemp("aws")
    token = directory / "token"
    token.write_text(secrets.token_urlsafe(32))
    address = _free_address(4566)
    command = [
        *(sys.executable, "-m", "regional.cli.main", "serve", "aws", "--address", address, "--port", "4566"),
        *("--journal", str(directory / "journal"), "--lookup-token-file", str(token)),
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{address}:4566/_regional/healthz", timeout=5).close()
                break
            assert process.poll() is None, (directory / "log").read_text()
            time.sleep(0.05)
        yield f"http://{address}:4566"
    finally:
        process.terminate()
        process.wait(120)


@pytest.fixture
async def ground(regional_home: Path, aws_endpoint: str) -> AsyncIterator[Ground]:
    async with running_ground(aws_endpoint) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_ground(aws_endpoint: str) -> AsyncIterator[Ground]:
    """One ground for all tests of a module, which leave it usable for each other."""
    home = Path(tempfile.mkdtemp(prefix="regional-test-"))
    home.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGIONAL_HOME", str(home))
        async with running_ground(aws_endpoint) as made:
            yield made
    shutil.rmtree(home, ignore_errors=True)


@contextlib.asynccontextmanager
async def running_ground(endpoint: str) -> AsyncIterator[Ground]:
    made = Ground(endpoint)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
