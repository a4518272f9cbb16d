"""Pods reach their API through its Service, or directly where the Service's port is closed to us."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from regional.kube.node.api_door import api_for_pods, may_listen


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "node.kubeconfig"
    cluster = {"name": "rc", "cluster": {"server": "https://127.64.8.1:6443"}}
    file.write_text(yaml.safe_dump({"clusters": [cluster]}))
    return str(file)


def service(port: int) -> dict[str, object]:
    return {"spec": {"clusterIP": "127.64.9.1", "ports": [{"name": "https", "port": port}]}}


def test_a_service_that_can_be_listened_on_is_used(kubeconfig: str) -> None:
    assert api_for_pods(service(6443), kubeconfig, lambda port: port >= 1024) == ("127.64.9.1", 6443)
    assert api_for_pods(service(443), kubeconfig, lambda port: True) == ("127.64.9.1", 443)


def test_a_port_that_takes_root_is_gone_around(kubeconfig: str) -> None:
    assert api_for_pods(service(443), kubeconfig, lambda port: port >= 1024) == ("127.64.8.1", 6443)


def test_high_ports_are_open_to_everybody() -> None:
    assert may_listen(6443)
