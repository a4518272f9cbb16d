"""The data of a region's own clusters: where it lies, and how a cluster is stopped for a restore and started again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.kube.apiserver import restoring, snapshots
from regional.kube.apiserver.restoring import Restored
from regional.local.inspection import clusters
from regional.local.supervisor import services_file
from regional.local.supervisor_client import ServiceSpec, SupervisorClient


def data_file(paths: RegionPaths, cluster: str) -> Path:
    known = clusters(paths)
    if cluster not in known:
        hint = f"clusters: {', '.join(known)}" if known else "start the region with `regionctl up`"
        raise UserError(f"region {paths.region} has no cluster {cluster!r}", hint)
    if (etcd := paths.cluster(cluster) / "etcd").exists():
        raise UserError(
            f"cluster {cluster} runs on Kubernetes' own control plane and keeps its objects in etcd ({etcd})",
            "etcd's own tools make and restore its snapshots",
        )
    return paths.cluster(cluster) / "data" / "kube.db"


def chosen_snapshot(file: Path, wanted: str) -> Path:
    """`latest` is the newest one that is sound."""
    if wanted != "latest":
        return Path(wanted)
    snapshot = snapshots.last_good(file)
    if snapshot is None:
        raise UserError(f"there is no good snapshot in {snapshots.folder_of(file)}", "name one with --from FILE")
    return snapshot.path


async def restore_served(
    paths: RegionPaths, cluster: str, snapshot: Path, progress: snapshots.Progress | None = None
) -> Restored:
    """Stops the cluster's API, restores, and starts it again, also if the restore was refused."""
    spec = _api_service(paths, cluster)
    supervisor = SupervisorClient.of(paths)
    await supervisor.remove(spec.name)
    try:
        return restoring.restore(data_file(paths, cluster), snapshot, progress)
    finally:
        await supervisor.ensure(spec, timeout=120)


def _api_service(paths: RegionPaths, cluster: str) -> ServiceSpec:
    file = services_file(paths)
    services = msgspec.json.decode(file.read_bytes(), type=list[ServiceSpec]) if file.exists() else []
    for service in services:
        if service.name == f"{cluster}-api":
            return service
    raise UserError(f"the API of cluster {cluster} is not running", "leave --stop away; `regionctl up` starts it again")
