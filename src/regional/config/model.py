"""The regions that a configuration declares, after inheritance and templating: what everybody else reads."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.config.problems import Problem
from regional.config.source import Document, Node


class ManagementCluster(msgspec.Struct, frozen=True):
    cluster_id: str
    account_id: str
    delete: bool
    terraform_vars: dict[str, Any]
    values: dict[str, Any]  # what only this cluster has, over its region's; {} for most


class Region(msgspec.Struct, frozen=True):
    environment: str
    name: str
    aws_region: str
    sector: str
    account_id: str
    delete: bool
    config_revision: dict[str, str]  # cluster type -> commit whose charts it runs
    values_revision: dict[str, str]  # cluster type -> commit whose rendered values its charts get
    terraform_vars: dict[str, Any]
    values: dict[str, dict[str, Any]]  # cluster type -> overrides as Helm gets them
    management_clusters: list[ManagementCluster]

    @property
    def key(self) -> str:
        """The same name may exist in two environments, so everything derived carries both."""
        return f"{self.environment}/{self.name}"

    @property
    def layered(self) -> bool:
        """Whether some management cluster has Helm values of its own: then all of them get a file."""
        return any(cluster.values for cluster in self.management_clusters)


class Level(msgspec.Struct, frozen=True):
    """One of the four places that can set a value, for `explain`."""

    title: str  # "defaults", "sector integration", …
    node: Node | None


class Configuration(msgspec.Struct, frozen=True):
    file: str
    regions: list[Region]
    document: Document
    levels: dict[str, list[Level]]  # region key, or region key/cluster id -> outermost first
    warnings: list[Problem]

    def entry(self, region: Region) -> Node:
        """Where config.yaml declares it."""
        node = self.levels[region.key][-1].node
        assert node is not None
        return node

    def region(self, key: str) -> Region | None:
        """By `environment/name`, or by name where that is unambiguous."""
        found = [region for region in self.regions if key in (region.key, region.name)]
        exact = [region for region in found if region.key == key]
        return exact[0] if exact else found[0] if len(found) == 1 else None
