"""The end of a hosted cluster: no namespace, pod, process, Secret, volume or file is left, whenever it comes."""

from __future__ import annotations

import asyncio
import random

from regional.core.process import ProcessRef
from regional.kube.client import ApiError
from regional.kube.objects import Obj, annotations_of, condition_of, name_of, namespace_of, uid_of
from tests.hypershift.harness import HYPERSHIFT, Operated, eventually, hosted_cluster, node_pool, pull_secret

CLUSTER = "hypershift.openshift.io/cluster"
KINDS = (
    *(("v1", kind) for kind in ("Namespace", "Secret", "ConfigMap", "Service", "ServiceAccount", "Pod")),
    *(("v1", kind) for kind in ("PersistentVolumeClaim", "PersistentVolume")),
    *(("apps/v1", kind) for kind in ("StatefulSet", "ControllerRevision")),
    *((HYPERSHIFT, kind) for kind in ("NodePool", "HostedControlPlane", "ControlPlaneComponent")),
)


async def leftovers(mc: Operated, name: str, namespace: str) -> list[str]:
    """Whatever says that it was made for this cluster, or lives in its control plane's namespace."""
    plane = f"{namespace}-{name}"
    found: list[str] = []
    for api_version, kind in KINDS:
        for obj in await mc.client.list(api_version, kind):
            claim = (obj.get("spec") or {}).get("claimRef") or {}
            if (
                annotations_of(obj).get(CLUSTER) == f"{namespace}/{name}"
                or namespace_of(obj) == plane
                or claim.get("namespace") == plane
                or (kind == "NodePool" and obj["spec"]["clusterName"] == name and namespace_of(obj) == namespace)
            ):
                found.append(f"{kind} {namespace_of(obj)}/{name_of(obj)}")
    return found


class Footprint:
    """What one control plane has on the machine: looked up while it runs, looked for when it is gone."""

    def __init__(self, mc: Operated, process: ProcessRef, pod: str, volume: str) -> None:
        self._mc, self._process, self._pod, self._volume = mc, process, pod, volume

    @classmethod
    async def of(cls, mc: Operated, name: str, namespace: str) -> Footprint:
        pod = await mc.api_pod(name, namespace)
        claim = await mc.client.get("v1", "PersistentVolumeClaim", "data-kube-apiserver-0", f"{namespace}-{name}")
        footprint = cls(mc, await mc.api_process(name, namespace), uid_of(pod), str(claim["spec"]["volumeName"]))
        assert footprint.present() == ["process", "files", "data"]
        return footprint

    def present(self) -> list[str]:
        cluster = self._mc.cluster
        found = {
            "process": self._process.alive(),
            "files": self._pod in cluster.pod_directories(),
            "data": self._volume in cluster.volumes(),
        }
        return [what for what, there in found.items() if there]


async def test_a_deleted_cluster_is_gone_with_all_that_it_had(mc: Operated) -> None:
    await mc.create("whole", "ending")
    await mc.available("whole", "ending")
    await mc.create_pool("a", "ending", "whole", 2)
    await mc.create_pool("b", "ending", "whole", 1)
    await mc.pool_ready("a", "ending", 2)
    await mc.pool_ready("b", "ending", 1)
    await mc.guest_kubectl("whole", "ending", "create", "configmap", "mine", "--from-literal=a=b")
    footprint = await Footprint.of(mc, "whole", "ending")
    await mc.delete("whole", "ending")
    await mc.gone("whole", "ending")
    assert await leftovers(mc, "whole", "ending") == []
    assert footprint.present() == []
    assert await mc.client.get_or_none("v1", "Secret", "pull-secret", "ending") is not None


async def test_the_same_name_can_be_used_again_and_starts_empty(mc: Operated) -> None:
    await mc.create("again", "again")
    await mc.available("again", "again")
    await mc.guest_kubectl("again", "again", "create", "namespace", "from-before")
    first = await mc.secret("again-admin-kubeconfig", "again")
    await mc.delete("again", "again")
    await mc.gone("again", "again")
    await mc.create("again", "again")
    await mc.available("again", "again")
    assert "from-before" not in await mc.guest_kubectl("again", "again", "get", "ns", "-o", "name")
    assert await mc.secret("again-admin-kubeconfig", "again") != first


async def test_a_cluster_deleted_while_it_is_made_ends_clean(mc: Operated) -> None:
    """At many moments, from before the operator has seen it until after it is available."""
    await mc.namespace("hasty")
    await mc.client.create(pull_secret("hasty"))
    chosen = random.Random(4)
    names = [f"c{number}" for number in range(8)]

    async def live_shortly(name: str, seconds: float) -> None:
        await mc.client.create(hosted_cluster(name, "hasty"))
        await mc.client.create(node_pool(f"{name}-pool", "hasty", name, replicas=1))
        await asyncio.sleep(seconds)
        await mc.delete(name, "hasty")
        await mc.gone(name, "hasty")

    moments = [0.0, 0.02, *(chosen.uniform(0.05, 1.5) for _ in names[2:])]
    await asyncio.gather(*(live_shortly(name, moment) for name, moment in zip(names, moments, strict=True)))
    for name in names:
        assert await leftovers(mc, name, "hasty") == [], name


