"""`make kube` with a Go toolchain that fails in the ways machines fail, and one that succeeds: built once, whole, or
not at all, and the reason said in one line."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from regional.core.problems import UserError
from regional.kube.real.build import GoProgram, build, control_plane
from regional.kube.real.toolchain import go_version


class FakeGo:
    """A shell script in the toolchain's place; `calls` counts how often it was asked to build."""

    def __init__(self, tools: Path) -> None:
        self.program = tools / f"go-{go_version()}" / "go" / "bin" / "go"
        self.program.parent.mkdir(parents=True)
        self._calls = tools / "calls"

    def does(self, script: str) -> None:
        self.program.write_text(f"#!/bin/sh\necho called >>{self._calls}\n{script}\n")
        self.program.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines()) if self._calls.exists() else 0


BUILDS = """
while [ "$1" != -o ]; do shift; done
echo "go: downloading example.com/one v1.0.0" >&2
echo example.com/one >&2
printf program >"$2"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    monkeypatch.setenv("REGIONAL_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return FakeGo(tmp_path / "tools")


@pytest.fixture
def program(tmp_path: Path) -> GoProgram:
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "go.mod").write_text("module example\n")
    (directory / "main.go").write_text("package main\n")
    return GoProgram("example", directory)


def quiet(_text: str) -> None:
    pass


def left_over(program: GoProgram) -> list[str]:
    return sorted(path.name for path in program.built().parent.iterdir() if path.name != ".lock")


def test_a_program_is_built_once(go: FakeGo, program: GoProgram) -> None:
    go.does(BUILDS)
    told: list[str] = []
    target = build(program, told.append)
    assert target.read_text() == "program" and left_over(program) == ["example"]
    assert any("ten minutes" in line for line in told)
    assert build(program, quiet) == target and go.calls == 1


def test_two_who_build_at_once_build_once(go: FakeGo, program: GoProgram) -> None:
    go.does("sleep 0.5\n" + BUILDS)
    threads = [threading.Thread(target=build, args=(program, quiet)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert go.calls == 1 and left_over(program) == ["example"]


def test_another_source_is_another_program(program: GoProgram) -> None:
    before = program.built()
    (program.directory / "main.go").write_text("package main // changed\n")
    assert program.built() != before
    assert program.built().parent.parent == before.parent.parent


def test_tests_beside_the_source_do_not_count(program: GoProgram) -> None:
    before = program.built()
    (program.directory / "main_test.go").write_text("package main\n")
    (program.directory / "notes.md").write_text("notes\n")
    assert program.built() == before


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'write /x: no space left on device' >&2; exit 1", "no disk space is left"),
        ("echo 'link: signal: killed' >&2; exit 1", "not enough memory"),
        ("kill -9 $$", "not enough memory"),
        ("echo 'dial tcp: lookup proxy: no such host' >&2; exit 1", "could not be downloaded"),
        ("echo 'verifying m@v1: checksum mismatch' >&2; exit 1", "not the one that go.sum names"),
        ("echo './main.go:3:1: syntax error' >&2; exit 1", "main.go:3:1: syntax error"),
        ("exit 3", "go ended with 3"),
    ],
)
def test_a_failure_has_a_reason_and_leaves_nothing(go: FakeGo, program: GoProgram, script: str, reason: str) -> None:
    go.does(script)
    with pytest.raises(UserError, match=reason) as caught:
        build(program, quiet)
    assert caught.value.hint and "\n" not in caught.value.message
    assert left_over(program) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_named(
    program: GoProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed))
    with pytest.raises(UserError, match="cannot keep example"):
        build(program, quiet)


def test_the_control_plane_says_its_version() -> None:
    variables = control_plane().variables
    assert any(v.startswith("k8s.io/component-base/version.gitVersion=v1.") for v in variables)
