"""Why a value is what it is: the level and line that set it, and what it overrode on the way."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from regional.config.load import tree
from regional.config.merge import merge
from regional.config.model import Configuration, Level, Region
from regional.config.problems import did_you_mean
from regional.config.render import management_variables
from regional.config.shape import CLUSTER_TYPES
from regional.config.source import Node
from regional.core.problems import UserError

CLUSTER_FIELDS = ("account_id", "cluster_id", "delete")
REGION_FIELDS = (
    "account_id", "aws_region", "config_revision", "delete", "environment", "name", "sector", "values_revision",
)  # fmt: skip


class Origin(msgspec.Struct, frozen=True):
    level: str
    file: str
    line: int
    written: Any  # before templating

    def __str__(self) -> str:
        return f"{self.level} ({self.file}:{self.line})"


class Explanation(msgspec.Struct, frozen=True):
    path: str
    value: Any
    set_by: Origin
    overrode: list[Origin]  # nearest first


def explain(
    configuration: Configuration, path: str, region_key: str, cluster_id: str | None = None
) -> list[Explanation]:
    """One entry per leaf at or below `path`, such as `values.management-cluster.hypershift` or `terraform_vars`."""
    region = configuration.region(region_key)
    if region is None:
        known = [found.key for found in configuration.regions]
        if same := [found.key for found in configuration.regions if found.name == region_key]:
            raise UserError(f"region {region_key} is in {len(same)} environments", f"say which: {', '.join(same)}")
        raise UserError(f"no region {region_key}{did_you_mean(region_key, known)}")
    key = region.key
    if cluster_id is not None:
        key += f"/{cluster_id}"
        if key not in configuration.levels:
            known = [found.cluster_id for found in region.management_clusters]
            raise UserError(f"no cluster {cluster_id} in {region.key}{did_you_mean(cluster_id, known)}")
    words = path.split(".")
    if words == ["values"]:
        return _all_values(configuration, region, cluster_id)
    if words[0] in (CLUSTER_FIELDS if cluster_id is not None else REGION_FIELDS):
        return _declared(configuration, words, region, cluster_id)
    layers, rest, effective = _layers(configuration.levels[key], words, region, cluster_id)
    merged: Node | None = None
    for _, layer in layers:
        merged = merge(merged, layer)
    leaves = _leaves(merged, _keys(merged, rest))
    if not leaves:
        raise UserError(f"nothing sets {path} for {key}", "the chart's or module's own default applies")
    prefix = words[: len(words) - len(rest)]
    return [
        Explanation(
            ".".join([*prefix, *leaf]),
            _pick(effective, leaf),
            *_origins(configuration.file, layers, leaf),
        )
        for leaf in leaves
    ]


def _all_values(configuration: Configuration, region: Region, cluster_id: str | None) -> list[Explanation]:
    """Of each cluster type that the question is about."""
    found: list[Explanation] = []
    for kind in CLUSTER_TYPES if cluster_id is None else ("management-cluster",):
        with contextlib.suppress(UserError):  # nothing sets them
            found += explain(configuration, f"values.{kind}", region.key, cluster_id)
    if not found:
        raise UserError(f"nothing sets values for {region.key}", "the charts' own defaults apply")
    return found


def _declared(
    configuration: Configuration, words: list[str], region: Region, cluster_id: str | None
) -> list[Explanation]:
    """What is not inherited: one level sets it, the region's, the cluster's or, for the environment, the sector's."""
    levels = configuration.levels[region.key if cluster_id is None else f"{region.key}/{cluster_id}"]
    clusters = {cluster.cluster_id: cluster for cluster in region.management_clusters}
    level = levels[1] if words[0] == "environment" else levels[-1]
    # Without an environment of its own, a sector is named like it.
    first = "name" if level is levels[1] and level.node and level.node.get("environment") is None else words[0]
    entry = Node({first: level.node.get(first)}, keys=level.node.keys) if level.node and level.node.get(first) else None
    effective = getattr(region if cluster_id is None else clusters[cluster_id], words[0])
    leaves = _leaves(entry, [first, *words[1:]]) if effective not in ({}, False) else []
    if not leaves:
        raise UserError(
            f"nothing sets {'.'.join(words)} for {region.key}", "without a pin the live revision is followed"
        )
    return [
        Explanation(
            ".".join([words[0], *leaf[1:]]),
            _pick(effective, leaf[1:]),
            *_origins(configuration.file, [(level.title, entry)] if entry else [], leaf),
        )
        for leaf in leaves
    ]


