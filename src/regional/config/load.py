"""From a parsed file to regions: references, four-level inheritance, templates, and the checks that need all three.

Everything that is wrong is collected; only a configuration without problems leaves this module.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regional.config import shape
from regional.config.memory import Memory
from regional.config.merge import merge, merge_all
from regional.config.model import Configuration, Level, ManagementCluster, Region
from regional.config.problems import ConfigProblems, Problem, did_you_mean
from regional.config.source import Document, Node, parse, read
from regional.config.template import TemplateError, fill

REGION_NAMES = ("account_id", "aws_region", "environment", "name", "region", "region_alias", "sector")
CLUSTER_NAMES = ("cluster_account_id", "cluster_id")
KNOWN = frozenset(REGION_NAMES + CLUSTER_NAMES)
# Names that a management cluster would share with what stands beside it.
RESERVED = {"rc": "the name of the Regional Cluster", "region": "the name of what a region's clusters share"}


def load(path: Path, memory: Memory | None = None) -> Configuration:
    """Raises ConfigProblems with all problems."""
    return _resolve(read(path), memory)


def load_region(path: Path, key: str) -> Configuration:
    """Only what concerns one region (`name` or `environment/name`); all of it if there is no such name, or a fault."""
    document = read(path)
    listed = document.root.get("region_deployments")
    named = [entry for entry in _items(listed) if _text(entry, "name") == key.rpartition("/")[2]]
    if listed is None or not named:
        return load(path)
    listed.value = named
    try:
        return _resolve(document)
    except ConfigProblems:
        return load(path)


def load_text(raw: bytes, file: str = "config.yaml") -> Configuration:
    return _resolve(parse(raw, file))


def _resolve(document: Document, memory: Memory | None = None) -> Configuration:
    loader = _Loader(document)
    regions = loader.regions(memory)
    if document.problems:
        raise ConfigProblems(document.problems)
    warnings = live_values(document.file, regions)
    return Configuration(document.file, regions, document, loader.levels, warnings)


class _Loader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._defaults = document.root.get("defaults")
        self.levels: dict[str, list[Level]] = {}
        self._shared: dict[tuple[str, ...], Node | None] = {}

    def regions(self, memory: Memory | None) -> list[Region]:
        listed = self._document.root.get("region_deployments")
        entries = listed.value if listed is not None and isinstance(listed.value, list) else []
        if not entries and listed is not None and isinstance(listed.value, list | None):
            self._document.problem(listed, "region_deployments declares no region")
        # What was right before, and has not changed since, is right.
        digests = memory.digests(self._document, entries) if memory else []
        known = [memory.recall(digest) for digest in digests] if memory else [None] * len(entries)
        shape.check(self._document, self._document.root, shape.CONFIGURATION, leave={id(listed)})
        for index, entry in enumerate(entries):
            if known[index] is None:
                shape.check(self._document, entry, shape.REGION_DEPLOYMENT, f"region_deployments[{index}]")
        if listed is not None and not isinstance(listed.value, list):
            shape.check(self._document, listed, shape.Many(shape.REGION_DEPLOYMENT), "region_deployments")
        sectors = self._sectors()
        found = [
            (entry, region)
            for entry, recalled in zip(entries, known, strict=True)
            if (region := self._recalled(recalled, entry, sectors) if recalled else self._region(entry, sectors))
        ]
        if memory and not self._document.problems:
            places = {id(entry): digest for entry, digest in zip(entries, digests, strict=True)}
            for entry, region in found:
                memory.note(places[id(entry)], region)
        return self._unique(found)

    def _unique(self, found: list[tuple[Node, Region]]) -> list[Region]:
        regions = []
        seen: dict[str, Node] = {}
        for entry, region in found:
            if first := seen.get(region.key):
                where = f"environment {region.environment} (first in line {first.line})"
                self._document.problem(entry, f"region {region.name} is declared twice in {where}")
            seen.setdefault(region.key, entry)
            regions.append(region)
        return sorted(regions, key=lambda region: (region.environment, region.name))

    def _sectors(self) -> dict[str, Node]:
        sectors: dict[str, Node] = {}
        for entry in _items(self._document.root.get("sectors")):
            name = _text(entry, "name")
            if name is None:
                continue
            if name in sectors:
                first = sectors[name].line
                self._document.problem(entry, f"sector {name} is declared twice (first in line {first})")
            sectors.setdefault(name, entry)
        return sectors

    def _recalled(self, region: Region, entry: Node, sectors: Mapping[str, Node]) -> Region:
        levels = self._levels(region.sector, sectors[region.sector], region.environment, region.name, entry)
        for cluster, node in zip(region.management_clusters, _items(entry.get("management_clusters")), strict=True):
            own = Level(f"cluster {cluster.cluster_id}", node)
            self.levels[f"{region.key}/{cluster.cluster_id}"] = [*levels, own]
        return region

    def _levels(self, sector_name: str, sector: Node, environment: str, name: str, entry: Node) -> list[Level]:
        levels = self.levels[f"{environment}/{name}"] = [
            Level("defaults", self._defaults),
            Level(f"sector {sector_name}", sector),
            Level(f"region {environment}/{name}", entry),
        ]
        return levels

    def _region(self, entry: Node, sectors: Mapping[str, Node]) -> Region | None:
        name, sector_name = _text(entry, "name"), _text(entry, "sector")
        sector = sectors.get(sector_name or "")
        if sector_name is not None and sector is None:
            node = entry.get("sector") or entry
            self._document.problem(node, f"sector {sector_name} is not defined{did_you_mean(sector_name, sectors)}")
        if name is None or sector is None or sector_name is None:
            return None
        environment = _text(sector, "environment") or sector_name
        aws_region = _text(entry, "aws_region") or ""
        names: dict[str, Any] = {
            "aws_region": aws_region,
            "environment": environment,
            "name": name,
            "region": aws_region,
            "region_alias": name,
            "sector": sector_name,
        }
        account = names["account_id"] = self._filled(entry, "account_id", shape.ACCOUNT_ID, names)
        levels = self._levels(sector_name, sector, environment, name, entry)
        variables = self._tree(levels, "terraform_vars")
        charts, values = _pins(entry, "config_revision"), _pins(entry, "values_revision")
        if _flag(sector, "require_values_revision"):
            for kind in charts.keys() - values.keys():
                node = entry.get("config_revision") or entry
                place = node.keys.get(kind, (node.line, node.column))
                message = f"sector {sector_name} requires values_revision.{kind} beside config_revision.{kind}"
                self._document.problem(place, message)
        return Region(
            environment=environment,
            name=name,
            aws_region=aws_region,
            sector=sector_name,
            account_id=account,
            delete=_flag(entry, "delete"),
            config_revision=charts,
            values_revision=values,
            terraform_vars=self._plain(variables, names) or {},
            values={kind: self._plain(self._helm_values(levels, kind), names) or {} for kind in shape.CLUSTER_TYPES},
            management_clusters=self._clusters(entry, names, levels, variables),
        )

    def _tree(self, levels: list[Level], *path: str) -> Node | None:
        """As `tree`, for a region's three levels. What a sector makes of the defaults is the same for its regions."""
        *outer, region = levels
        key = (outer[-1].title, *path)
        if key not in self._shared:
            self._shared[key] = tree(outer, *path)
        return merge(self._shared[key], _at(region.node, path))

    def _helm_values(self, levels: list[Level], cluster_type: str) -> Node | None:
        """`values.global` is the root that the cluster type's own values override; it is not Helm's `global:` key."""
        return merge(self._tree(levels, "values", "global"), self._tree(levels, "values", cluster_type))

    def _clusters(
        self, region: Node, names: Mapping[str, Any], levels: list[Level], variables: Node | None
    ) -> list[ManagementCluster]:
        clusters: list[ManagementCluster] = []
        lines: dict[str, int] = collections.defaultdict(int)
        for entry in _items(region.get("management_clusters")):
            cluster_id = self._filled(entry, "cluster_id", shape.CLUSTER_ID, names)
            account = self._filled(entry, "account_id", shape.ACCOUNT_ID, {**names, "cluster_id": cluster_id})
            if cluster_id in RESERVED:
                self._document.problem(
                    entry.get("cluster_id") or entry, f"cluster_id {cluster_id} is {RESERVED[cluster_id]}"
                )
            if cluster_id and lines[cluster_id]:
                where = f"region {names['region_alias']} (first in line {lines[cluster_id]})"
                self._document.problem(entry, f"cluster_id {cluster_id} is given twice in {where}")
            lines[cluster_id] = lines[cluster_id] or entry.line
            inner = {**names, "cluster_id": cluster_id, "cluster_account_id": account}
            key = f"{names['environment']}/{names['region_alias']}/{cluster_id}"
            own = [Level(f"cluster {cluster_id}", entry)]
            self.levels[key] = levels + own
            clusters.append(
                ManagementCluster(
                    cluster_id=cluster_id,
                    account_id=account,
                    delete=_flag(entry, "delete"),
                    terraform_vars=self._plain(merge(variables, tree(own, "terraform_vars")), inner) or {},
                    values=self._plain(tree(own, "values", "management-cluster"), inner) or {},
                )
            )
        return clusters

    def _filled(self, entry: Node, key: str, kind: shape.Text, names: Mapping[str, Any]) -> str:
        """A templated identifier; "" when it is absent or faulty, which is then already said."""
        node = entry.get(key)
        if node is None or not isinstance(node.value, str):
            return ""
        value = self._plain(node, names)
        if "{{" in node.value and value is not None and not shape.matches(kind, value):
            self._document.problem(node, f"{key} must be {kind.says}, not {value!r}")
        return value if isinstance(value, str) else ""

    def _plain(self, node: Node | None, names: Mapping[str, Any]) -> Any:
        if node is None:
            return None
        value = node.value
        if isinstance(value, dict):
            return {key: self._plain(child, names) for key, child in value.items()}
        if isinstance(value, list):
            return [self._plain(child, names) for child in value]
        if isinstance(value, str) and ("{" in value or "}" in value):
            try:
                return fill(value, names, KNOWN)
            except TemplateError as error:
                self._document.problem(node, f"template: {error}")
                return None
        return value


