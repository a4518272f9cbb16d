"""What the bench writes: a ConfigMap of about a kilobyte, and a Deployment such as a chart renders."""

from __future__ import annotations

from typing import Any

from kube_client import request

Obj = dict[str, Any]
NAMESPACE = "bench"


def config_map(name: str, number: int = 0) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "bench", "part": f"p{number % 10}"}},
        "data": {f"key-{index}": f"{number:08d}" + "x" * 90 for index in range(10)},
    }


def deployment(name: str, number: int = 0) -> Obj:
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 5}
    container = {
        "name": "main",
        "image": f"registry.example.com/bench:{number}",
        "args": ["serve", "--verbose"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": f"SETTING_{index}", "value": str(number)} for index in range(6)],
        "readinessProbe": probe,
        "livenessProbe": probe,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
    }
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "config"}}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


class Resource:
    """One kind's requests, ready to be sent."""

    def __init__(self, path: str, make: Any) -> None:
        self.path = path
        self._make = make

    def create(self, name: str, number: int = 0) -> bytes:
        return request("POST", self.path, self._make(name, number))

    def get(self, name: str) -> bytes:
        return request("GET", f"{self.path}/{name}")

    def apply(self, name: str, number: int) -> bytes:
        path = f"{self.path}/{name}?fieldManager=bench&force=true"
        return request("PATCH", path, self._make(name, number), "application/apply-patch+yaml")

    def delete_all(self) -> bytes:
        return request("DELETE", self.path)


CONFIG_MAPS = Resource(f"/api/v1/namespaces/{NAMESPACE}/configmaps", config_map)
DEPLOYMENTS = Resource(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment)
EVERYTHING = request("GET", f"{CONFIG_MAPS.path}")
NEW_NAMESPACE = request(
    "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
)
