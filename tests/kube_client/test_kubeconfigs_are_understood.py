"""A kubeconfig says where and as whom; what it cannot say is refused in words, not in a 401 later."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional.core.problems import UserError
from regional.kube.client import TokenFile
from regional.kube.client.config import kubeconfig_transport, pod_namespace


def write(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_server_keeps_its_path_prefix(tmp_path: Path) -> None:
    config = write(tmp_path / "k", {"server": "http://127.0.0.1:1/c/mc01/"}, {"token": "t"})
    assert kubeconfig_transport(config).server == "http://127.0.0.1:1/c/mc01"


@pytest.mark.parametrize(
    ("cluster", "user", "word"),
    [
        ({}, {}, "names no server"),
        ({"server": "https://x"}, {"exec": {"command": "aws"}}, "users.exec is not supported"),
        ({"server": "https://x", "certificate-authority": "absent.crt"}, {}, "absent.crt"),
        ({"server": "https://x", "certificate-authority-data": "%%%"}, {}, "not base64"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        kubeconfig_transport(write(tmp_path / "k", cluster, user))


def test_a_missing_file_and_a_missing_context_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read kubeconfig"):
        kubeconfig_transport(tmp_path / "none")
    config = write(tmp_path / "k", {"server": "https://x"}, {})
    with pytest.raises(UserError, match="no entry 'other' in contexts"):
        kubeconfig_transport(config, "other")


def test_inline_and_file_authorities_are_the_same(tmp_path: Path, authority: bytes) -> None:
    (tmp_path / "ca.crt").write_bytes(authority)
    inline = {"server": "https://x", "certificate-authority-data": base64.b64encode(authority).decode()}
    kubeconfig_transport(write(tmp_path / "inline", inline, {}))
    kubeconfig_transport(write(tmp_path / "file", {"server": "https://x", "certificate-authority": "ca.crt"}, {}))


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    token = TokenFile(path)
    assert token() == "first"
    (tmp_path / "next").write_text("second")
    (tmp_path / "next").replace(path)
    assert token() == "second"
    path.unlink()
    assert token() == "second"


def test_a_pod_knows_its_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pod_namespace() == "default"
    directory = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    directory.mkdir(parents=True)
    (directory / "namespace").write_text("maestro-server")
    monkeypatch.setenv("POD_ROOT", str(tmp_path))
    assert pod_namespace() == "maestro-server"
