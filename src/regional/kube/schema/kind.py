"""One row of the registry: everything that distinguishes a served kind from the others."""

from __future__ import annotations

from msgspec import Struct

from regional.kube.objects import Obj

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


class Subresource(Struct, frozen=True):
    """One `<plural>/<name>` path. group, version and kind are set when its body is of a foreign kind."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""


class Kind(Struct, frozen=True, eq=False):
    """One served kind in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    list_kind: str = ""
    # metadata.generation is kept for this kind.
    generation: bool = False
    # A PUT without resourceVersion overwrites.
    unconditional_update: bool = True
    # A PUT of an absent name creates it.
    create_on_update: bool = False
    # False for kinds that are answered and forgotten (reviews, Binding, …) or only appear as subresource bodies.
    stored: bool = True
    # Where its objects live: (group, plural). Two kinds with the same store are two views of one set of objects, which
    # are kept in the shape of the kind named by the store; `builtin.to_storage/from_storage` convert.
    store: tuple[str, str] = ("", "")
    # Field selectors besides metadata.name and metadata.namespace: the paths clients write.
    selectable_fields: tuple[str, ...] = ()
    # Paths that never change after creation, with the API's own words for refusing (see object_rules).
    immutable: tuple[str, ...] = ()
    # Name of its definition in the packaged OpenAPI data ("" for custom kinds).
    definition: str = ""
    # For custom kinds: the entry of the CRD's spec.versions.
    custom: Obj | None = None
    # A warning clients must see when they use this version.
    deprecation: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`configmaps`, `widgets.demo.io`: the {r} of error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        """`ConfigMap`, `Widget.demo.io`: the {K} of error messages."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def status(self) -> bool:
        """It has the status subresource, so the main path keeps the live status."""
        return self.subresource("status") is not None

    def subresource(self, name: str) -> Subresource | None:
        for entry in self.subresources:
            if entry.name == name:
                return entry
        return None


STATUS = Subresource("status", STATUS_VERBS)
SCALE = Subresource("scale", STATUS_VERBS, kind="Scale", group="autoscaling", version="v1")
