"""Kubernetes' own programs: in KUBEBUILDER_ASSETS if that is set, else where `make kube` puts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.core.problems import UserError
from regional.kube.real.flags import ControlPlane, processes
from regional.kube.real.programs import Programs, find_programs, require_programs


def assets(directory: Path, *names: str) -> dict[str, str]:
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return {"KUBEBUILDER_ASSETS": str(directory)}


def test_nothing_built_is_nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_programs({}) is None
    with pytest.raises(UserError, match="not on this machine") as caught:
        require_programs({})
    assert "make kube" in caught.value.hint


def test_assets_serve_with_or_without_controllers(tmp_path: Path) -> None:
    found = find_programs(assets(tmp_path, "etcd", "kube-apiserver"))
    assert found == Programs(etcd=str(tmp_path / "etcd"), apiserver=str(tmp_path / "kube-apiserver"))
    assert not found.has_controllers
    complete = find_programs(assets(tmp_path, "kube-controller-manager", "kube-scheduler"))
    assert complete is not None and complete.has_controllers


def test_assets_that_lack_the_api_server_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no program kube-apiserver in it"):
        find_programs(assets(tmp_path, "etcd"))


def test_programs_of_their_own_are_processes_of_their_own(tmp_path: Path) -> None:
    plane = ControlPlane(name="rc", directory=tmp_path, address="127.0.0.9", without=("endpoints-controller",))
    programs = Programs(etcd="etcd", apiserver="api", controller_manager="manager", scheduler="scheduler")
    run = processes(plane, programs)
    assert [(p.name, p.argv[0], p.needs) for p in run] == [
        ("etcd", "etcd", ()),
        ("api", "api", ("etcd",)),
        ("controllers", "manager", ("api",)),
        ("scheduler", "scheduler", ("api",)),
    ]
    assert "--controllers=*,-endpoints-controller" in run[2].argv
    assert "--unsafe-no-fsync" not in run[0].argv


def test_one_program_is_one_process(tmp_path: Path) -> None:
    plane = ControlPlane(name="rc", directory=tmp_path, address="127.0.0.9", fsync=False)
    (only,) = processes(plane, Programs(one="kube"))
    parts = " ".join(only.argv).split(" -- ")
    assert [part.split()[0] for part in parts[1:]] == [
        "kube-apiserver",
        "wait",
        "kube-controller-manager",
        "kube-scheduler",
    ]
    assert parts[0].startswith("kube all etcd ") and parts[0].endswith(" --no-fsync")
