"""A cluster of a region on Kubernetes' own control plane: its programs as supervised services.

What the embedded API has from its first start is put in here: the CRD of the secrets-store add-on, and what the node
may do. Claims are served by our volume controller, in the role of a CSI driver.
"""

from __future__ import annotations

import asyncio
import logging

from regional.core.problems import UserError
from regional.kube.apiserver.bootstrapping import packaged
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj
from regional.kube.real.flags import NOT_ON_PROCESSES, ControlPlane, Process, processes
from regional.kube.real.programs import Programs, require_programs
from regional.local.addresses import API_PORT
from regional.local.provisioner.cluster_directory import ClusterDirectory
from regional.local.provisioner.context import Context
from regional.local.supervisor_client import ServiceSpec

log = logging.getLogger(__name__)

NODE_ROLE = "regional:node"
_READY_SECONDS = 120.0
_STOP_SECONDS = 10.0
_DESCRIPTIONS = {
    "etcd": "etcd of {}",
    "api": "Kubernetes API of {} (Kubernetes' own)",
    "controllers": "kube-controller-manager of {}",
    "scheduler": "kube-scheduler of {}",
}


def control_plane_of(directory: ClusterDirectory) -> ControlPlane:
    return ControlPlane(
        name=directory.name,
        directory=directory.directory,
        address=directory.block.api,
        port=API_PORT,
        service_cidr=directory.block.service_cidr,
        fsync=True,  # it stands for a region's cluster: what it acknowledged must outlive the machine's outage
        without=NOT_ON_PROCESSES,
        # It would protect volumes with a finalizer that only the controllers left out above take away; ours protects.
        extra_api_flags=("--disable-admission-plugins=StorageObjectInUseProtection",),
    )


async def run_real_control_plane(directory: ClusterDirectory, context: Context) -> None:
    programs = require_programs()
    plane = control_plane_of(directory)
    await asyncio.to_thread(plane.ensure_keys)
    for process in processes(plane, programs):
        await context.supervisor.ensure(_service(directory.name, process), _READY_SECONDS)
    await _furnish(directory)
    await context.supervisor.ensure(_own_controllers(directory, plane, programs))
    log.info("Kubernetes' own control plane runs", extra={"cluster": directory.name, "address": directory.endpoint})


def _service(cluster: str, process: Process) -> ServiceSpec:
    return ServiceSpec(
        name=f"{cluster}-{process.name}",
        description=_DESCRIPTIONS[process.name].format(cluster),
        kind="exec",
        argv=process.argv,
        env=process.env,
        address=process.address,
        ready=process.ready,
        needs=[f"{cluster}-{name}" for name in process.needs],
        stop_grace=_STOP_SECONDS,
    )


def _own_controllers(directory: ClusterDirectory, plane: ControlPlane, programs: Programs) -> ServiceSpec:
    which = ["--controllers", "volume"] if programs.has_controllers else ["--without", "endpoints"]
    return ServiceSpec(
        name=f"{directory.name}-volumes" if programs.has_controllers else f"{directory.name}-own-controllers",
        description=f"Controllers of ours for {directory.name}: " + " ".join(which).lstrip("-"),
        kind="fork",
        argv=[
            *("regionctl", "serve", "kube-controllers"),
            *("--cluster", directory.name),
            *("--kubeconfig", str(plane.manager_kubeconfig)),
            *("--root-ca", str(plane.pki / "ca.crt")),
            *which,
        ],
        needs=[f"{directory.name}-api"],
    )


async def _furnish(directory: ClusterDirectory) -> None:
    client = Client.from_kubeconfig(directory.admin_kubeconfig, user_agent="regionctl")
    try:
        for obj in furniture():
            await client.apply(obj, field_manager="regionctl", force=True)
    except ApiError as error:
        raise UserError(f"the API of {directory.name} refused {error.message}", "see `regionctl logs`") from error
    finally:
        await client.close()


def furniture() -> list[Obj]:
    """Add-ons' CRDs as the embedded API has them, and the node's rights: it reads Secrets of pods before they are bound
    to it, which the node authorizer would not let it."""
    embedded = [obj for file in packaged() for obj in file]
    role = next(o for o in embedded if (o["kind"], o["metadata"]["name"]) == ("ClusterRole", "system:node"))
    return [
        *(obj for obj in embedded if obj["kind"] == "CustomResourceDefinition"),
        {**role, "metadata": {"name": NODE_ROLE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NODE_ROLE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NODE_ROLE},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        },
    ]