async def test_the_namespace_of_a_cluster_may_be_deleted_with_it(mc: Operated) -> None:
    """What an agent does that removes a whole bundle: everything at once, in no order."""
    await mc.create("all", "bundle")
    await mc.available("all", "bundle")
    await mc.create_pool("workers", "bundle", "all", 1)
    await mc.pool_ready("workers", "bundle", 1)
    footprint = await Footprint.of(mc, "all", "bundle")
    await mc.client.delete("v1", "Namespace", "bundle")

    async def gone() -> bool:
        return await mc.client.get_or_none("v1", "Namespace", "bundle") is None

    await eventually(gone)
    assert await leftovers(mc, "all", "bundle") == []
    assert footprint.present() == []


async def test_a_paused_cluster_is_deleted_all_the_same(mc: Operated) -> None:
    await mc.create("asleep", "asleep")
    await mc.available("asleep", "asleep")
    await mc.patch("HostedCluster", "asleep", "asleep", {"spec": {"pausedUntil": "true"}})
    await mc.told("HostedCluster", "asleep", "asleep", "ReconciliationActive", "False", "ReconciliationPaused")
    await mc.delete("asleep", "asleep")
    await mc.gone("asleep", "asleep")
    assert await leftovers(mc, "asleep", "asleep") == []


async def test_a_cluster_that_was_never_made_is_deleted_at_once(mc: Operated) -> None:
    await mc.namespace("never")
    await mc.client.create(hosted_cluster("never", "never", pullSecret={"name": "absent"}))
    await mc.told("HostedCluster", "never", "never", "ValidReleaseImage", "False")
    await mc.delete("never", "never")
    await mc.gone("never", "never")


async def test_who_blocks_a_deletion_is_named(mc: Operated) -> None:
    await mc.create("stuck", "stuck")
    await mc.available("stuck", "stuck")
    await mc.create_pool("workers", "stuck", "stuck", 1)
    await mc.pool_ready("workers", "stuck", 1)
    held = await mc.client.get(HYPERSHIFT, "NodePool", "workers", "stuck")
    finalizers = [*held["metadata"]["finalizers"], "example.com/mine"]
    await mc.patch("NodePool", "workers", "stuck", {"metadata": {"finalizers": finalizers}})
    await mc.delete("stuck", "stuck")
    hosted = await mc.told("HostedCluster", "stuck", "stuck", "HostedClusterDeleting", "True", "WaitingForNodePools")
    assert "workers" in (condition_of(hosted, "HostedClusterDeleting") or {})["message"]
    assert await mc.client.get_or_none("v1", "Namespace", "stuck-stuck") is not None

    async def released() -> Obj | None:
        live = await mc.client.get(HYPERSHIFT, "NodePool", "workers", "stuck")
        return live if live["metadata"]["finalizers"] == ["example.com/mine"] else None

    await eventually(released)
    await mc.patch("NodePool", "workers", "stuck", {"metadata": {"finalizers": None}})
    await mc.gone("stuck", "stuck")
    assert await leftovers(mc, "stuck", "stuck") == []


async def test_a_foreign_object_in_the_namespace_goes_too_and_a_foreign_finalizer_is_waited_for(mc: Operated) -> None:
    await mc.create("guest", "foreign")
    await mc.available("guest", "foreign")
    thing = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": "foreign-guest", "finalizers": ["example.com/theirs"]},
    }
    await mc.client.create(thing)
    await mc.delete("guest", "foreign")
    await mc.told("HostedCluster", "guest", "foreign", "HostedClusterDeleting", "True", "WaitingForNamespace")
    await mc.client.patch("v1", "ConfigMap", "theirs", "foreign-guest", {"metadata": {"finalizers": None}})
    await mc.gone("guest", "foreign")
    assert await leftovers(mc, "guest", "foreign") == []


async def test_a_secret_of_the_customers_under_our_name_is_not_taken_away(mc: Operated) -> None:
    await mc.namespace("theirs2")
    own = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "never-admin-kubeconfig", "namespace": "theirs2"},
        "data": {},
    }
    await mc.client.create(own)
    await mc.client.create(hosted_cluster("never", "theirs2", pullSecret={"name": "absent"}))
    await mc.told("HostedCluster", "never", "theirs2", "ValidReleaseImage", "False")
    await mc.delete("never", "theirs2")
    await mc.gone("never", "theirs2")
    try:
        await mc.client.get("v1", "Secret", "never-admin-kubeconfig", "theirs2")
    except ApiError:
        raise AssertionError("a Secret that was not ours is gone") from None
