"""Helm 4, unchanged: releases come, change, go back and go; hooks run in order; templates look things up."""

from __future__ import annotations

import json
from pathlib import Path

from regional.kube.objects import Obj, name_of

from .harness import Cluster, Shell

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-config}
data:
  value: {{ .Values.value | quote }}
  known: {{ (lookup "v1" "ConfigMap" .Release.Namespace "outside").data | default dict | toJson | quote }}
  missing: {{ lookup "v1" "Secret" .Release.Namespace "nope" | toJson | quote }}
"""

HOOK = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-%(name)s
  annotations:
    helm.sh/hook: %(when)s
    helm.sh/hook-weight: "%(weight)s"
    helm.sh/hook-delete-policy: %(policy)s
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "regional/regional:1", args: ["{{ .Values.value }}"]}]
"""


def chart(folder: Path, **hooks: tuple[str, str, str]) -> None:
    """A chart of one ConfigMap and some hooks: name → (when, weight, delete policy)."""
    templates = folder / "chart" / "templates"
    templates.mkdir(parents=True)
    (folder / "chart" / "Chart.yaml").write_text("apiVersion: v2\nname: chart\nversion: 1.0.0\n")
    (folder / "chart" / "values.yaml").write_text("value: one\n")
    (templates / "config.yaml").write_text(CONFIG)
    for name, (when, weight, policy) in hooks.items():
        text = HOOK % {"name": name, "when": when, "weight": weight, "policy": policy}
        (templates / f"{name}.yaml").write_text(text)


def jobs_end(cluster: Cluster, *, failing: str = "") -> list[str]:
    """Pods of jobs end at once, well or, if their job's name has `failing` in it, badly; their jobs in order."""
    order: list[str] = []

    def finish(pod: Obj) -> str:
        job = pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", "")
        if not job:
            return ""
        if name_of(pod) not in seen:
            seen.add(name_of(pod))
            order.append(job)
        return "Failed" if failing and failing in job else "Succeeded"

    seen: set[str] = set()
    cluster.kubelet.finish = finish
    return order


async def test_releases_come_change_go_back_and_go(shell: Shell) -> None:
    await shell.run("helm create app")
    installed = await shell.run("helm install rel app -n app --create-namespace --wait --timeout 100s")
    assert "STATUS: deployed" in installed
    await shell.run("helm upgrade rel app -n app --set replicaCount=2 --wait --timeout 100s")
    assert "2/2" in await shell.run("kubectl get deploy rel-app -n app")
    history = json.loads(await shell.run("helm history rel -n app -o json"))
    assert [entry["status"] for entry in history] == ["superseded", "deployed"]
    await shell.run("helm rollback rel 1 -n app --wait --timeout 100s")
    assert "1/1" in await shell.run("kubectl get deploy rel-app -n app")
    listed = json.loads(await shell.run("helm list -A -o json"))
    assert [(entry["name"], entry["revision"], entry["status"]) for entry in listed] == [("rel", "3", "deployed")]
    assert "kind: Deployment" in await shell.run("helm get manifest rel -n app")
    assert "replicaCount: 2" in await shell.run("helm get values rel -n app --revision 2")
    assert "STATUS: deployed" in await shell.run("helm status rel -n app")
    assert 'release "rel" uninstalled' in await shell.run("helm uninstall rel -n app --wait --timeout 100s")
    assert "No resources found" in await shell.run("kubectl get deploy,svc,secret -n app")


async def test_hooks_run_by_weight_and_go_by_policy(cluster: Cluster) -> None:
    shell = cluster.shell
    order = jobs_end(cluster)
    chart(
        shell.folder,
        late=("pre-install,pre-upgrade", "5", "before-hook-creation"),
        early=("pre-install", "-5", "hook-succeeded"),
        after=("post-install", "0", "before-hook-creation,hook-succeeded"),
        bye=("pre-delete", "0", "hook-succeeded,hook-failed"),
    )
    await shell.run("helm install rel chart --timeout 100s")
    assert order == ["rel-early", "rel-late", "rel-after"]
    assert (await shell.run("kubectl get jobs -o name")).split() == ["job.batch/rel-late"]
    first = await shell.run("kubectl get job rel-late -o jsonpath='{.metadata.uid}'")
    await shell.run("helm upgrade rel chart --set value=two --timeout 100s")
    assert order[3:] == ["rel-late"]
    assert await shell.run("kubectl get job rel-late -o jsonpath='{.metadata.uid}'") != first
    await shell.run("helm uninstall rel --timeout 100s")
    assert order[4:] == ["rel-bye"]
    assert "NotFound" in await shell.run("kubectl get job rel-bye", fails=True)


async def test_failed_hook_fails_the_release(cluster: Cluster) -> None:
    shell = cluster.shell
    jobs_end(cluster, failing="bad")
    chart(shell.folder, bad=("pre-install", "0", "hook-failed"))
    refused = await shell.run("helm install rel chart --timeout 100s", fails=True)
    assert "pre-install" in refused
    assert "failed" in await shell.run("helm list --failed")
    assert "NotFound" in await shell.run("kubectl get job rel-bad", fails=True)
    await shell.run("helm uninstall rel --no-hooks")


async def test_tests_of_a_release_are_run(cluster: Cluster) -> None:
    shell = cluster.shell
    order = jobs_end(cluster)
    chart(shell.folder, check=("test", "0", "before-hook-creation"))
    await shell.run("helm install rel chart --timeout 100s")
    assert order == []
    assert "Phase:          Succeeded" in await shell.run("helm test rel --timeout 100s")
    assert order == ["rel-check"]


async def test_templates_look_up_what_is_in_the_cluster(shell: Shell) -> None:
    chart(shell.folder)
    await shell.run("kubectl create cm outside --from-literal=a=b")
    await shell.run("helm install rel chart")
    shown = await shell.run("kubectl get cm rel-config -o jsonpath='{.data.known} {.data.missing}'")
    assert shown == '{"a":"b"} {}'
    preview = await shell.run("helm upgrade rel chart --dry-run=server --set value=two")
    assert 'value: "two"' in preview
    assert await shell.run("kubectl get cm rel-config -o jsonpath='{.data.value}'") == "one"


async def test_foreign_hands_are_told_in_a_conflict_and_can_be_forced(shell: Shell) -> None:
    chart(shell.folder)
    await shell.run("helm install rel chart")
    await shell.run("""kubectl patch cm rel-config --field-manager=someone -p '{"data":{"value":"mine"}}'""")
    refused = await shell.run("helm upgrade rel chart --set value=two", fails=True)
    assert 'conflict with "someone" using v1: .data.value' in refused
    await shell.run("helm upgrade rel chart --set value=two --force-conflicts")
    assert await shell.run("kubectl get cm rel-config -o jsonpath='{.data.value}'") == "two"


async def test_resources_of_others_are_not_taken_over(shell: Shell) -> None:
    chart(shell.folder)
    await shell.run("kubectl create cm rel-config --from-literal=a=b")
    refused = await shell.run("helm install rel chart", fails=True)
    assert "exists and cannot be imported into the current release" in refused
    await shell.run("helm install rel chart --take-ownership")
    assert await shell.run("kubectl get cm rel-config -o jsonpath='{.data.value}'") == "one"
