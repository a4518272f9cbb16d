"""Older layouts become a config.yaml that means the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from regional.config.commands import config
from regional.config.load import load_text
from regional.config.model import Configuration
from tests.config.repositories import commit, make

PIN = "826fa76d08fc2ce87c863196e52d5a4fa9259a82"
SHARDS = f"""
shards:
  - region: "us-west-2"
    environment: "integration"
    values:
      global: {{argocd: {{logLevel: info, healthPort: 1}}}}
      argocd: {{logLevel: warn}}
      management-cluster:
        hypershift: {{oidcStorageS3Bucket: {{name: bucket, region: us-west-2}}}}
  - region: "us-west-2"
    environment: "production"
    config_revision:
      management-cluster: "{PIN}"
    values:
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(config, ["migrate", *words], standalone_mode=False)


def migrated(result: Result) -> Configuration:
    assert result.exception is None, result.exception
    return load_text(result.stdout.encode())


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_shards_become_sectors_and_regions_with_the_values_that_clusters_got(tmp_path: Path) -> None:
    result = run(str(write(tmp_path / "config.yaml", SHARDS)), "--no-git")
    one, two = migrated(result).regions
    assert (one.key, two.key) == ("integration/us-west-2", "production/us-west-2")
    assert one.values == {
        "management-cluster": {
            "argocd": {"logLevel": "warn", "healthPort": 1},
            "hypershift": {"oidcStorageS3Bucket": {"name": "bucket", "region": "us-west-2"}},
        },
        "regional-cluster": {"argocd": {"logLevel": "warn", "healthPort": 1}},
    }
    assert two.config_revision == {"management-cluster": PIN}
    assert two.account_id == "ssm:///infra/production/us-west-2/account_id"
    assert "accounts were not declared" in result.stderr


def test_a_short_pin_is_completed_from_git_or_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "checkout")
    full = commit(folder)
    old = write(tmp_path / "old.yaml", SHARDS.replace(PIN, full[:9]))
    result = CliRunner().invoke(config, ["--checkout", str(folder), "migrate", str(old)], standalone_mode=False)
    assert migrated(result).regions[1].config_revision == {"management-cluster": full}
    assert "write all 40 digits" in str(run(str(old), "--no-git").exception)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("shards: [{regoin: us-west-2, environment: x}]", "did you mean region?"),
        ("shards: [{region: us-west-2, environment: ../x}]", "shards\\[0\\].environment must be"),
        ("shards: [{region: us-west-2, environment: x, values: {a: '{{ b }}'}}]", "would become a template"),
        (
            "shards: [{region: us-west-2, environment: x}, {region: us-west-2, environment: x}]",
            "config.yaml, migrated:.* declared twice",
        ),
        ("region_deployments: []", "has region_deployments already"),
    ],
)
def test_faults_are_named_and_nothing_is_printed(tmp_path: Path, fault: str, says: str) -> None:
    result = run(str(write(tmp_path / "config.yaml", fault)), "--no-git")
    with pytest.raises(Exception, match=says):
        raise result.exception or AssertionError("accepted")
    assert result.stdout == ""


def test_account_files_become_regions_with_their_clusters(tmp_path: Path) -> None:
    write(
        tmp_path / "region-deploy/regions/a.yaml", "name: us\nemail: a@example.com\nregion: us-east-1\ntype: regional\n"
    )
    write(tmp_path / "region-deploy/regions/b.yaml", "name: mc01\nregion: us-east-1\ntype: management\n")
    write(
        tmp_path / "management-deploy/clusters/c.yaml",
        "name: mc02\nregion: us-east-1\naccount_id: '123456789012'\nterraform_vars: {size: 3}\n",
    )
    result = run(str(tmp_path), "--environment", "staging", "--no-git")
    (region,) = migrated(result).regions
    assert (region.key, region.aws_region) == ("staging/us", "us-east-1")
    one, two = region.management_clusters
    assert (one.cluster_id, one.account_id) == ("mc01", "ssm:///infra/staging/us/mc01/account_id")
    assert (two.cluster_id, two.account_id, two.terraform_vars) == ("mc02", "123456789012", {"size": 3})
    assert "a.yaml: email is not carried over" in result.stderr


@pytest.mark.parametrize(
    ("regions", "says"),
    [
        ([], "no regional account is in us-east-1 of integration"),
        (["one", "two"], "several regional accounts are in us-east-1 of integration"),
    ],
)
def test_a_cluster_without_one_home_is_refused(tmp_path: Path, regions: list[str], says: str) -> None:
    for name in regions:
        write(tmp_path / f"regions/{name}.yaml", f"name: {name}\nregion: us-east-1\n")
    write(tmp_path / "clusters/mc.yaml", "name: mc01\nregion: us-east-1\n")
    assert says in str(run(str(tmp_path), "--no-git").exception)


def test_a_folder_without_account_files_says_where_it_looked(tmp_path: Path) -> None:
    result = run(str(tmp_path), "--no-git")
    assert "no account files" in str(result.exception)
