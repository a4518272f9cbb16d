"""The kinds of resources that CLM keeps, as data: no code knows a kind by name except placement.

A kind with `required_adapters` is reconciled by them and goes away only when all have finalized it. A child kind lives
and dies with its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from regional.clm.specs import ACCOUNT, CLUSTER, MANAGEMENT_CLUSTER, NODE_POOL


class Entity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    plural: str
    parent_kind: str = ""
    on_parent_delete: Literal["restrict", "cascade"] = "restrict"
    required_adapters: tuple[str, ...] = ()
    name_min_len: int = 1
    name_max_len: int = 100
    spec_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    immutable: tuple[str, ...] = ()
    # Kept by the region for itself: a tenant neither sees nor writes it.
    regional: bool = False


class Registry:
    """Entities that fit together. Raises ValueError naming every fault, so that a bad table never serves."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        listed = list(entities)
        faults = _faults(listed)
        if faults:
            raise ValueError("entities: " + "; ".join(faults))
        self.all: tuple[Entity, ...] = tuple(listed)
        self._by_kind: Mapping[str, Entity] = {entity.kind: entity for entity in listed}
        self._by_plural: Mapping[str, Entity] = {entity.plural: entity for entity in listed}

    def of_kind(self, kind: str) -> Entity | None:
        return self._by_kind.get(kind)

    def of_plural(self, plural: str) -> Entity | None:
        return self._by_plural.get(plural)

    def parent(self, entity: Entity) -> Entity | None:
        return self._by_kind[entity.parent_kind] if entity.parent_kind else None

    def children(self, entity: Entity) -> list[Entity]:
        return [child for child in self.all if child.parent_kind == entity.kind]

    def href(self, kind: str, resource_id: object, owner_id: object = None) -> str:
        entity = self._by_kind[kind]
        parent = self.parent(entity)
        nested = f"/{parent.plural}/{owner_id}" if parent is not None else ""
        return f"/api/hyperfleet/v1{nested}/{entity.plural}/{resource_id}"


def _faults(entities: list[Entity]) -> list[str]:
    faults: list[str] = []
    kinds = [entity.kind for entity in entities]
    parents = {entity.kind: entity.parent_kind for entity in entities}
    for label, values in (("kind", kinds), ("plural", [entity.plural for entity in entities])):
        faults += [f"{label} {value!r} twice" for value in sorted({v for v in values if values.count(v) > 1})]
        faults += [f"empty {label}" for value in values if not value]
    for entity in entities:
        if entity.plural == "resources":
            faults.append(f"{entity.kind}: the plural 'resources' is reserved")
        if entity.parent_kind and entity.parent_kind not in kinds:
            faults.append(f"{entity.kind}: unknown parent {entity.parent_kind!r}")
        if entity.name_max_len < entity.name_min_len:
            faults.append(f"{entity.kind}: name_max_len is less than name_min_len")
        above, seen = entity.parent_kind, {entity.kind}
        while above and above not in seen:
            seen.add(above)
            above = parents.get(above, "")
        if above:
            faults.append(f"{entity.kind}: owns itself")
    return faults


REGISTRY = Registry(
    [
        Entity(
            kind="Cluster",
            plural="clusters",
            required_adapters=("hypershift",),
            name_min_len=3,
            # Its control plane's namespace, `cluster-<id>-<name>`, may have 63 characters.
            name_max_len=18,
            spec_schema=CLUSTER,
            immutable=("platform.type", "networking", "controllerAvailabilityPolicy"),
        ),
        Entity(
            kind="NodePool",
            plural="nodepools",
            parent_kind="Cluster",
            on_parent_delete="cascade",
            required_adapters=("hypershift",),
            name_min_len=3,
            name_max_len=15,
            spec_schema=NODE_POOL,
            immutable=("platform.type",),
        ),
        Entity(
            kind="ManagementCluster",
            plural="managementclusters",
            name_max_len=63,
            spec_schema=MANAGEMENT_CLUSTER,
            regional=True,
        ),
        Entity(kind="Account", plural="accounts", name_max_len=63, spec_schema=ACCOUNT, regional=True),
    ]
)
