"""Rendering again does only what changed, and always comes to what a first rendering would."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from regional.config import exchange, memory
from regional.config.commands import config
from regional.config.load import load
from regional.config.render import render
from regional.core.problems import UserError
from tests.config.repositories import GOLDEN

TEXT = (GOLDEN / "config.yaml").read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "argocd").symlink_to(GOLDEN / "argocd")
    (folder / "config.yaml").write_text(TEXT)
    again(folder)
    return folder


def again(folder: Path) -> list[str]:
    """Renders; returns the paths that changed."""
    command = ["--checkout", str(folder), "render", "--no-git"]
    result = CliRunner().invoke(config, command, standalone_mode=False)
    if result.exception:
        raise result.exception
    return [line.split()[1] for line in result.stdout.splitlines()[:-1]]


def edit(folder: Path, before: str, after: str) -> None:
    text = (folder / "config.yaml").read_text()
    assert before in text
    (folder / "config.yaml").write_text(text.replace(before, after))


def is_as_if_new(folder: Path) -> bool:
    files = {path.relative_to(folder / "deploy").as_posix(): path for path in (folder / "deploy").rglob("*")}
    found = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
    return found == render(load(folder / "config.yaml"))


def inodes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


def test_a_changed_region_is_the_only_one_touched(checkout: Path) -> None:
    others = inodes(checkout / "deploy/integration")
    edit(checkout, "limit: 3", "limit: 4")
    changed = again(checkout)
    assert set(changed) == {
        "deploy/production/us-east-1-2/argocd/regional-cluster-values.yaml",
        "deploy/production/us-east-1-2/effective-config.yaml",
    }
    assert inodes(checkout / "deploy/integration") == others
    assert is_as_if_new(checkout)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("owner: platform", "owner: others"),  # defaults
        ("tags: {phase: prod}", "tags: {phase: live}"),  # a sector
        ('- cluster_id: "mc02"', '- {cluster_id: mc03, account_id: "444444444444"}\n      - cluster_id: "mc02"'),
        ("management_clusters:\n", "# a comment\n    management_clusters:\n"),
        ('account_id: "333333333333"\n', 'account_id: "333333333334"\n'),  # the last line of the file
    ],
)
def test_every_change_comes_to_what_a_first_rendering_would(checkout: Path, before: str, after: str) -> None:
    edit(checkout, before, after)
    again(checkout)
    assert is_as_if_new(checkout)
    assert again(checkout) == []


def test_what_was_edited_or_removed_by_hand_is_put_right(checkout: Path) -> None:
    target = checkout / "deploy/production/us-east-1-2/argocd/regional-cluster-values.yaml"
    target.write_text(target.read_text().replace("limit: 3", "limit: 9"))
    (checkout / "deploy/integration/us-east-1/terraform/regional.json").unlink()
    assert len(again(checkout)) == 2
    assert is_as_if_new(checkout)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x92\xa1x\x80"])
def test_a_lost_or_broken_cache_costs_time_only(checkout: Path, content: bytes) -> None:
    (shelf,) = memory.folder().glob("*.msgpack")
    shelf.write_bytes(content)
    assert again(checkout) == []
    edit(checkout, "limit: 3", "limit: 4")
    again(checkout)
    assert is_as_if_new(checkout)


def test_a_cache_that_cannot_be_written_is_no_fault(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout / "config.yaml"))
    edit(checkout, "limit: 3", "limit: 4")
    again(checkout)
    assert is_as_if_new(checkout)


def test_faults_between_regions_are_found_among_remembered_ones(checkout: Path) -> None:
    edit(checkout, '  - name: "us-east-1-2"', '  - name: "us-east-1"')
    edit(checkout, 'sector: "prod-canary"', 'sector: "integration"')
    with pytest.raises(UserError, match="region us-east-1 is declared twice"):
        again(checkout)
    (checkout / "config.yaml").write_text(TEXT[: TEXT.index('  - name: "us-east-1-2"')])
    with pytest.raises(UserError, match="region production/us-east-1-2 was removed without being marked"):
        again(checkout)


def test_a_remembered_region_still_answers_for_its_values(checkout: Path) -> None:
    """The charts beside it may have changed since."""
    (checkout / "argocd").unlink()
    for kind in ("regional-cluster/other", "management-cluster/other"):
        (checkout / "argocd/config" / kind).mkdir(parents=True)
        (checkout / "argocd/config" / kind / "values.yaml").write_text("other: {}\n")
    with pytest.raises(UserError, match=r"config.yaml:\d+:\d+: no chart of a regional-cluster reads the value clm"):
        again(checkout)


def test_readers_find_every_file_at_every_moment(checkout: Path) -> None:
    watched = [checkout / "deploy/index.json", checkout / "deploy/integration/us-east-1/terraform/regional.json"]
    missing: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            missing.extend(str(path) for path in watched if not path.exists())

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for name in ("one", "two", "three"):
            (checkout / "config.yaml").write_text(TEXT.replace("owner: platform", f"owner: {name}"))
            assert again(checkout)
    finally:
        done.set()
        reader.join()
    assert missing == []


def test_where_directories_cannot_swap_files_are_renamed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network and overlay file systems."""
    monkeypatch.setattr(exchange, "_exchange", lambda one, other: False)
    edit(checkout, "owner: platform", "owner: others")
    edit(checkout, "        delete: true\n", "")
    again(checkout)
    assert is_as_if_new(checkout)


