"""The declared shape of `config.yaml`: one table that checks a file and that editors get as JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from regional.config.problems import did_you_mean
from regional.config.source import Document, Node

CLUSTER_TYPES = ("management-cluster", "regional-cluster")

# Names become path components, Kubernetes labels and namespaces: an RFC 1123 label is safe in all three.
SLUG = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
AWS_REGION = r"[a-z]{2,4}(-[a-z]+){1,3}-[0-9]{1,2}"
ACCOUNT = r"[0-9]{12}|ssm://(/(?!\.\.?(/|$))[A-Za-z0-9_.-]+)+"
COMMIT = r"[0-9a-f]{40}"


class Text(msgspec.Struct, frozen=True):
    pattern: str
    says: str  # completes "must be …"
    templated: bool = False


class Flag(msgspec.Struct, frozen=True):
    pass


class Tree(msgspec.Struct, frozen=True):
    """A free mapping (Helm values, Terraform variables); `reserved` keys are written by the renderer."""

    reserved: tuple[str, ...] = ()


class Field(msgspec.Struct, frozen=True):
    kind: Any
    doc: str
    required: bool = False


class Record(msgspec.Struct, frozen=True):
    fields: dict[str, Field]


class Many(msgspec.Struct, frozen=True):
    item: Any


NAME = Text(SLUG, "1 to 63 lower-case letters, digits and inner hyphens", templated=False)
CLUSTER_ID = Text(SLUG, NAME.says, templated=True)
REGION = Text(AWS_REGION, "an AWS region such as us-east-1")
ACCOUNT_ID = Text(ACCOUNT, "12 digits in quotes, or ssm:///path/of/parameter", templated=True)
PIN = Text(COMMIT, "a full commit hash: 40 lower-case hexadecimal digits, in quotes")

_RENDERED = ("_generated", "delete", "management_cluster_account_ids")
_TERRAFORM = Field(Tree(_RENDERED), "Terraform variables; inner levels win")
# A management cluster gets who it is from its entry, over all variables: here they could never take effect.
_IDENTITY = ("account_id", "alias", "cluster_id", "regional_aws_account_id")


def _values(*cluster_types: str) -> Field:
    trees = {kind: Field(Tree(), f"Helm values for charts of a {kind}") for kind in cluster_types}
    if len(cluster_types) > 1:
        trees["global"] = Field(Tree(), "Helm values for every cluster type, merged into the root of the values file")
    return Field(Record(trees), "Helm value overrides; inner levels win, null removes a chart's default")


MANAGEMENT_CLUSTER = Record(
    {
        "cluster_id": Field(CLUSTER_ID, "name of the cluster, unique in its region; also its Maestro consumer", True),
        "account_id": Field(ACCOUNT_ID, "AWS account of this cluster", True),
        "delete": Field(Flag(), "marks the cluster for destruction; needed before its entry may go"),
        "terraform_vars": Field(Tree(_RENDERED + _IDENTITY), "Terraform variables of this cluster only"),
        "values": _values("management-cluster"),
    }
)

REGION_DEPLOYMENT = Record(
    {
        "name": Field(NAME, "the region's alias: path component and label, unique in its environment", True),
        "aws_region": Field(REGION, "where it runs; may differ from the name", True),
        "sector": Field(NAME, "the sector it inherits from", True),
        "account_id": Field(ACCOUNT_ID, "AWS account of the regional cluster", True),
        "config_revision": Field(
            Record({kind: Field(PIN, f"commit whose charts a {kind} runs") for kind in CLUSTER_TYPES}),
            "pins; without one a cluster follows the live revision",
        ),
        "values_revision": Field(
            Record({kind: Field(PIN, f"commit whose rendered values a {kind} gets") for kind in CLUSTER_TYPES}),
            "pins of rendered values; without one they follow the live revision, also where the charts are pinned",
        ),
        "delete": Field(Flag(), "marks the region for destruction; needed before its entry may go"),
        "management_clusters": Field(Many(MANAGEMENT_CLUSTER), "the region's management clusters"),
        "terraform_vars": _TERRAFORM,
        "values": _values(*CLUSTER_TYPES),
    }
)

SECTOR = Record(
    {
        "name": Field(NAME, "name that region deployments refer to", True),
        "environment": Field(NAME, "directory and label; the sector's name when absent"),
        "require_values_revision": Field(Flag(), "refuse regions whose charts are pinned and whose values are not"),
        "terraform_vars": _TERRAFORM,
        "values": _values(*CLUSTER_TYPES),
    }
)

CONFIGURATION = Record(
    {
        "defaults": Field(
            Record({"terraform_vars": _TERRAFORM, "values": _values(*CLUSTER_TYPES)}), "what every sector inherits"
        ),
        "sectors": Field(Many(SECTOR), "groups of regions that are rolled out together", True),
        "region_deployments": Field(Many(REGION_DEPLOYMENT), "one entry per region", True),
    }
)

_ELSEWHERE = {
    "shards": "shards is the older layout: declare region_deployments with name, aws_region, sector and account_id",
    "config_revision": "config_revision belongs to a region deployment: pins are not inherited",
    "values_revision": "values_revision belongs to a region deployment: pins are not inherited",
    "require_values_revision": "require_values_revision belongs to a sector",
    "environment": "environment belongs to a sector",
}


def check(document: Document, node: Node, kind: Any, path: str = "", leave: Collection[int] = ()) -> None:
    """Adds every fault of shape to the document's problems. `leave` are ids of children that are checked elsewhere."""
    match kind:
        case Record():
            _check_record(document, node, kind, path, leave)
        case Many(item):
            if node.value is None:
                return
            if not isinstance(node.value, list):
                document.problem(node, f"{path} must be a list, not {_named(node)}")
                return
            for index, child in enumerate(node.value):
                check(document, child, item, f"{path}[{index}]")
        case Tree(reserved):
            _check_tree(document, node, path, reserved)
        case Flag():
            if not isinstance(node.value, bool | None):
                document.problem(node, f"{path} must be true or false, not {_named(node)}")
        case Text():
            _check_text(document, node, kind, path)


