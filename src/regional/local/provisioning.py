"""Running the pipelines of tekton/ for a region on this machine: what they get to see, and what they tell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from regional.core import paths
from regional.local import source
from regional.local.addresses import Addresses
from regional.local.provisioner.roots.api_gateway import EdgeFiles
from regional.local.supervisor_client import socket_path
from regional.local.tools import ensure_kubectl_and_helm
from regional.pipelines.catalog import load_catalog
from regional.pipelines.events import Event, RunResult
from regional.pipelines.model import Value
from regional.pipelines.record import RunRecord
from regional.pipelines.runner import PipelineRunner

Report = Callable[[str, str, float], None]
_REAL = ("XDG_CACHE_HOME", "KUBEBUILDER_ASSETS")  # where Kubernetes' own programs are found
_KEPT = (
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "REGIONAL_HOME",
    "REGIONAL_RUNTIME",
    "REGIONAL_CHECKOUT",
    "REGIONAL_TOOLS",
    *_REAL,
)


class RegionRecord(msgspec.Struct):
    """region.json: what `up` decided, for `up` after `down`, for `status` and for pipelines run by hand."""

    version: int
    region: str
    environment: str
    aws_region: str
    checkout: str
    commit: str
    management_clusters: list[str]
    complete: bool = False  # the pipelines of `commit` have all succeeded, with `code`
    code: str = ""  # the modules that they ran with: see local.code
    kube: str = "embedded"  # or `real`: the control plane of its own clusters, for as long as its data lives


class Provisioning:
    def __init__(self, region: paths.RegionPaths, record: RegionRecord, workspace: Path) -> None:
        self._region = region
        self._record = record
        self._workspace = workspace
        self._catalog = load_catalog(workspace / "tekton")
        self._runner = PipelineRunner(
            region.pipelines, socket_path(region).with_name("warm.sock"), self._environment(), code=record.code
        )

    def _environment(self) -> dict[str, str]:
        """All that steps see. The organisation's own credentials, as the central pipeline has them."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        programs = [str(ensure_kubectl_and_helm()), "/usr/local/bin", "/usr/bin", "/bin"]
        return {
            **kept,
            "PATH": ":".join([*programs, os.environ.get("PATH", "")]),
            "REGION": self._record.region,
            "PROVISIONER": "local",
            "KUBE": self._record.kube,
            "AWS_ENDPOINT_URL": f"http://{Addresses(self._region).block('region').infra(3)}:4566",
            "AWS_REGION": self._record.aws_region,
            "AWS_ACCESS_KEY_ID": "central",
            "AWS_SECRET_ACCESS_KEY": "central",
            # Steps that call the region's own API trust its edge.
            "AWS_CA_BUNDLE": str(EdgeFiles(self._region).trust),
        }

    async def whole_region(self, report: Report) -> None:
        """The Regional Cluster, and beside it the Management Clusters as soon as there is a broker to talk through, and
        an account to try it with as soon as there is an edge. What registers with the API waits for it in its step."""
        reached = {"broker": asyncio.Event(), "api-gateway": asyncio.Event()}

        def watch(event: Event) -> None:
            if event.task in reached and event.kind in ("task-finished", "task-reused"):
                reached[event.task].set()

        async def management(cluster: str) -> None:
            await reached["broker"].wait()
            name = f"provision-management-{cluster}"
            await self._run("provision-management", name, {"cluster-id": cluster}, report)

        async def customer() -> None:
            await reached["api-gateway"].wait()
            await self._run("provision-customer", "provision-customer", {}, report)

        async def regional() -> None:
            await self._run("provision-regional", "provision-regional", {}, report, watch=watch)
            for event in reached.values():
                event.set()  # a run that had succeeded before tells nothing of its tasks

        async with asyncio.TaskGroup() as group:
            group.create_task(regional())
            group.create_task(customer())
            for cluster in self._record.management_clusters:
                group.create_task(management(cluster))

    async def by_name(
        self,
        pipeline: str,
        cluster: str,
        report: Report,
        *,
        fresh: bool = True,
        watch: Callable[[Event], None] = lambda event: None,
    ) -> RunResult:
        extra: dict[str, Value] = {"cluster-id": cluster} if cluster else {}
        return await self._run(pipeline, run_name(pipeline, cluster), extra, report, fresh=fresh, watch=watch)

    def last_run(self, pipeline: str, cluster: str) -> RunRecord | None:
        return self._runner.store.load(run_name(pipeline, cluster))

    async def _run(
        self,
        pipeline: str,
        name: str,
        extra: dict[str, Value],
        report: Report,
        *,
        fresh: bool = False,
        watch: Callable[[Event], None] = lambda event: None,
    ) -> RunResult:
        known: dict[str, Value] = {
            "environment": self._record.environment,
            "region": self._record.region,
            "aws-region": self._record.aws_region,
            "management-clusters": list(self._record.management_clusters),
            "commit": self._record.commit,
            "git-repo": self._region.git.as_uri(),
            "git-revision": source.BRANCH,
            **extra,
        }
        declared = {spec.name for spec in self._catalog.pipeline(pipeline).spec.params}
        params = {key: value for key, value in known.items() if key in declared}
        result = await self._runner.run(
            self._catalog,
            pipeline,
            name,
            params,
            _telling(report, watch),
            workspaces={"source": self._workspace},
            fresh=fresh,
        )
        return result.require_success()

    def pipelines(self) -> list[str]:
        return sorted(self._catalog.pipelines)


def run_name(pipeline: str, cluster: str) -> str:
    return f"{pipeline}-{cluster}" if cluster else pipeline


def _telling(report: Report, watch: Callable[[Event], None]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        watch(event)
        what = f"{event.run}: {event.task}"
        if event.kind == "task-finished":
            report("task", what, event.seconds)
        elif event.kind == "task-retried":
            report("note", f"{what} is tried again: {event.message}", 0)
        elif event.kind == "task-failed":
            report("failed", f"{what}: {event.message}", event.seconds)
        elif event.kind == "run-finished":
            report("step", event.run, event.seconds)

    return tell
