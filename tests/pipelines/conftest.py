"""A real warm parent, shared by the tests of one worker; every test has a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from regional.pipelines.catalog import Catalog, load_catalog
from regional.pipelines.runner import PipelineRunner

_WARM = "import sys; from regional.core.warm import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="session")
def spawner() -> Iterator[Path]:
    with TemporaryDirectory(prefix="warm-") as directory:
        socket = Path(directory) / "warm.sock"
        flags = ["--socket", str(socket), "--modules", "json", "--entry", "regional.cli.main:main"]
        with (Path(directory) / "log").open("wb") as log:
            process = subprocess.Popen([sys.executable, "-c", _WARM, *flags], stdout=log, stderr=log)
        while not socket.exists():
            assert process.poll() is None, (Path(directory) / "log").read_text()
            time.sleep(0.01)
        yield socket
        process.terminate()
        process.wait(120)


@pytest.fixture
def runner(tmp_path: Path, spawner: Path) -> PipelineRunner:
    return PipelineRunner(tmp_path / "runs", spawner, {"PATH": os.environ["PATH"], "OUT": str(tmp_path)})


Write = Callable[..., Catalog]


@pytest.fixture
def catalog_of(tmp_path: Path) -> Write:
    def write(*documents: dict[str, object]) -> Catalog:
        file = tmp_path / "pipelines.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return load_catalog([file])

    return write


def task(
    name: str, script: str, *, results: tuple[str, ...] = (), params: tuple[str, ...] = (), **spec: object
) -> dict[str, object]:
    """A Task whose only step runs a shell line; parameters without a default are single values."""
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "Task",
        "metadata": {"name": name},
        "spec": {
            "params": [{"name": param} for param in params],
            "results": [{"name": result} for result in results],
            "steps": [{"name": "run", "image": "regional/regional:0.1.0", "command": ["sh", "-c"], "args": [script]}],
            **spec,
        },
    }


def pipeline(name: str, *tasks: dict[str, object], **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "Pipeline",
        "metadata": {"name": name},
        "spec": {"tasks": list(tasks), **spec},
    }


def use(name: str, of: str, **more: object) -> dict[str, object]:
    return {"name": name, "taskRef": {"name": of}, **more}


def given(**values: object) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in values.items()]
