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
            await region.down(purge=True)


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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version":1}', '{"version":"x"}'])
def test_a_damaged_record_is_named_and_left_alone(regional_home: Path, content: str) -> None:
    file = keep(RECORD)
    file.write_text(content)
    for command in (("up", "--worktree"), ("status",)):
        refused = regionctl(*command)
        assert refused.returncode == 1
        assert f"error: {file} is damaged" in refused.stderr and "Traceback" not in refused.stderr
    assert file.read_text() == content


async def test_a_damaged_list_of_services_is_named_and_nothing_is_started(regional_home: Path) -> None:
    region = Region("damaged")
    region.paths.supervisor.mkdir(parents=True)
    (region.paths.supervisor / "services.json").write_text("[{")
    with pytest.raises(UserError, match=r"services\.json is damaged"):
        await region.start_supervisor()
    assert not await region.running()


def test_damaged_addresses_are_named(regional_home: Path) -> None:
    keep(RECORD)
    (RegionPaths("local").root / "addresses.json").write_text("{")
    refused = regionctl("env")
    assert refused.returncode == 1 and "addresses.json is damaged" in refused.stderr


@pytest.mark.parametrize("name", ["../precious", "", "/etc", "A B", "a/../b", "-a", "x" * 64])
def test_a_name_that_leads_elsewhere_is_refused(regional_home: Path, name: str) -> None:
    precious = regional_home / "precious" / "supervisor"
    precious.mkdir(parents=True)
    refused = regionctl("down", "--region", name, "--purge", "--yes")
    assert refused.returncode == 1 and "is not a name of a region" in refused.stderr
    assert precious.exists()


def test_purge_asks_a_person_or_wants_yes(regional_home: Path) -> None:
    file = keep(RECORD)
    refused = regionctl("down", "--purge")
    assert refused.returncode == 1 and "--yes" in refused.stderr
    assert file.exists()
    assert regionctl("down", "--purge", "--yes").returncode == 0
    assert not file.exists()


def test_purge_touches_nothing_that_is_not_a_region(regional_home: Path) -> None:
    stranger = regional_home / "regions" / "local" / "thesis.txt"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("years of work")
    refused = regionctl("down", "--purge", "--yes")
    assert refused.returncode == 1 and "is not the data of a region" in refused.stderr
    assert stranger.exists()


def test_a_home_that_cannot_be_made_is_named(regional_home: Path) -> None:
    file = regional_home / "file"
    file.touch()
    refused = regionctl("up", REGIONAL_HOME=str(file / "home"))
    assert refused.returncode == 1 and "REGIONAL_HOME" in refused.stderr and "Traceback" not in refused.stderr


def test_a_runtime_directory_that_others_may_write_to_is_refused(regional_home: Path) -> None:
    keep(RECORD)
    shared = regional_home / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    refused = regionctl("env", REGIONAL_RUNTIME=str(shared))
    assert refused.returncode == 1 and f"others may write to {shared}" in refused.stderr


def test_pipelines_of_a_stopped_region_say_so_at_once(regional_home: Path) -> None:
    keep(RECORD)
    refused = regionctl("pipeline", "run", "provision-regional")
    assert refused.returncode == 1 and "region local is not running" in refused.stderr


def test_a_shells_region_is_the_one_that_comes_up(regional_home: Path) -> None:
    refused = regionctl("up", REGIONAL_REGION="nowhere")
    assert refused.returncode == 1 and "no rendered files for region 'nowhere'" in refused.stderr
    assert not RegionPaths("nowhere").root.exists()


def test_a_region_that_does_not_run_cannot_be_synced(regional_home: Path) -> None:
    keep(RECORD)
    ran = regionctl("sync")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "error: region local does not run\nhint: start it with `regionctl up`\n"
