"""kubectl steers workloads and nodes: rollouts there and back, taints, cordons, drains."""

from __future__ import annotations

from tests.kube_controllers.harness import eventually

from .harness import Shell
from .manifests import DEMO

IMAGE = "kubectl get deploy web -o jsonpath='{.spec.template.spec.containers[0].image}'"
STATUS = "kubectl rollout status deploy/web --timeout=100s"


async def test_rollouts_go_forth_and_back(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    assert "successfully rolled out" in await shell.run(STATUS)
    await shell.run("kubectl set image deploy/web main=regional/regional:2")
    await shell.run("kubectl annotate deploy/web kubernetes.io/change-cause=second")
    assert "successfully rolled out" in await shell.run(STATUS)
    await shell.until("kubectl rollout history deploy/web", "1         <none>", "2         second")
    assert "regional/regional:1" in await shell.run("kubectl rollout history deploy/web --revision=1")
    assert "rolled back" in await shell.run("kubectl rollout undo deploy/web")
    assert "successfully rolled out" in await shell.run(STATUS)
    assert await shell.run(IMAGE) == "regional/regional:1"
    await shell.run("kubectl rollout undo deploy/web --to-revision=2")
    assert await shell.run(IMAGE) == "regional/regional:2"


async def test_paused_rollout_waits_and_restart_makes_new_pods(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    await shell.run(STATUS)
    first = set((await shell.run("kubectl get pods -l app=web -o name")).split())
    await shell.run("kubectl rollout pause deploy/web")
    assert "already paused" in await shell.run("kubectl rollout pause deploy/web", fails=True)
    await shell.run("kubectl set env deploy/web B=two")
    # In a second it may also not come to say anything.
    waiting = "kubectl rollout status deploy/web --timeout=1s"
    await shell.until(waiting, "0 out of 2 new replicas have been updated", fails=True)
    assert set((await shell.run("kubectl get pods -l app=web -o name")).split()) == first
    await shell.run("kubectl rollout resume deploy/web")
    await shell.run(STATUS)
    second = await others(shell, first)
    await shell.run("kubectl rollout restart deploy/web")
    await shell.run(STATUS)
    await others(shell, second)


async def others(shell: Shell, before: set[str]) -> set[str]:
    """The pods, once the last of those before is gone: a rollout is over a moment earlier."""

    async def look() -> set[str]:
        found = set((await shell.run("kubectl get pods -l app=web -o name")).split())
        return set() if found & before else found

    now: set[str] = await eventually(look, f"none of {before}")
    return now


async def test_stateful_sets_and_jobs_are_waited_for(shell: Shell) -> None:
    stateful = DEMO.replace("kind: Deployment", "kind: StatefulSet").replace(
        "replicas: 2", "replicas: 2\n  serviceName: web"
    )
    await shell.run("kubectl apply -f -", stdin=stateful)
    await shell.run("kubectl rollout status sts/web --timeout=100s")
    names = await shell.run("kubectl get pods -l app=web -o name --sort-by=.metadata.name")
    assert names.split() == ["pod/web-0", "pod/web-1"]
    await shell.run("kubectl scale sts/web --replicas=1")
    await shell.run("kubectl wait pod/web-1 --for=delete --timeout=100s")
    assert "statefulset.apps/web" in await shell.run("kubectl get sts -o name")


async def test_nodes_are_tainted_cordoned_and_drained(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    await shell.run(STATUS)
    assert "tainted" in await shell.run("kubectl taint nodes node-1 a=b:NoSchedule")
    assert "a=b:NoSchedule" in await shell.run("kubectl describe node node-1")
    assert "untainted" in await shell.run("kubectl taint nodes node-1 a-")
    assert "cordoned" in await shell.run("kubectl cordon node-1")
    assert "SchedulingDisabled" in await shell.run("kubectl get nodes")
    drained = await shell.run("kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data --timeout=100s")
    assert drained.count("evicted") == 2 and "node/node-1 drained" in drained
    await shell.until("kubectl get pods -l app=web", "Pending")
    assert "uncordoned" in await shell.run("kubectl uncordon node-1")
    assert "successfully rolled out" in await shell.run(STATUS)


async def test_pods_are_run_waited_for_and_ended(shell: Shell) -> None:
    await shell.run("kubectl run one --image=regional/regional:1 --restart=Never")
    await shell.run("kubectl wait pod/one --for=condition=Ready --timeout=100s")
    assert "deleted" in await shell.run("kubectl delete pod one --wait")
    await shell.run("kubectl run two --image=regional/regional:1 --restart=Never")
    assert "force deleted" in await shell.run("kubectl delete pod two --grace-period=0 --force")
    assert "NotFound" in await shell.run("kubectl get pod two", fails=True)
