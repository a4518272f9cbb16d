"""What kubelet promises about a container's life: hooks, sidecars, deadlines, last words, and what is told of them."""

from __future__ import annotations

from typing import Any

from regional.kube.objects import Obj, is_true, status_of
from tests.kube_node.harness import NodeCluster, eventually, pod

_SCRATCH: dict[str, Any] = {
    "pod_volumes": [{"name": "scratch", "emptyDir": {}}],
    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
}


def shell(script: str, **more: Any) -> Obj:
    return {"image": "exec:sh", "command": ["sh", "-c", script], "volumeMounts": _SCRATCH["volumeMounts"]} | more


def shell_pod(name: str, script: str, **more: Any) -> Obj:
    return pod(name, **shell(script), pod_volumes=_SCRATCH["pod_volumes"], **more)


def scratch(cluster: NodeCluster, found: Obj, name: str) -> str:
    file = cluster.root / "pods" / found["metadata"]["uid"] / "volumes/scratch" / name
    return file.read_text() if file.exists() else ""


def container_status(found: Obj, name: str = "main") -> Obj:
    status = status_of(found)
    known = [*status["containerStatuses"], *(status.get("initContainerStatuses") or [])]
    return next(each for each in known if each["name"] == name)


def condition(found: Obj, kind: str) -> Obj:
    return next((c for c in status_of(found).get("conditions") or [] if c["type"] == kind), {})


async def test_sidecars_end_after_the_last_container_and_the_pod_succeeds(cluster: NodeCluster) -> None:
    def sidecar(name: str) -> Obj:
        script = f"trap 'echo {name} >> $POD_ROOT/scratch/ends; exit 0' TERM; while :; do sleep 0.1; done"
        return shell(script, name=name, restartPolicy="Always")

    body = shell_pod("job", "sleep 0.3; echo main >> $POD_ROOT/scratch/ends", pod_restartPolicy="Never")
    body["spec"]["terminationGracePeriodSeconds"] = 60
    body["spec"]["initContainers"] = [sidecar("first"), sidecar("second")]
    await cluster.client.create(body)
    job = await cluster.phase("job", "Succeeded")
    # The last one first: what came up before it may still be needed by it.
    assert scratch(cluster, job, "ends").split() == ["main", "second", "first"]
    for name in ("first", "second"):
        assert "terminated" in container_status(job, name)["state"]
    assert condition(job, "Ready")["reason"] == "PodCompleted"
    assert condition(job, "Initialized")["reason"] == "PodCompleted"
    assert condition(job, "PodReadyToStartContainers")["status"] == "False"


