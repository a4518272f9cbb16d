"""A Git repository to write to, small charts, and the words in which these tests speak of Applications."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from regional.core.paths import checkout
from regional.gitops.applicationset import API_VERSION
from regional.gitops.controller import GitOps
from regional.kube.objects import Obj, name_of
from tests.kube_controllers.harness import Cluster, end, eventually

LOCAL = "https://kubernetes.default.svc"


class GitRepository:
    """A checkout whose commits a controller follows, like a bare repository that somebody pushes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "--initial-branch=main")

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, files: dict[str, str | Obj | list[Obj]]) -> None:
        write_files(self.path, files)

    def remove(self, name: str) -> None:
        place = self.path / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    def commit(self, files: dict[str, str | Obj | list[Obj]] | None = None, message: str = "change") -> str:
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


def write_files(root: Path, files: Mapping[str, str | Obj | list[Obj]]) -> None:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else _yaml(content))


def _yaml(content: Obj | list[Obj]) -> str:
    documents = content if isinstance(content, list) else [content]
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def chart(path: str, templates: dict[str, str | Obj], values: Obj | None = None) -> dict[str, str | Obj | list[Obj]]:
    """The files of a small chart."""
    name = path.rsplit("/", 1)[-1]
    files: dict[str, str | Obj | list[Obj]] = {
        f"{path}/Chart.yaml": {"apiVersion": "v2", "name": name, "version": "0.1.0"},
        f"{path}/values.yaml": values or {},
    }
    return files | {f"{path}/templates/{file}": content for file, content in templates.items()}


def config_map(name: str, data: dict[str, str] | None = None, **annotations: str) -> Obj:
    metadata: Obj = {"name": name}
    if annotations:
        metadata["annotations"] = {_ANNOTATIONS.get(key, key): value for key, value in annotations.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"key": "value"}}


_ANNOTATIONS = {
    "wave": "argocd.argoproj.io/sync-wave",
    "hook": "argocd.argoproj.io/hook",
    "delete": "argocd.argoproj.io/hook-delete-policy",
    "options": "argocd.argoproj.io/sync-options",
}


def annotated(obj: Obj, **annotations: str) -> Obj:
    marks = {_ANNOTATIONS.get(key, key): value for key, value in annotations.items()}
    metadata = obj["metadata"] | {"annotations": (obj["metadata"].get("annotations") or {}) | marks}
    return obj | {"metadata": metadata}


def application(name: str, url: str, path: str, **fields: Any) -> Obj:
    """Automated, as the cluster's ApplicationSet makes them, in a namespace of its own name."""
    automated = fields.pop("automated", {"prune": True, "selfHeal": True})
    policy: Obj = {"syncOptions": fields.pop("options", ["ServerSideApply=true", "CreateNamespace=true"])}
    if automated is not None:
        policy["automated"] = automated
    if "retry" in fields:
        policy["retry"] = fields.pop("retry")
    metadata: Obj = {"name": name, "namespace": "argocd"}
    if "finalizers" in fields:
        metadata["finalizers"] = fields.pop("finalizers")
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": metadata,
        "spec": {
            "project": "default",
            "source": {"repoURL": url, "targetRevision": "main", "path": path},
            "destination": {"server": LOCAL, "namespace": name},
            "syncPolicy": policy,
        }
        | fields,
    }


def application_set(**changes: Any) -> Obj:
    """The cluster's own set, as it is rendered."""
    labels = ("cluster_type", "environment", "region_alias", "aws_region")
    spec: Obj = {
        "goTemplate": True,
        "generators": [
            {
                "matrix": {
                    "generators": [
                        {"clusters": {"selector": {"matchLabels": {"argocd.argoproj.io/secret-type": "cluster"}}}},
                        {
                            "git": {
                                "directories": [
                                    {"path": "argocd/config/{{ .metadata.labels.cluster_type }}/*"},
                                    {"path": "argocd/config/shared/*"},
                                ],
                                "repoURL": "{{ .metadata.annotations.git_repo }}",
                                "revision": "{{ .metadata.annotations.git_revision }}",
                            }
                        },
                    ]
                }
            }
        ],
        "template": {
            "metadata": {
                "name": "{{ .path.basename }}",
                "labels": {label: f"{{{{ .metadata.labels.{label} }}}}" for label in labels},
            },
            "spec": {
                "project": "default",
                "destination": {"namespace": "{{ .path.basename }}", "server": "{{ .server }}"},
                "syncPolicy": {
                    "automated": {"prune": True, "selfHeal": True},
                    "syncOptions": ["ServerSideApply=true", "CreateNamespace=true"],
                },
                "sources": [
                    {
                        "helm": {
                            "valueFiles": [
                                "values.yaml",
                                "$values/deploy/{{ .metadata.labels.environment }}/{{ .metadata.labels.region_alias }}"
                                "/argocd/{{ .metadata.labels.cluster_type }}-values.yaml",
                            ],
                            "valuesObject": {"global": {"region": "{{ .metadata.labels.aws_region }}"}},
                        },
                        "path": "{{ .path.path }}",
                        "repoURL": "{{ .metadata.annotations.git_repo }}",
                        "targetRevision": "{{ .metadata.annotations.git_revision }}",
                    },
                    {
                        "repoURL": '{{ .metadata.annotations.git_repo | replace "github.com" "github.com:443" }}',
                        "targetRevision": "{{ .metadata.annotations.git_revision }}",
                        "ref": "values",
                    },
                ],
            },
        },
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": "root-applicationset", "namespace": "argocd"},
        "spec": spec | changes,
    }