def _layers(
    levels: list[Level], words: list[str], region: Region, cluster_id: str | None
) -> tuple[list[tuple[str, Node]], list[str], Any]:
    """The free mappings that merge into the one asked for, outermost first; what is left of the path; the result."""
    cluster = next((found for found in region.management_clusters if found.cluster_id == cluster_id), None)
    if words[0] == "terraform_vars":
        paths: list[tuple[str, ...]] = [("terraform_vars",)]
        effective: Any = management_variables(region, cluster) if cluster else region.terraform_vars
    elif words[0] == "values" and len(words) > 1 and words[1] in CLUSTER_TYPES:
        paths = [("values", "global"), ("values", words[1])]
        own = merge(Node.of(region.values[words[1]]), Node.of(cluster.values if cluster else {}))
        effective = own.plain() if own else {}
    else:
        fields = REGION_FIELDS if cluster_id is None else CLUSTER_FIELDS
        starts = ["terraform_vars", "values", *(f"values.{kind}" for kind in CLUSTER_TYPES), *fields]
        raise UserError(f"cannot explain {'.'.join(words)}", f"a path starts with {', '.join(starts)}")
    layers = []
    for section in paths:
        for level in levels:
            if (found := tree([level], *section)) is not None:
                title = level.title if len(paths) == 1 else f"{level.title}, {'.'.join(section)}"
                layers.append((title, found))
    if cluster and words[0] == "terraform_vars":
        layers += _written_by_the_renderer(levels)
    return layers, words[len(paths[-1]) :], effective


def _written_by_the_renderer(levels: list[Level]) -> list[tuple[str, Node]]:
    """A management cluster's Terraform inputs get who it is from its entry, over all variables."""
    layers = []
    for level, facts in (
        (levels[-2], {"regional_aws_account_id": "account_id"}),
        (levels[-1], {"account_id": "account_id", "alias": "cluster_id", "cluster_id": "cluster_id"}),
    ):
        entry = level.node
        if entry is not None:
            nodes = {name: node for name, field in facts.items() if (node := entry.get(field))}
            layers.append(
                (level.title, Node(nodes, keys={name: (node.line, node.column) for name, node in nodes.items()}))
            )
    return layers


def _keys(node: Node | None, words: list[str]) -> list[str]:
    """A key may have dots itself: `annotations.example.com/role` are two."""
    for end in range(1, len(words) + 1):
        key = ".".join(words[:end])
        if node is not None and (child := node.get(key)):
            return [key, *_keys(child, words[end:])]
    return words


def _leaves(node: Node | None, path: list[str]) -> list[list[str]]:
    for word in path:
        node = None if node is None else node.get(word)
    if node is None:
        return []
    if not node.is_mapping or not node.value:
        return [path]
    return [leaf for key in node.value for leaf in _leaves_below(node.value[key], [*path, key])]


def _leaves_below(node: Node, path: list[str]) -> list[list[str]]:
    if not node.is_mapping or not node.value:
        return [path]
    return [leaf for key in node.value for leaf in _leaves_below(node.value[key], [*path, key])]


def _origins(file: str, layers: list[tuple[str, Node]], leaf: list[str]) -> tuple[Origin, list[Origin]]:
    found = []
    for title, layer in layers:
        node: Node | None = layer
        place = (layer.line, layer.column)
        for word in leaf:
            if node is None or not node.is_mapping:
                break  # this level put a scalar here and wiped what was below
            place = node.keys.get(word, place)
            node = node.get(word)
        if node is not None:
            found.append(Origin(title, file, place[0], node.plain()))
    return found[-1], found[-2::-1]


def _pick(value: Any, path: list[str]) -> Any:
    for word in path:
        value = value[word]
    return value