def test_what_a_killed_rendering_left_is_cleared_away(checkout: Path) -> None:
    left = checkout / f"{exchange.STAGING}killed" / "integration"
    left.mkdir(parents=True)
    edit(checkout, "limit: 3", "limit: 4")
    again(checkout)
    assert sorted(path.name for path in checkout.iterdir()) == ["argocd", "config.yaml", "deploy"]


def test_a_link_inside_the_tree_is_refused_and_not_followed(checkout: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (checkout / "deploy/integration").rename(outside)
    (checkout / "deploy/integration").symlink_to(outside)
    before = inodes(outside)
    with pytest.raises(UserError, match="deploy/integration: is not a plain file"):
        again(checkout)
    assert inodes(outside) == before


@pytest.mark.parametrize("swapped", [False, True])
def test_a_rendering_that_dies_leaves_the_old_tree_or_the_new(
    checkout: Path, swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one region and the index, which lists its clusters, change together."""
    before, swap = render(load(checkout / "config.yaml")), exchange._exchange

    def dies(one: Path, other: Path) -> bool:
        if swapped:
            swap(one, other)
        raise InterruptedError("killed")

    edit(checkout, "        delete: true\n", "")
    monkeypatch.setattr(exchange, "_exchange", dies)
    with pytest.raises(InterruptedError):
        again(checkout)
    monkeypatch.undo()
    assert before["index.json"] != render(load(checkout / "config.yaml"))["index.json"]
    assert is_as_if_new(checkout) == swapped
    again(checkout)
    assert is_as_if_new(checkout)


def test_a_rendering_that_had_to_wait_reads_what_is_there_then(checkout: Path) -> None:
    edit(checkout, "limit: 3", "limit: 4")
    waiting = threading.Thread(target=again, args=[checkout])
    with exchange.alone(checkout):
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        edit(checkout, "limit: 4", "limit: 5")
        edit(checkout, "owner: platform", "owner: others")
    waiting.join()
    assert is_as_if_new(checkout)


def test_a_tree_that_is_a_link_is_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / "deploy").rename(tmp_path / "outside")
    (checkout / "deploy").symlink_to(tmp_path / "outside")
    edit(checkout, "limit: 3", "limit: 4")
    before = inodes(tmp_path / "outside")
    with pytest.raises(UserError, match="deploy: is not a plain directory"):
        again(checkout)
    assert inodes(tmp_path / "outside") == before


def test_nothing_goes_while_nobody_knows_what_was_marked(checkout: Path) -> None:
    (checkout / "deploy/index.json").unlink()
    start, end = TEXT.index('  - name: "us-east-1"\n'), TEXT.index('  - name: "us-east-1-2"\n')
    (checkout / "config.yaml").write_text(TEXT[:start] + TEXT[end:])
    with pytest.raises(UserError, match=r"deploy/index.json: is missing, so nobody knows what may go"):
        again(checkout)
    assert (checkout / "deploy/integration/us-east-1/terraform/regional.json").exists()
    (checkout / "config.yaml").write_text(TEXT)
    again(checkout)
    assert is_as_if_new(checkout)
