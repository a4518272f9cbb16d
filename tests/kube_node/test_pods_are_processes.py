"""A pod bound to the node becomes a process; what the process does becomes the pod's status."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from regional.kube.objects import is_true, status_of
from tests.kube_node.harness import NodeCluster, Warm, ask, eventually, pod, readiness


async def test_a_pod_serves_on_its_own_address_and_becomes_ready(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    web = await cluster.ready("web")
    status = status_of(web)
    assert status["phase"] == "Running"
    assert status["hostIP"] == cluster.block.node
    assert await ask(status["podIP"]) == "web"
    assert all(is_true(web, kind) for kind in ("PodScheduled", "Initialized", "ContainersReady"))
    (container,) = status["containerStatuses"]
    assert container["restartCount"] == 0
    assert container["started"]
    assert cluster.process_of(web).alive()
    for reason in ("Pulled", "Created", "Started"):
        assert (await cluster.event(reason))["involvedObject"]["fieldPath"] == "spec.containers{main}"


async def test_a_pod_gets_only_what_its_manifest_says(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("web", "http", "8000", env=[{"name": "LEVEL", "value": "$(POD_IP)!"}]))
    address = status_of(await cluster.ready("web"))["podIP"]
    expected = {"HOME", "HOSTNAME", "HOSTS_FILE", "LANG", "LEVEL", "PATH", "POD_IP", "POD_ROOT", "TMPDIR"}
    expected |= {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS"}

    async def names() -> set[str]:
        return set((await ask(address, "/all")).split())

    seen = await eventually(names)
    assert seen - {"LC_CTYPE"} == expected
    assert await ask(address, "/env/LEVEL") == f"{address}!"
    token = await ask(address, "/file/var/run/secrets/kubernetes.io/serviceaccount/token")
    assert token.count(".") == 2
    assert await ask(address, "/file/var/run/secrets/kubernetes.io/serviceaccount/namespace") == "default"


async def test_a_deleted_pod_is_asked_to_leave_and_then_gone(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    web = await cluster.ready("web")
    process, directory = cluster.process_of(web), cluster.root / "pods" / web["metadata"]["uid"]
    log = directory / "containers/main/log"
    assert "serving" in log.read_text()
    await cluster.client.delete("v1", "Pod", "web", "default")
    await cluster.gone("web")
    assert not process.alive()
    await eventually(lambda: not directory.exists())


async def test_a_stubborn_process_is_killed_after_its_grace(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("rock", "stubborn", pod_terminationGracePeriodSeconds=1))
    process = cluster.process_of(await cluster.ready("rock"))
    await cluster.client.delete("v1", "Pod", "rock", "default")
    await cluster.gone("rock")
    assert not process.alive()


async def test_scaling_a_deployment_to_zero_ends_the_process(cluster: NodeCluster) -> None:
    template = pod("web", "http", "8000", readinessProbe=readiness())
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]},
        },
    }
    await cluster.client.create(deployment)

    async def available() -> bool:
        found = await cluster.client.get("apps/v1", "Deployment", "web", "default")
        return status_of(found).get("availableReplicas") == 1

    await eventually(available)
    (running,) = await cluster.client.list("v1", "Pod", "default", labels="app=web")
    process = cluster.process_of(running)
    await cluster.client.patch("apps/v1", "Deployment", "web", "default", {"spec": {"replicas": 0}})
    await eventually(lambda: not process.alive())


async def test_a_killed_process_comes_back_at_once_and_later_with_back_off(cluster: NodeCluster) -> None:
    cluster.settings.restart_backoff = cluster.settings.restart_backoff_cap = 10.0  # long enough to be seen
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    web = await cluster.ready("web")
    cluster.process_of(web).signal(signal.SIGKILL)
    again = await cluster.restarted("web", 1)
    (status,) = status_of(again)["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert status["lastState"]["terminated"]["reason"] == "Error"
    cluster.process_of(again).signal(signal.SIGKILL)
    named = f"web_default({web['metadata']['uid']})"
    text = (await cluster.waiting("web", "CrashLoopBackOff"))["message"]
    assert text == f"back-off 10s restarting failed container=main pod={named}"
    await cluster.restarted("web", 2)
    await cluster.event("BackOff", f"Back-off restarting failed container main in pod {named}")


async def test_restart_policies_decide_what_an_end_means(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("good", "exit", "0", pod_restartPolicy="Never"))
    await cluster.client.create(pod("bad", "exit", "3", pod_restartPolicy="Never"))
    volumes = [{"name": "scratch", "emptyDir": {}}]
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    await cluster.client.create(
        pod("retry", "once", "/scratch/flag", pod_restartPolicy="OnFailure", pod_volumes=volumes, volumeMounts=mounts)
    )
    good, bad = await cluster.phase("good", "Succeeded"), await cluster.phase("bad", "Failed")
    assert status_of(good)["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert status_of(bad)["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    retry = await cluster.phase("retry", "Succeeded")
    assert status_of(retry)["containerStatuses"][0]["restartCount"] == 1


async def test_init_containers_run_in_order_before_the_others(cluster: NodeCluster) -> None:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    order = "/bin/sh"
    init = [
        {
            "name": name,
            "image": f"exec:{order}",
            "args": ["-c", f"echo {name} >> $POD_ROOT/scratch/order"],
            "volumeMounts": mounts,
        }
        for name in ("first", "second")
    ]
    sidecar = {"name": "side", "image": "exec:sleep", "args": ["600"], "restartPolicy": "Always"}
    await cluster.client.create(
        pod(
            "web",
            "http",
            "8000",
            readinessProbe=readiness(),
            volumeMounts=mounts,
            pod_initContainers=[*init, sidecar],
            pod_volumes=[{"name": "scratch", "emptyDir": {}}],
        )
    )
    web = await cluster.ready("web")
    assert await ask(status_of(web)["podIP"], "/file/scratch/order") == "first\nsecond\n"
    states = {s["name"]: s["state"] for s in status_of(web)["initContainerStatuses"]}
    assert states["second"]["terminated"]["exitCode"] == 0
    assert "running" in states["side"]
    helper = cluster.process_of(web, "side")
    await cluster.client.delete("v1", "Pod", "web", "default")
    await cluster.gone("web")
    assert not helper.alive()


async def test_a_foreign_image_cannot_be_pulled_and_says_why(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("proxy", image="nginx:1.27"))
    state = await cluster.waiting("proxy", "ImagePullBackOff")
    assert state["message"].startswith('Back-off pulling image "nginx:1.27": ErrImagePull: ')
    assert "pods are processes here" in state["message"]
    await cluster.event("Failed", 'Failed to pull image "nginx:1.27"')
    await cluster.event("BackOff", 'Back-off pulling image "nginx:1.27"')
    await cluster.client.delete("v1", "Pod", "proxy", "default")
    await cluster.gone("proxy")


async def test_probes_take_a_sick_pod_out_and_restart_a_dead_one(cluster: NodeCluster) -> None:
    fast = readiness(failureThreshold=1)
    started = readiness(failureThreshold=1000)  # on a busy machine it takes longer than one period to come up
    await cluster.client.create(pod("sick", "http", "8000", startupProbe=started, readinessProbe=fast))
    await cluster.client.create(pod("dead", "http", "8000", startupProbe=started, livenessProbe=fast))
    sick, dead = await cluster.ready("sick"), await cluster.ready("dead")
    await eventually(lambda: ask(status_of(dead)["podIP"], "/sick"))
    await ask(status_of(sick)["podIP"], "/sick")
    await cluster.unready("sick")
    await cluster.restarted("dead", 1)
    await cluster.event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
    await cluster.event("Killing", "failed liveness probe")
    assert status_of(await cluster.pod("sick") or {})["containerStatuses"][0]["restartCount"] == 0


async def test_an_exec_probe_runs_beside_the_container(cluster: NodeCluster) -> None:
    check = {"exec": {"command": ["sh", "-c", "test -f $POD_ROOT/tmp/up"]}, "periodSeconds": 1, "timeoutSeconds": 5}
    script = "sleep 0.3; touch $POD_ROOT/tmp/up; exec sleep 600"
    await cluster.client.create(
        pod("script", image="exec:sh", command=["sh", "-c", script], readinessProbe=check, startupProbe=check)
    )
    await cluster.ready("script")


async def test_processes_left_by_a_container_do_not_outlive_it(cluster: NodeCluster) -> None:
    script = "sleep 600 & echo $! > $POD_ROOT/tmp/pid; exec sleep 600"
    await cluster.client.create(pod("family", image="exec:sh", command=["sh", "-c", script]))
    family = await cluster.ready("family")
    file = cluster.root / "pods" / family["metadata"]["uid"] / "containers/main/rootfs/tmp/pid"
    child = Path("/proc") / (await eventually(lambda: file.exists() and file.read_text().strip()))
    assert child.exists()
    await cluster.client.delete("v1", "Pod", "family", "default")
    await cluster.gone("family")
    await eventually(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())


async def test_a_pod_waits_for_its_warm_parent(region_directory: Path, own_warm: Warm) -> None:
    async with NodeCluster(region_directory, own_warm).running() as cluster:
        await cluster.client.create(pod("first", "http", "8000", readinessProbe=readiness()))
        first = await cluster.ready("first")
        own_warm.kill()
        await cluster.client.create(pod("second", "http", "8000", readinessProbe=readiness()))
        assert "warm parent" in (await cluster.waiting("second", "ContainerCreating"))["message"]
        assert cluster.process_of(first).alive()
        await asyncio.to_thread(own_warm.start)
        await cluster.ready("second")
        assert status_of(await cluster.pod("first") or {})["containerStatuses"][0]["restartCount"] == 0
