"""What a change does to regions: effective values, regions that change alike said together; and the picture of all."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from click.testing import CliRunner

from regional.config.commands import config
from regional.config.difference import Difference, Edit, difference
from regional.config.graph import graph
from regional.config.load import load_text
from tests.config.repositories import GOLDEN, commit, make

TEXT = (GOLDEN / "config.yaml").read_text()


def changed(*pairs: tuple[str, str], text: str = TEXT) -> str:
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return text


def compared(before: str, after: str) -> Difference:
    return difference(load_text(before.encode()), load_text(after.encode()))


def test_nothing_changed_is_nothing_said() -> None:
    found = compared(TEXT, f"# a comment\n{TEXT}")
    assert (found.added, found.removed, found.groups, found.unchanged) == ([], [], [], 2)


def test_one_line_of_defaults_is_said_once_for_all_regions_that_it_changes() -> None:
    (group,) = compared(TEXT, changed(('app_code: "infra"', 'app_code: "other"'))).groups
    assert group.regions == ["integration/us-east-1", "production/us-east-1-2"]
    assert group.edits == [Edit("terraform_vars.app_code", "infra", "other")]


def test_a_value_with_the_regions_name_in_it_still_groups() -> None:
    (group,) = compared(TEXT, changed(("hypershift-{{ environment }}-", "hs-"))).groups[:1]
    edit = group.edits[0]
    assert edit.path == "values.management-cluster.hypershift.bucket"
    assert edit.after == "hs-{{ region_alias }}"


def test_an_overridden_value_changes_nothing_where_it_is_overridden() -> None:
    found = compared(TEXT, changed(("replicas: 1", "replicas: 7")))
    assert [group.regions for group in found.groups] == [["integration/us-east-1"]]
    assert found.unchanged == 1


def test_clusters_and_regions_come_and_go() -> None:
    text = TEXT[: TEXT.index('      - cluster_id: "mc02"')]
    found = compared(TEXT, text)
    assert [str(edit) for edit in found.groups[0].edits] == ["- management_clusters.mc02: declared"]
    alone = TEXT[: TEXT.index('  - name: "us-east-1-2"')]
    assert (compared(TEXT, alone).removed, compared(alone, TEXT).added) == (["production/us-east-1-2"],) * 2


def test_types_are_told_apart() -> None:
    (group,) = compared(TEXT, changed(("limit: 3", "limit: '3'"))).groups
    assert str(group.edits[0]) == "~ values.regional-cluster.clm.limit: 3 → '3'"


def test_the_command_compares_with_a_commit(tmp_path: Path) -> None:
    folder = make(tmp_path / "checkout")
    commit(folder)
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text().replace("eu-west-1", "eu-north-1"))

    def run(*words: str) -> str:
        command = ["--checkout", str(folder), "diff", *words]
        return CliRunner().invoke(config, command, standalone_mode=False, catch_exceptions=True).output

    assert run("HEAD").splitlines() == [
        "1 region: staging/eu",
        "  ~ aws_region: eu-west-1 → eu-north-1",
        "0 regions unchanged",
    ]
    assert json.loads(run("HEAD", "-o", "json"))["groups"][0]["regions"] == ["staging/eu"]
    assert run("HEAD", "HEAD") == "1 region unchanged\n"
    missing = CliRunner().invoke(config, ["--checkout", str(folder), "diff", "nope"], standalone_mode=False)
    assert "no commit nope in this repository" in str(missing.exception)


def test_the_picture_shows_sectors_regions_and_pins_and_is_well_formed() -> None:
    drawn = ElementTree.fromstring(graph(load_text(TEXT.encode())))
    texts = ["".join(node.itertext()) for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"defaults", "integration", "prod-canary", "us-east-1", "us-east-1-2", "12345678", "live"} <= set(texts)
    assert texts.count("live") == 3