async def test_a_sidecar_gates_what_comes_after_it(cluster: NodeCluster) -> None:
    probe = {"exec": {"command": ["test", "-f", "scratch/go"]}, "periodSeconds": 1, "failureThreshold": 1000}
    body = shell_pod("web", "touch $POD_ROOT/scratch/main; exec sleep 600")
    side = shell("touch $POD_ROOT/scratch/side; exec sleep 600", name="side", restartPolicy="Always")
    body["spec"]["initContainers"] = [side | {"startupProbe": probe | {"timeoutSeconds": 20}}]
    await cluster.client.create(body)

    async def side_runs() -> Obj | None:
        found = await cluster.pod("web")
        if not found or not status_of(found).get("initContainerStatuses"):
            return None
        return found if "running" in container_status(found, "side")["state"] else None

    web = await eventually(side_runs)
    assert container_status(web)["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert condition(web, "Initialized")["message"] == "containers with incomplete status: [side]"
    assert scratch(cluster, web, "main") == ""
    volume = cluster.root / "pods" / web["metadata"]["uid"] / "volumes/scratch"
    assert not (volume / "main").exists()
    (volume / "go").write_text("")
    await cluster.ready("web")
    await eventually(lambda: (volume / "main").exists())


async def test_a_pod_is_ready_only_after_its_post_start_hook(cluster: NodeCluster) -> None:
    wait = "while [ ! -f scratch/go ]; do sleep 0.05; done; echo hooked > scratch/hook"
    body = shell_pod("web", "exec sleep 600")
    body["spec"]["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["sh", "-c", wait]}}}
    body["spec"]["containers"].append(shell("touch $POD_ROOT/scratch/second; exec sleep 600", name="second"))
    await cluster.client.create(body)

    async def running() -> Obj | None:
        found = await cluster.pod("web")
        ok = found is not None and status_of(found).get("containerStatuses")
        return found if ok and found and "running" in container_status(found)["state"] else None

    web = await eventually(running)
    volume = cluster.root / "pods" / web["metadata"]["uid"] / "volumes/scratch"
    assert not is_true(web, "Ready")
    assert not (volume / "second").exists()
    (volume / "go").write_text("")
    web = await cluster.ready("web")
    assert scratch(cluster, web, "hook") == "hooked\n"


async def test_a_failed_post_start_hook_ends_the_container(cluster: NodeCluster) -> None:
    body = shell_pod("web", "exec sleep 600", pod_restartPolicy="Never")
    body["spec"]["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["sh", "-c", "exit 1"]}}}
    await cluster.client.create(body)
    await cluster.phase("web", "Failed")
    await cluster.event("FailedPostStartHook", "PostStartHook failed")
    await cluster.event("Killing", "FailedPostStartHook")


async def test_a_container_that_fails_its_liveness_probe_gets_its_pre_stop_hook(cluster: NodeCluster) -> None:
    probe = {"exec": {"command": ["test", "!", "-f", "scratch/sick"]}, "periodSeconds": 1, "failureThreshold": 1}
    body = shell_pod("web", "exec sleep 600", livenessProbe=probe | {"timeoutSeconds": 20})
    body["spec"]["terminationGracePeriodSeconds"] = 60
    hook = ["sh", "-c", "echo stopping >> scratch/hook; rm scratch/sick"]
    body["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": hook}}}
    await cluster.client.create(body)
    web = await cluster.ready("web")
    (cluster.root / "pods" / web["metadata"]["uid"] / "volumes/scratch/sick").write_text("")
    web = await cluster.restarted("web", 1)
    assert scratch(cluster, web, "hook") == "stopping\n"
    await cluster.event("Killing", "Container main failed liveness probe, will be restarted")
    assert (await cluster.event("Unhealthy", "Liveness probe failed"))["type"] == "Warning"


async def test_a_pod_that_is_active_for_too_long_fails(cluster: NodeCluster) -> None:
    await cluster.client.create(shell_pod("long", "exec sleep 600", pod_activeDeadlineSeconds=1))
    found = await cluster.phase("long", "Failed")
    status = status_of(found)
    assert status["reason"] == "DeadlineExceeded"
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert condition(found, "Ready")["reason"] == "PodFailed"
    for each in status["containerStatuses"]:
        assert "running" not in each["state"]
    await cluster.event("DeadlineExceeded")


async def test_last_words_are_in_the_status(cluster: NodeCluster) -> None:
    never: dict[str, Any] = {"pod_restartPolicy": "Never"}
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await cluster.client.create(shell_pod("file", "echo bye > $POD_ROOT/dev/termination-log", **never))
    elsewhere = shell_pod(
        "own", "printf gone > $POD_ROOT/tmp/words; exit 1", terminationMessagePath="/tmp/words", **never
    )
    await cluster.client.create(elsewhere)
    await cluster.client.create(shell_pod("log", "echo one; echo two; exit 3", **never, **fallback))
    await cluster.client.create(shell_pod("fine", "echo one", **never, **fallback))

    async def ended(name: str, phase: str) -> Obj:
        state: Obj = container_status(await cluster.phase(name, phase))["state"]["terminated"]
        return state

    assert (await ended("file", "Succeeded"))["message"] == "bye\n"
    assert (await ended("own", "Failed"))["message"] == "gone"
    log = await ended("log", "Failed")
    assert (log["message"], log["exitCode"], log["reason"]) == ("one\ntwo\n", 3, "Error")
    assert "message" not in await ended("fine", "Succeeded")


async def test_a_program_that_is_not_there_cannot_run(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("none", image="exec:no-such-program", command=None, pod_restartPolicy="Never"))
    state = container_status(await cluster.phase("none", "Failed"))["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("ContainerCannotRun", 127)
    assert "no-such-program" in state["message"]


async def test_readiness_gates_hold_a_pod_back(cluster: NodeCluster) -> None:
    gate = "example.com/open"
    await cluster.client.create(shell_pod("web", "exec sleep 600", pod_readinessGates=[{"conditionType": gate}]))

    async def gated(text: str) -> Obj | None:
        found = await cluster.pod("web")
        said = condition(found or {}, "Ready")
        return found if said.get("message") == text else None

    missing = f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    web = await eventually(lambda: gated(missing))
    assert condition(web, "Ready")["reason"] == "ReadinessGatesNotReady"
    assert is_true(web, "ContainersReady")
    for value in ("False", "True"):
        patch = {"status": {"conditions": [*status_of(web)["conditions"], {"type": gate, "status": value}]}}
        await cluster.client.patch("v1", "Pod", "web", "default", patch, subresource="status")
        if value == "False":
            web = await eventually(lambda: gated(f'the status of pod readiness gate "{gate}" is not "True", but False'))
            web["status"]["conditions"] = [c for c in status_of(web)["conditions"] if c["type"] != gate]
    web = await cluster.ready("web")
    assert condition(web, gate)["status"] == "True"


async def test_a_pod_that_waits_for_a_volume_says_so(cluster: NodeCluster) -> None:
    body = shell_pod("web", "exec sleep 600")
    body["spec"]["volumes"] = [{"name": "scratch", "configMap": {"name": "later"}}]
    await cluster.client.create(body)
    state = await cluster.waiting("web", "ContainerCreating")
    assert 'configmap "later" not found' in state["message"]
    web = await cluster.pod("web")
    assert web is not None
    assert condition(web, "PodReadyToStartContainers")["status"] == "False"
    assert condition(web, "Ready")["message"] == "containers with unready status: [main]"
    await cluster.event("FailedMount", 'configmap "later" not found')
