"""Nothing is written unless everything is right, and nothing that may still run disappears by accident."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from regional.config import deploy
from regional.config.commands import config
from regional.config.load import load_text
from regional.config.problems import ConfigProblems
from regional.config.render import render

GOLDEN = Path(__file__).parent / "golden"
TEXT = (GOLDEN / "config.yaml").read_text()


def rendered(text: str = TEXT) -> dict[str, bytes]:
    return render(load_text(text.encode()))


def tree(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def without_region(text: str) -> str:
    start, end = text.index('  - name: "us-east-1"\n'), text.index('  - name: "us-east-1-2"\n')
    return text[:start] + text[end:]


def test_writing_is_complete_and_the_second_time_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    assert {change.kind for change in deploy.write(rendered(), target)} == {"added"}
    assert tree(target) == rendered()
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert deploy.write(rendered(), target) == []
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["deploy"]


def test_check_sees_changed_missing_and_extra_files(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    deploy.write(rendered(), target)
    (target / "index.json").write_text("{}")
    (target / "production/us-east-1-2/terraform/regional.json").unlink()
    (target / "production/notes.txt").write_text("mine")
    assert [(change.kind, change.path) for change in deploy.compare(rendered(), target)] == [
        ("changed", "index.json"),
        ("removed", "production/notes.txt"),
        ("added", "production/us-east-1-2/terraform/regional.json"),
    ]


def test_a_region_that_is_not_marked_cannot_be_dropped(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    deploy.write(rendered(), target)
    with pytest.raises(ConfigProblems, match="region integration/us-east-1 was removed without being marked"):
        deploy.write(rendered(without_region(TEXT)), target)
    assert tree(target) == rendered()


def test_a_region_that_a_merge_lost_from_the_index_cannot_be_dropped_either(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    deploy.write(rendered(), target)
    (target / "index.json").write_bytes(rendered(without_region(TEXT))["index.json"])
    before = tree(target)
    with pytest.raises(ConfigProblems, match="region integration/us-east-1 was removed without being marked"):
        deploy.write(rendered(without_region(TEXT)), target)
    assert tree(target) == before
    deploy.write(rendered(), target)
    assert tree(target) == rendered()


def test_a_region_goes_once_it_was_rendered_for_deletion(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    marked = TEXT.replace('  - name: "us-east-1"\n', '  - name: "us-east-1"\n    delete: true\n')
    deploy.write(rendered(marked), target)
    assert b'"delete": true' in (target / "integration/us-east-1/terraform/regional.json").read_bytes()
    deploy.write(rendered(without_region(TEXT)), target)
    assert not (target / "integration").exists()


def test_a_marked_cluster_may_go_and_an_unmarked_one_may_not(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    deploy.write(rendered(), target)
    marked_gone = TEXT.replace(
        '      - cluster_id: "mc01-{{ region_alias }}"\n        account_id: "222222222222"\n        delete: true\n', ""
    ).replace("    management_clusters:\n\n", "\n")
    deploy.write(rendered(marked_gone), target)
    unmarked_gone = marked_gone[: marked_gone.index('      - cluster_id: "mc02"')]
    with pytest.raises(ConfigProblems, match="cluster production/us-east-1-2/mc02 was removed"):
        deploy.write(rendered(unmarked_gone), target)


def test_files_that_were_not_generated_are_never_deleted(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    deploy.write(rendered(), target)
    note = target / "production" / "notes.txt"
    note.write_text("mine")
    with pytest.raises(ConfigProblems, match="was not generated"):
        deploy.write(rendered(), target)
    assert note.read_text() == "mine"


def test_an_unreadable_index_stops_before_anything_is_written(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    deploy.write(rendered(), target)
    (target / "index.json").write_text("not json")
    before = tree(target)
    with pytest.raises(ConfigProblems, match="restore it from Git"):
        deploy.write(rendered(TEXT.replace("limit: 3", "limit: 4")), target)
    assert tree(target) == before


def checkout(tmp_path: Path, text: str = TEXT) -> Path:
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "argocd").symlink_to(GOLDEN / "argocd")
    return tmp_path


def test_the_commands_render_check_and_explain(tmp_path: Path) -> None:
    folder = checkout(tmp_path)

    def run(*words: str) -> str:
        result = CliRunner().invoke(
            config, ["--checkout", str(folder), *words], catch_exceptions=False, standalone_mode=False
        )
        return result.output

    assert "2 regions, 3 management clusters" in run("validate", "--no-git")
    assert "18 files, 18 files changed" in run("render", "--no-git")
    assert "up to date" in run("render", "--check", "--no-git")
    text = run(
        "explain", "values.management-cluster.hypershift.replicas", "--region", "us-east-1-2", "--cluster", "mc01"
    )
    assert "= 5" in text
    assert '"region_deployments"' in run("schema")


def test_check_fails_on_a_stale_tree_and_leaves_it(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    result = CliRunner().invoke(
        config, ["--checkout", str(folder), "render", "--check", "--no-git"], standalone_mode=False
    )
    assert "differs from config.yaml in 18 files" in str(result.exception)
    assert not (folder / "deploy").exists()
