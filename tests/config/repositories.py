"""A checkout in a Git repository of its own, for tests that need history."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
_AUTHOR = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]

TEXT = """\
sectors:
  - name: staging
  - name: production
    require_values_revision: true
region_deployments:
  - name: eu
    aws_region: eu-west-1
    sector: staging
    account_id: "111111111111"
    management_clusters:
      - {cluster_id: mc01, account_id: "222222222222"}
"""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *_AUTHOR, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, message: str = "a change") -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def make(folder: Path, text: str = TEXT) -> Path:
    """config.yaml and charts in a repository, nothing rendered and nothing committed."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "--initial-branch=main")
    shutil.copytree(GOLDEN / "argocd", folder / "argocd")
    (folder / "config.yaml").write_text(text)
    return folder


def pinned(text: str, field: str, **commits: str) -> str:
    """Adds pins to the only region: `regional="…"` pins the regional-cluster."""
    lines = "".join(f"      {kind}-cluster: '{value}'\n" for kind, value in commits.items())
    return f"{text}    {field}:\n{lines}"