CHART = checkout() / "argocd" / "config" / "shared" / "argocd"


class GitOpsCluster:
    """The real API and controllers with a node's stand-in, and GitOps beside them: a cluster that follows Git."""

    def __init__(self, directory: Path, helm: str) -> None:
        self.cluster = Cluster(directory / "cluster")
        self.client = self.cluster.client
        self._cache = directory / "gitops-cache"
        self._helm = helm
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.cluster.start()
        await self.cluster.control()

    async def install_definitions(self) -> None:
        """What the bootstrap task leaves behind, for tests that are not about it."""
        await self.cluster.namespace("argocd")
        for file in sorted((CHART / "crds").glob("*.yaml")):
            await self.client.create(yaml.safe_load(file.read_text()))
        spec = {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]}
        await self.put(
            {
                "apiVersion": API_VERSION,
                "kind": "AppProject",
                "metadata": {"name": "default", "namespace": "argocd"},
                "spec": spec,
            }
        )

    async def follow(self) -> None:
        """Start GitOps, as the pod's process does."""
        self.gitops = GitOps(self.cluster.api.client("argocd"), "argocd", self._cache, helm=self._helm)
        self._running = asyncio.create_task(self.gitops.run())

    async def unfollow(self) -> None:
        if self._running:
            await end(self._running)
            self._running = None

    async def stop(self) -> None:
        await self.unfollow()
        await self.cluster.stop()

    async def put(self, obj: Obj) -> Obj:
        return await self.client.apply(obj, field_manager="somebody", force=True)

    async def app(self, name: str) -> Obj:
        found = await self.client.get_or_none(API_VERSION, "Application", name, "argocd")
        assert found is not None, f"no Application {name}"
        return found

    async def apps(self) -> list[str]:
        return sorted(name_of(app) for app in await self.client.list(API_VERSION, "Application", "argocd"))

    async def settled(self, name: str, sync: str = "Synced", health: str = "Healthy", commit: str = "") -> Obj:
        async def check() -> Obj | None:
            app = await self.app(name)
            status = app.get("status") or {}
            at = status.get("sync") or {}
            assert (at.get("status"), (status.get("health") or {}).get("status")) == (sync, health), status
            assert commit in ("", at.get("revision"), *(at.get("revisions") or ())), at
            return app

        found: Obj = await eventually(check, f"{name} {sync} {health}")
        return found

    async def synced(self, name: str, commit: str = "") -> Obj:
        """The operation that ended well, after its last hook."""

        async def check() -> Obj | None:
            state: Obj = ((await self.app(name)).get("status") or {}).get("operationState") or {}
            at = (state.get("syncResult") or {}).get("revision")
            return state if state.get("phase") == "Succeeded" and commit in ("", at) else None

        found: Obj = await eventually(check, f"{name} is synced")
        return found

    async def condition(self, name: str, kind: str) -> str:
        async def check() -> str:
            status = (await self.app(name)).get("status") or {}
            return next((str(c["message"]) for c in status.get("conditions") or [] if c["type"] == kind), "")

        return str(await eventually(check, f"{name} has {kind}"))

    async def found(self, api_version: str, kind: str, name: str, namespace: str) -> Obj:
        found: Obj = await eventually(
            lambda: self.client.get_or_none(api_version, kind, name, namespace), f"{kind} {name}"
        )
        return found

    async def gone(self, api_version: str, kind: str, name: str, namespace: str) -> None:
        async def check() -> bool:
            return await self.client.get_or_none(api_version, kind, name, namespace) is None

        await eventually(check, f"{kind} {name} is gone")


def identity_secret(url: str, **changes: str) -> Obj:
    labels = {
        "argocd.argoproj.io/secret-type": "cluster",
        "cluster_type": "regional-cluster",
        "environment": "local",
        "region_alias": "local",
        "aws_region": "us-west-2",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "local-cluster-identity",
            "namespace": "argocd",
            "labels": labels | changes,
            "annotations": {"git_repo": url, "git_revision": "main"},
        },
        "stringData": {"name": "in-cluster", "server": LOCAL, "config": "{}"},
    }