def tree(levels: Iterable[Level], *path: str) -> Node | None:
    """The merge of one free mapping over levels. `values: null` is an empty mapping and wipes nothing."""
    return merge_all(found for level in levels if (found := _at(level.node, path)) is not None)


def _at(node: Node | None, path: tuple[str, ...]) -> Node | None:
    for key in path:
        node = None if node is None else node.get(key)
    return node if node is not None and node.is_mapping else None


def _items(node: Node | None) -> Iterator[Node]:
    if node is not None and isinstance(node.value, list):
        yield from (child for child in node.value if child.is_mapping)


def _text(entry: Node, key: str) -> str | None:
    node = entry.get(key)
    return node.value if node is not None and isinstance(node.value, str) else None


def _flag(entry: Node, key: str) -> bool:
    node = entry.get(key)
    return node is not None and node.value is True


def live_values(file: str, regions: Iterable[Region]) -> list[Problem]:
    """The largest hole in pinning, said once per sector: the values of pinned charts follow the live revision."""
    found: dict[str, list[str]] = {}
    for region in regions:
        if region.config_revision.keys() - region.values_revision.keys():
            found.setdefault(region.sector, []).append(region.key)
    return [
        Problem(
            file,
            0,
            0,
            f"sector {sector} pins charts but not values in {_few(keys)}: a change of values reaches them with the "
            "next commit (pin values_revision too; require_values_revision on the sector makes it a must)",
        )
        for sector, keys in found.items()
    ]


def _few(words: list[str], most: int = 4) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _pins(entry: Node, field: str) -> dict[str, str]:
    pins = entry.get(field)
    if pins is None or not pins.is_mapping:
        return {}
    found = {kind: _text(pins, kind) for kind in shape.CLUSTER_TYPES}
    return {kind: pin for kind, pin in found.items() if pin}
