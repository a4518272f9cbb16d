"""The objects these tests write, and custom kinds in a group of each test's own."""

from __future__ import annotations

from typing import Any

from .wire import Http, Obj


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name} | metadata, "data": data or {}}


def deployment(name: str, replicas: int | None = 0, **container: Any) -> Obj:
    """Without replicas by default, so that its controller has nothing to do but say so."""
    labels = {"app": name}
    spec: Obj = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "example/app:1"} | container]},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec}


WIDGET_SCHEMA: Obj = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "description": "How big it is", "minimum": 0, "maximum": 1000},
                "color": {"type": "string"},
                "replicas": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "conds": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string"}, "v": {"type": "string"}},
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}},
        },
    },
}


class Custom:
    """A custom kind that is served: where it is, and how its objects look."""

    def __init__(self, group: str, namespace: str, kind: str, plural: str, version: str = "v1") -> None:
        self.group, self.kind, self.plural, self.version = group, kind, plural, version
        self.resource = f"{plural}.{group}"  # how messages name it; also the name of its CRD
        self.api_version = f"{group}/{version}"
        self.path = f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"

    def body(self, name: str, spec: Obj | None = None, **more: Any) -> Obj:
        obj = {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}}
        return obj | ({"spec": spec} if spec is not None else {}) | more


def definition(group: str, kind: str = "Widget", **version: Any) -> Obj:
    """A CRD with one version; keywords replace or add fields of that version (`subresources={"status": {}}`)."""
    singular = kind.lower()
    schema = {"schema": {"openAPIV3Schema": WIDGET_SCHEMA}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{singular}s", "singular": singular},
            "versions": [{"name": "v1", "served": True, "storage": True} | schema | version],
        },
    }


async def define(http: Http, namespace: str, crd: Obj) -> Custom:
    """Create the CRD and wait until its objects can be listed."""
    (await http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)).ok(201)
    spec = crd["spec"]
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    custom = Custom(spec["group"], namespace, spec["names"]["kind"], spec["names"]["plural"], version)
    await http.until(custom.path, lambda answer: answer.status == 200)
    return custom
