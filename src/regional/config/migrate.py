"""Older layouts, read strictly and written anew as `config.yaml`.

Two are known. `shards:` had one entry per environment and AWS region, without sectors, inheritance, accounts or
management clusters. The other had a file per account: `region-deploy/regions/*.yaml` for regions (and management
clusters) and `management-deploy/clusters/*.yaml`. Neither used templates. What the new layout needs and the old one did
not have becomes an SSM reference, to be filled by the pipeline that mints accounts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from regional.config import shape
from regional.config.load import load_text
from regional.config.merge import merge_all
from regional.config.problems import ConfigProblems, Problem
from regional.config.repository import Repository
from regional.config.shape import ACCOUNT_ID, CLUSTER_TYPES, NAME, REGION, Field, Flag, Many, Record, Text, Tree
from regional.config.source import Document, Node, read
from regional.config.yamltext import dump
from regional.core.problems import UserError

SHORT_PIN = Text(r"[0-9a-f]{7,40}", "7 to 40 lower-case hexadecimal digits, in quotes")
ANY = Text(r"(?s:.*)", "text")

SHARDS = Record(
    {
        "shards": Field(
            Many(
                Record(
                    {
                        "region": Field(REGION, "AWS region, and the name", True),
                        "environment": Field(NAME, "environment", True),
                        "config_revision": Field(
                            Record({kind: Field(SHORT_PIN, "pin") for kind in CLUSTER_TYPES}), "pins"
                        ),
                        "values": Field(Tree(), "Helm values: global, cluster types, and keys for all of them"),
                    }
                )
            ),
            "one entry per region",
            True,
        )
    }
)

ACCOUNT_FILE = Record(
    {
        "name": Field(NAME, "name of the account: the region's alias or the cluster's id", True),
        "region": Field(REGION, "AWS region", True),
        "type": Field(Text("regional|management", "regional or management"), "what runs in the account"),
        "email": Field(ANY, "address of the account"),
        "environment": Field(NAME, "environment"),
        "sector": Field(NAME, "sector; the environment when absent"),
        "account_id": Field(ACCOUNT_ID, "the account, if it was minted already"),
        "delete": Field(Flag(), "marked for destruction"),
        "terraform_vars": Field(Tree(), "Terraform variables"),
    }
)

ACCOUNT = "ssm:///infra/{{ environment }}/{{ region_alias }}/account_id"
CLUSTER_ACCOUNT = "ssm:///infra/{{ environment }}/{{ region_alias }}/{{ cluster_id }}/account_id"
_FOLDERS = {
    "regional": ("region-deploy/regions", "terraform/config/region-deploy/regions", "regions"),
    "management": ("management-deploy/clusters", "terraform/config/management-deploy/clusters", "clusters"),
}


class Migration(msgspec.Struct, frozen=True):
    text: str  # the new config.yaml
    notes: list[str]  # what a person should know


def migrate(path: Path, environment: str, repository: Repository | None) -> Migration:
    """`path` is a file with shards or a folder with account files. Raises ConfigProblems with all that is wrong."""
    if path.is_dir():
        config, notes = _from_accounts(path, environment)
    else:
        config, notes = _from_shards(path, repository)
    text = f"# Migrated from {path.name}. Values that regions share belong into defaults and sectors.\n{dump(config)}"
    # Nothing leaves here that the new layout would refuse; its lines are not those of the older file.
    load_text(text.encode(), f"{path.name}, migrated")
    return Migration(text, notes)


def _from_shards(path: Path, repository: Repository | None) -> tuple[dict[str, Any], list[str]]:
    document = read(path)
    if document.root.get("region_deployments") is not None:
        raise UserError(f"{path.name} has region_deployments already", "nothing to migrate")
    shape.check(document, document.root, SHARDS)
    _refuse_templates(document, document.root)
    if document.problems:
        raise ConfigProblems(document.problems)
    listed = document.root.get("shards")
    shards = listed.value or [] if listed else []
    environments = dict.fromkeys(_text(shard, "environment") for shard in shards)
    regions = [_region_of_shard(document, shard, repository) for shard in shards]
    if document.problems:
        raise ConfigProblems(document.problems)
    notes = ["accounts were not declared in shards: each became an ssm:/// reference"]
    return {"sectors": [{"name": name} for name in environments], "region_deployments": regions}, notes


def _region_of_shard(document: Document, shard: Node, repository: Repository | None) -> dict[str, Any]:
    name = _text(shard, "region")
    region: dict[str, Any] = {
        "name": name,
        "aws_region": name,
        "sector": _text(shard, "environment"),
        "account_id": ACCOUNT,
    }
    if pins := _pins(document, shard.get("config_revision"), repository):
        region["config_revision"] = pins
    if values := _values(shard.get("values")):
        region["values"] = values
    return region


def _values(node: Node | None) -> dict[str, Any]:
    """Keys that are neither `global` nor a cluster type went to every cluster, over `global`."""
    given: dict[str, Node] = node.value if node is not None and node.is_mapping else {}
    shared = merge_all([given.get("global"), *(Node({key: given[key]}) for key in given if key not in _SECTIONS)])
    sections = {"global": shared, **{kind: given.get(kind) for kind in CLUSTER_TYPES}}
    return {key: found.plain() for key, found in sections.items() if found is not None and found.value}


_SECTIONS = ("global", *CLUSTER_TYPES)


def _pins(document: Document, node: Node | None, repository: Repository | None) -> dict[str, str]:
    pins: dict[str, str] = {}
    for kind, child in (node.value if node is not None and node.is_mapping else {}).items():
        pin = str(child.value)
        if len(pin) < 40:
            try:
                pin = repository.resolve(pin) if repository else ""
            except UserError:
                pin = ""
            if not pin:
                document.problem(child, f"{child.value} is short and no commit of this repository: write all 40 digits")
        pins[kind] = pin
    return pins


def _refuse_templates(document: Document, node: Node) -> None:
    if isinstance(node.value, str) and ("{{" in node.value or "}}" in node.value or "{%" in node.value):
        document.problem(node, f"{node.value!r} would become a template: the older layout had none")
    for child in node.value.values() if node.is_mapping else node.value if isinstance(node.value, list) else ():
        _refuse_templates(document, child)


def _from_accounts(folder: Path, environment: str) -> tuple[dict[str, Any], list[str]]:
    found = [
        (kind, read(file))
        for kind, places in _FOLDERS.items()
        for place in places
        for file in sorted([*(folder / place).glob("*.yaml"), *(folder / place).glob("*.yml")])
    ]
    if not found:
        raise UserError(f"no account files in {folder}", f"looked in {', '.join(sum(_FOLDERS.values(), ()))}")
    for _, document in found:
        shape.check(document, document.root, ACCOUNT_FILE)
        _refuse_templates(document, document.root)
    _raise_all(document for _, document in found)
    regions: list[dict[str, Any]] = []
    clusters: list[Document] = []
    notes = [
        f"{document.file}: email is not carried over: the pipeline that mints accounts makes addresses"
        for _, document in found
        if document.root.get("email") is not None
    ]
    for kind, document in found:
        if (_text(document.root, "type") or kind) == "management":
            clusters.append(document)
        else:
            regions.append(_region_of_account(document.root, environment))
    for document in clusters:
        _place_cluster(document, regions, environment)
    _raise_all(clusters)
    return {"sectors": _sectors(regions), "region_deployments": regions}, notes


def _sectors(regions: list[dict[str, Any]]) -> list[dict[str, str]]:
    sectors: dict[str, str] = {}
    for region in regions:
        where = region.pop("environment")
        if sectors.setdefault(region["sector"], where) != where:
            raise UserError(
                f"sector {region['sector']} is used in environments {sectors[region['sector']]} and {where}",
                "give each environment sectors of its own",
            )
    return [{"name": name} | ({"environment": where} if where != name else {}) for name, where in sectors.items()]


def _region_of_account(root: Node, environment: str) -> dict[str, Any]:
    where = _text(root, "environment") or environment
    region: dict[str, Any] = {
        "name": _text(root, "name"),
        "aws_region": _text(root, "region"),
        "sector": _text(root, "sector") or where,
        "environment": where,
        "account_id": _text(root, "account_id") or ACCOUNT,
    }
    return region | _extras(root)


def _place_cluster(document: Document, regions: list[dict[str, Any]], environment: str) -> None:
    root = document.root
    where = (_text(root, "region"), _text(root, "environment") or environment)
    homes = [region for region in regions if (region["aws_region"], region["environment"]) == where]
    if len(homes) != 1:
        several = "several regional accounts are" if homes else "no regional account is"
        document.problem(root, f"{several} in {' of '.join(where)}: the cluster's region deployment cannot be told")
        return
    cluster = {"cluster_id": _text(root, "name"), "account_id": _text(root, "account_id") or CLUSTER_ACCOUNT}
    homes[0].setdefault("management_clusters", []).append(cluster | _extras(root))


def _extras(root: Node) -> dict[str, Any]:
    kept = {key: node.plain() for key in ("delete", "terraform_vars") if (node := root.get(key)) is not None}
    return {key: value for key, value in kept.items() if value}


def _raise_all(documents: Iterable[Document]) -> None:
    problems: list[Problem] = [problem for document in documents for problem in document.problems]
    if problems:
        raise ConfigProblems(problems)


def _text(node: Node, key: str) -> str:
    found = node.get(key)
    return found.value if found is not None and isinstance(found.value, str) else ""
