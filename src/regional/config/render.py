"""The files under `deploy/`, as bytes in memory: what each cluster's GitOps and each region's Terraform read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from regional.config.applicationset import application_set_text
from regional.config.model import Configuration, ManagementCluster, Region
from regional.config.problems import ConfigProblems, Problem, did_you_mean
from regional.config.shape import CLUSTER_TYPES
from regional.config.yamltext import dump

GENERATED = "GENERATED FILE - DO NOT EDIT MANUALLY"
_NOTE = f"{GENERATED}; edit config.yaml and run `regionctl config render`"


def render(configuration: Configuration, charts_dir: Path) -> dict[str, bytes]:
    """Path below `deploy/` -> content. `charts_dir` is `argocd/config`; raises ConfigProblems."""
    _check_charts(configuration, charts_dir)
    files: dict[str, bytes] = {}
    for region in configuration.regions:
        files |= _render_region(region)
    files["index.json"] = _json(_index(configuration))
    return files


def _render_region(region: Region) -> dict[str, bytes]:
    base = f"{region.environment}/{region.name}"
    files: dict[str, bytes] = {}
    layered = any(cluster.values for cluster in region.management_clusters)
    for kind in CLUSTER_TYPES:
        pin = region.config_revision.get(kind)
        header = _header(region, kind, pin)
        per_cluster = layered and kind == "management-cluster"
        files[f"{base}/argocd/{kind}-values.yaml"] = (header + dump(region.values[kind])).encode()
        files[f"{base}/argocd/{kind}-manifests/applicationset.yaml"] = (
            header + application_set_text(pin, per_cluster)
        ).encode()
        if per_cluster:
            files |= {
                f"{base}/argocd/{kind}-values/{cluster.cluster_id}.yaml": (header + dump(cluster.values)).encode()
                for cluster in region.management_clusters
            }
    files[f"{base}/terraform/regional.json"] = _json(_regional_inputs(region))
    for cluster in region.management_clusters:
        files[f"{base}/terraform/management/{cluster.cluster_id}.json"] = _json(_management_inputs(region, cluster))
    files[f"{base}/effective-config.yaml"] = (_header(region) + dump(_effective(region))).encode()
    return files


def _header(region: Region, cluster_type: str = "", pin: str | None = None) -> str:
    lines = [
        GENERATED,
        "Edit config.yaml, then run: regionctl config render",
        f"Region deployment: {region.key} (sector {region.sector}, {region.aws_region})",
    ]
    if cluster_type:
        lines += [
            f"Cluster type: {cluster_type}",
            f"Config revision: {pin[:8] if pin else 'metadata.annotations.git_revision'}",
        ]
    return "".join(f"# {line}\n" for line in lines)


def _regional_inputs(region: Region) -> dict[str, Any]:
    inputs = {"_generated": _NOTE} | region.terraform_vars
    if region.management_clusters:
        inputs["management_cluster_account_ids"] = [cluster.account_id for cluster in region.management_clusters]
    return inputs | ({"delete": True} if region.delete else {})


def _management_variables(region: Region, cluster: ManagementCluster) -> dict[str, Any]:
    facts = {
        "account_id": cluster.account_id,
        "alias": cluster.cluster_id,
        "cluster_id": cluster.cluster_id,
        "regional_aws_account_id": region.account_id,
    }
    return cluster.terraform_vars | facts


def _management_inputs(region: Region, cluster: ManagementCluster) -> dict[str, Any]:
    doomed = {"delete": True} if cluster.delete or region.delete else {}
    return {"_generated": _NOTE} | _management_variables(region, cluster) | doomed


def _effective(region: Region) -> dict[str, Any]:
    """What the four levels come to, for review: a change to `defaults` shows in every region that it changes."""
    declared = msgspec.to_builtins(region)
    clusters = {
        cluster.cluster_id: {
            "account_id": cluster.account_id,
            "delete": cluster.delete,
            "terraform_vars": _management_variables(region, cluster),
            "values": cluster.values,
        }
        for cluster in region.management_clusters
    }
    return {"region_alias": declared.pop("name"), **declared, "management_clusters": clusters}


def _index(configuration: Configuration) -> dict[str, Any]:
    return {
        "_generated": _NOTE,
        "regions": [
            {
                "environment": region.environment,
                "region_alias": region.name,
                "aws_region": region.aws_region,
                "sector": region.sector,
                "account_id": region.account_id,
                "config_revision": region.config_revision,
                "delete": region.delete,
                "path": region.key,
                "management_clusters": [
                    {"cluster_id": cluster.cluster_id, "account_id": cluster.account_id, "delete": cluster.delete}
                    for cluster in region.management_clusters
                ],
            }
            for region in configuration.regions
        ],
    }


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _check_charts(configuration: Configuration, charts_dir: Path) -> None:
    """Helm ignores a value that no chart knows, so a misspelt chart name would be lost in silence.

    Only unpinned clusters are checked: a pin's charts are those of another commit.
    """
    problems = [
        Problem(str(charts_dir), 0, 0, f"has no directory {kind}: no chart would be deployed")
        for kind in CLUSTER_TYPES
        if not (charts_dir / kind).is_dir()
    ]
    if problems:
        raise ConfigProblems(problems)
    known = {kind: _chart_keys(charts_dir, kind) for kind in CLUSTER_TYPES}
    names = {kind: known[kind] | {"global"} for kind in CLUSTER_TYPES}
    everywhere = frozenset().union(*names.values())
    for region in configuration.regions:
        for kind in CLUSTER_TYPES:
            if kind in region.config_revision:
                continue
            given = set(region.values[kind])
            if kind == "management-cluster":
                given = given.union(*(cluster.values for cluster in region.management_clusters))
            for key in given - everywhere:
                message = f"no chart of a {kind} reads the value {key}{did_you_mean(key, names[kind])}"
                problems.append(Problem(configuration.file, 0, 0, message))
    if problems:
        raise ConfigProblems(problems)


def _chart_keys(charts_dir: Path, kind: str) -> frozenset[str]:
    keys: set[str] = set()
    for values in sorted([*charts_dir.glob(f"{kind}/*/values.yaml"), *charts_dir.glob("shared/*/values.yaml")]):
        loaded = yaml.load(values.read_text(), Loader=yaml.CSafeLoader)
        keys |= set(loaded or {})
    return frozenset(keys)
