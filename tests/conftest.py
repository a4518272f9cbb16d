"""Every test has data directories of its own; addresses come from the user's address book, so that nothing collides."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def regional_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that PostgreSQL's unprivileged user can reach (pytest's own tmp_path is private)."""
    directory = Path(tempfile.mkdtemp(prefix="regional-test-"))
    directory.chmod(0o711)
    monkeypatch.setenv("REGIONAL_HOME", str(directory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
