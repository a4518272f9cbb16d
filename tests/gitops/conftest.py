from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.local.tools import ensure_kubectl_and_helm
from tests.gitops.harness import GitOpsCluster, GitRepository


@pytest.fixture(scope="session")
def helm() -> str:
    return str(ensure_kubectl_and_helm() / "helm")


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository(tmp_path / "work")


@pytest.fixture(autouse=True)
def _no_git_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commits must not depend on who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
async def bare(tmp_path: Path, helm: str) -> AsyncIterator[GitOpsCluster]:
    """A fresh cluster: nothing of Argo CD on it."""
    made = GitOpsCluster(tmp_path, helm)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def cluster(bare: GitOpsCluster) -> GitOpsCluster:
    """A cluster that has been bootstrapped: CRDs, the default project, GitOps running."""
    await bare.install_definitions()
    await bare.follow()
    return bare
