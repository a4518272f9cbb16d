"""Why a value is what it is: the level and line that set it, and what it overrode on the way."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.config.load import tree
from regional.config.merge import merge
from regional.config.model import Configuration, Level, Region
from regional.config.problems import did_you_mean
from regional.config.shape import CLUSTER_TYPES
from regional.config.source import Node
from regional.core.problems import UserError


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
        raise UserError(f"no region {region_key}{did_you_mean(region_key, known)}")
    key = region.key
    if cluster_id is not None:
        key += f"/{cluster_id}"
        if key not in configuration.levels:
            known = [found.cluster_id for found in region.management_clusters]
            raise UserError(f"no cluster {cluster_id} in {region.key}{did_you_mean(cluster_id, known)}")
    words = path.split(".")
    layers, rest, effective = _layers(configuration.levels[key], words, region, cluster_id)
    merged: Node | None = None
    for _, layer in layers:
        merged = merge(merged, layer)
    leaves = _leaves(merged, rest)
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


def _layers(
    levels: list[Level], words: list[str], region: Region, cluster_id: str | None
) -> tuple[list[tuple[str, Node]], list[str], Any]:
    """The free mappings that merge into the one asked for, outermost first; what is left of the path; the result."""
    cluster = next((found for found in region.management_clusters if found.cluster_id == cluster_id), None)
    if words[0] == "terraform_vars":
        paths: list[tuple[str, ...]] = [("terraform_vars",)]
        effective: Any = cluster.terraform_vars if cluster else region.terraform_vars
    elif words[0] == "values" and len(words) > 1 and words[1] in CLUSTER_TYPES:
        paths = [("values", "global"), ("values", words[1])]
        own = merge(Node.of(region.values[words[1]]), Node.of(cluster.values if cluster else {}))
        effective = own.plain() if own else {}
    else:
        starts = ["terraform_vars", *(f"values.{kind}" for kind in CLUSTER_TYPES)]
        raise UserError(f"cannot explain {'.'.join(words)}", f"a path starts with {', '.join(starts)}")
    layers = []
    for section in paths:
        for level in levels:
            if (found := tree([level], *section)) is not None:
                title = level.title if len(paths) == 1 else f"{level.title}, {'.'.join(section)}"
                layers.append((title, found))
    return layers, words[len(paths[-1]) :], effective


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