def _check_record(document: Document, node: Node, record: Record, path: str, leave: Collection[int]) -> None:
    if not path and node.value is None:
        document.problem(node, "is empty")
        return
    if node.value is None and not any(field.required for field in record.fields.values()):
        return  # `values:` with nothing under it means no values
    if not isinstance(node.value, dict):
        document.problem(node, f"{path or 'the file'} must be a mapping, not {_named(node)}")
        return
    prefix = f"{path}." if path else ""
    for key, child in node.value.items():
        if id(child) in leave:
            continue
        if field := record.fields.get(key):
            check(document, child, field.kind, prefix + key)
        else:
            hint = did_you_mean(key, record.fields)
            message = _ELSEWHERE.get(key)
            document.problem(
                node.keys.get(key, (node.line, node.column)), message or f"unknown key {prefix}{key}{hint}"
            )
    for key, field in record.fields.items():
        if field.required and key not in node.value:
            document.problem(node, f"{prefix}{key} is required")


def _check_tree(document: Document, node: Node, path: str, reserved: tuple[str, ...] = ()) -> None:
    if node.value is None:
        return
    if not isinstance(node.value, dict):
        document.problem(node, f"{path} must be a mapping, not {_named(node)}")
        return
    for key in node.value:
        if key in reserved:
            document.problem(node.keys[key], f"{path}.{key} is written by the renderer and cannot be set")
    _check_keys(document, node)


def _check_keys(document: Document, node: Node) -> None:
    children = node.value
    if isinstance(children, dict):
        for key, place in node.keys.items():
            if "{{" in key:
                document.problem(place, f"key {key}: keys are not templated")
        children = list(children.values())
    if isinstance(children, list):
        for child in children:
            _check_keys(document, child)


def _check_text(document: Document, node: Node, kind: Text, path: str) -> None:
    value = node.value
    if not isinstance(value, str):
        document.problem(node, f"{path} must be {kind.says}, not {_named(node)}")
    elif kind.templated and "{{" in value:
        return  # checked once it is filled in
    elif not matches(kind, value):
        document.problem(node, f"{path} must be {kind.says}, not {value!r}")


def matches(kind: Text, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(kind.pattern, value) is not None


def _named(node: Node) -> str:
    match node.value:
        case None:
            return "nothing"
        case bool():
            return "true" if node.value else "false"
        case int() | float():
            return f"the number {node.value}"
        case dict():
            return "a mapping"
        case list():
            return "a list"
    return repr(node.value)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) for editors: completion, documentation and the same refusals."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Region configuration",
        **_schema_of(CONFIGURATION),
    }


def _schema_of(kind: Any) -> dict[str, Any]:
    match kind:
        case Record(fields):
            schema: dict[str, Any] = {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    key: {"description": field.doc} | _schema_of(field.kind) for key, field in fields.items()
                },
            }
            if required := [key for key, field in fields.items() if field.required]:
                return schema | {"required": required}
            return schema | {"type": ["object", "null"]}
        case Many(item):
            return {"type": ["array", "null"], "items": _schema_of(item)}
        case Tree(reserved):
            return {"type": ["object", "null"], "properties": dict.fromkeys(reserved, False)}
        case Flag():
            return {"type": ["boolean", "null"]}
        case Text(pattern, _, templated):
            return {"type": "string", "pattern": f"^({pattern}|.*\\{{\\{{.*)$" if templated else f"^({pattern})$"}
    raise AssertionError(kind)
