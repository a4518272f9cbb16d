"""Rendered text to the objects an Application wants: split, placed into its namespace, marked as its own.

The mark is Argo CD's tracking annotation. It names the object it is on, so that a copy made by somebody else (a
Deployment's annotations end up on its ReplicaSets) is not taken for one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from regional.gitops.goyaml import YamlError, load_yaml_all
from regional.kube.objects import Obj, annotations_of, name_of, namespace_of

TRACKING = "argocd.argoproj.io/tracking-id"


class ManifestError(Exception):
    pass


class ObjectKey(msgspec.Struct, frozen=True, order=True):
    """Identity across versions of an API, as Argo CD keys resources."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Obj) -> ObjectKey:
        return cls(group_of(obj), obj.get("kind", ""), namespace_of(obj), name_of(obj))

    def __str__(self) -> str:
        return "/".join(part for part in (self.group, self.kind, self.namespace, self.name) if part)


def group_of(obj: Obj) -> str:
    return str(obj.get("apiVersion", "")).rpartition("/")[0]


def version_part(obj: Obj) -> str:
    return str(obj.get("apiVersion", "")).rpartition("/")[2]


def parse(text: str | bytes, where: str) -> list[Obj]:
    try:
        return list(_objects(load_yaml_all(text), where))
    except YamlError as error:
        raise ManifestError(f"{where}: {error}") from None


def _objects(documents: Iterable[Any], where: str) -> Iterable[Obj]:
    for document in documents:
        if document is None or document == {}:
            continue
        if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
            raise ManifestError(f"{where}: a document is not a Kubernetes object (no apiVersion or kind)")
        if document["kind"].endswith("List") and isinstance(document.get("items"), list):
            yield from _objects(document["items"], where)
            continue
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
            raise ManifestError(f"{where}: {document['kind']} has no name")
        yield document


def tracking_id(application: str, obj: Obj, namespace: str) -> str:
    """A cluster-scoped object is tracked under the Application's own namespace, as in Argo CD."""
    place = namespace_of(obj) or namespace
    return f"{application}:{group_of(obj)}/{obj['kind']}:{place}/{name_of(obj)}"


def tracked_by(obj: Obj) -> str | None:
    """The Application this very object belongs to, if any."""
    mark = annotations_of(obj).get(TRACKING)
    if not mark:
        return None
    application, _, rest = mark.partition(":")
    kind, _, place = rest.partition(":")
    namespace, _, name = place.rpartition("/")
    if kind != f"{group_of(obj)}/{obj.get('kind')}" or name != name_of(obj):
        return None
    if namespace_of(obj) and namespace_of(obj) != namespace:
        return None
    return application


def track(obj: Obj, application: str, namespace: str) -> None:
    metadata = obj.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = annotations | {TRACKING: tracking_id(application, obj, namespace)}


def place(obj: Obj, namespaced: bool, namespace: str) -> None:
    """What the chart left out takes the Application's namespace; what has no namespace loses one."""
    metadata = obj["metadata"]
    if not namespaced:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace


def images_of(objects: Iterable[Obj]) -> list[str]:
    found: set[str] = set()
    for obj in objects:
        spec = obj.get("spec") or {}
        for pod in (spec, (spec.get("template") or {}).get("spec") or {}):
            if isinstance(pod, dict):
                for group in ("containers", "initContainers"):
                    found |= {c["image"] for c in pod.get(group) or [] if isinstance(c, dict) and c.get("image")}
    return sorted(found)
