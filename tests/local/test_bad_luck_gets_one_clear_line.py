"""What can be wrong with a machine or its state: each gets a line that says what to do, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from regional.core.paths import RegionPaths, checkout
from regional.core.problems import UserError
from regional.local.addresses import Addresses
from regional.local.machine import examine
from regional.local.provisioning import RegionRecord
from regional.local.region import STATE_VERSION, Region
from regional.local.supervisor_client import ServiceSpec

RECORD = RegionRecord(STATE_VERSION, "local", "local", "us-west-2", "/nowhere", "0" * 40, ["mc01"])


def regionctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regional.cli.main", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def keep(record: RegionRecord) -> Path:
    file = RegionPaths("local").supervisor / "region.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode(record))
    return file


async def test_an_address_that_somebody_took_is_named_with_its_holder(regional_home: Path) -> None:
    region = Region("taken")
    region.paths.root.mkdir(parents=True)
    host = Addresses(region.paths).block("region").infra(9)
    spec = ServiceSpec(
        "x", "a listener", "exec", ["/bin/sleep", "60"], address=f"{host}:5000", ready=f"tcp:{host}:5000"
    )
    with socket.create_server((host, 5000)):
        await region.start_supervisor()
        try:
            with pytest.raises(UserError, match=rf"{host}:5000 is taken by pid {os.getpid()}"):
                await region.client.ensure(spec, 30)
        finally:
            await region.down()
            region.purge()


def test_state_of_another_version_is_left_alone(regional_home: Path) -> None:
    file = keep(msgspec.structs.replace(RECORD, version=STATE_VERSION + 1))
    before = file.read_bytes()
    refused = regionctl("up", "--worktree")
    assert refused.returncode == 1
    assert f"is of version {STATE_VERSION + 1}" in refused.stderr and "down --purge" in refused.stderr
    assert file.read_bytes() == before


def test_another_checkouts_region_is_not_taken_over(regional_home: Path, tmp_path: Path) -> None:
    keep(msgspec.structs.replace(RECORD, checkout=str(tmp_path)))
    refused = regionctl("up", "--worktree")
    assert refused.returncode == 1
    assert f"belongs to the checkout {tmp_path}" in refused.stderr and "REGIONAL_HOME" in refused.stderr


def test_a_region_that_is_not_declared(regional_home: Path) -> None:
    refused = regionctl("up", "atlantis", "--worktree")
    assert refused.returncode == 1
    assert "no rendered files for region 'atlantis'" in refused.stderr and "config.yaml" in refused.stderr


def test_no_mosquitto_and_no_way_to_get_it(regional_home: Path, tmp_path: Path) -> None:
    if shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists():
        pytest.skip("this machine has Mosquitto installed")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").symlink_to(shutil.which("git") or "/usr/bin/git")
    result = regionctl("doctor", PATH=str(programs), REGIONAL_TOOLS=str(tmp_path / "tools"))
    assert result.returncode == 1
    line = next(line for line in result.stdout.splitlines() if "Mosquitto" in line and line.startswith("MISSING"))
    assert "apt-get install mosquitto" in line


@pytest.mark.parametrize("version", ["3.9", "none"])
def test_a_python_that_is_too_old(tmp_path: Path, version: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "cat", "sha256sum", "cut", "printf"):
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    if version != "none":
        old = programs / "python3"
        old.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}" && exit 0\nexit 1\n')
        old.chmod(0o755)
    result = subprocess.run(
        ["sh", str(checkout() / "scripts" / "setup")],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "Python 3.11 or newer is needed" in result.stderr and "apt-get install python3" in result.stderr


def test_the_doctor_finds_this_machine_well() -> None:
    assert [f for f in examine() if not f.ok and not f.optional] == []


def test_commands_on_a_region_that_does_not_run(regional_home: Path) -> None:
    for command in (["status"], ["kubeconfig", "rc"], ["logs"], ["pipeline", "run", "provision-regional"]):
        answer = regionctl(*command)
        assert answer.returncode != 0
        assert "regionctl up" in answer.stderr and "Traceback" not in answer.stderr
    assert regionctl("down").returncode == 0
