"""The files under `deploy/`, as bytes in memory: what each cluster's GitOps and each region's Terraform read."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.config.applicationset import application_set_text
from regional.config.model import Configuration, ManagementCluster, Region
from regional.config.shape import CLUSTER_TYPES
from regional.config.yamltext import dump

GENERATED = "GENERATED FILE - DO NOT EDIT MANUALLY"
_NOTE = f"{GENERATED}; edit config.yaml and run `regionctl config render`"


def render(configuration: Configuration) -> dict[str, bytes]:
    """Path below `deploy/` -> content."""
    files: dict[str, bytes] = {}
    for region in configuration.regions:
        files |= render_region(region)
    files["index.json"] = render_index(configuration)
    return files


def render_index(configuration: Configuration) -> bytes:
    return _json(_index(configuration))


def render_region(region: Region) -> dict[str, bytes]:
    base = f"{region.environment}/{region.name}"
    files: dict[str, bytes] = {}
    for kind in CLUSTER_TYPES:
        pin = region.config_revision.get(kind)
        values_pin = region.values_revision.get(kind)
        header = _header(region, kind, pin, values_pin)
        per_cluster = region.layered and kind == "management-cluster"
        files[f"{base}/argocd/{kind}-values.yaml"] = (header + dump(region.values[kind])).encode()
        files[f"{base}/argocd/{kind}-manifests/applicationset.yaml"] = (
            header + application_set_text(pin, values_pin, per_cluster)
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


def _header(region: Region, cluster_type: str = "", pin: str | None = None, values_pin: str | None = None) -> str:
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
    if values_pin:
        lines.append(f"Values revision: {values_pin[:8]}")
    return "".join(f"# {line}\n" for line in lines)


def _regional_inputs(region: Region) -> dict[str, Any]:
    inputs = {"_generated": _NOTE} | region.terraform_vars
    if region.management_clusters:
        inputs["management_cluster_account_ids"] = [cluster.account_id for cluster in region.management_clusters]
    return inputs | ({"delete": True} if region.delete else {})


def management_variables(region: Region, cluster: ManagementCluster) -> dict[str, Any]:
    facts = {
        "account_id": cluster.account_id,
        "alias": cluster.cluster_id,
        "cluster_id": cluster.cluster_id,
        "regional_aws_account_id": region.account_id,
    }
    return cluster.terraform_vars | facts


def _management_inputs(region: Region, cluster: ManagementCluster) -> dict[str, Any]:
    doomed = {"delete": True} if cluster.delete or region.delete else {}
    return {"_generated": _NOTE} | management_variables(region, cluster) | doomed


def _effective(region: Region) -> dict[str, Any]:
    """What the four levels come to, for review: a change to `defaults` shows in every region that it changes."""
    declared = msgspec.to_builtins(region)
    clusters = {
        cluster.cluster_id: {
            "account_id": cluster.account_id,
            "delete": cluster.delete,
            "terraform_vars": management_variables(region, cluster),
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
                "values_revision": region.values_revision,
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
