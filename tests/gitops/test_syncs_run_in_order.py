"""The plan of a sync, without a cluster."""

from __future__ import annotations

from regional.gitops.autosync import Retry, seconds
from regional.gitops.waves import Task, delete_policies, hook_phases, plan, wave_of
from tests.gitops.harness import Obj, annotated, application, config_map


def obj(kind: str, name: str = "x", version: str = "v1", namespace: str = "", **annotations: str) -> Obj:
    metadata: Obj = {"name": name} | ({"namespace": namespace} if namespace else {})
    return annotated({"apiVersion": version, "kind": kind, "metadata": metadata}, **annotations)


def order(targets: list[Obj], prunable: list[Obj] | None = None, **options: str) -> list[str]:
    tasks = plan(targets, {}, prunable or [], options=options, revision="0123456789", started=1700000000)
    return [_said(task) for task in tasks]


def _said(task: Task) -> str:
    return f"{'-' if task.prune else ''}{task.phase}/{task.wave}/{task.key.kind}/{task.key.name}"


def test_kinds_come_in_the_order_they_need_each_other() -> None:
    kinds = [
        "Ingress",
        "Deployment",
        "Widget",
        "Service",
        "CustomResourceDefinition",
        "ConfigMap",
        "Secret",
        "Namespace",
    ]
    assert [line.split("/")[2] for line in order([obj(kind) for kind in kinds])] == [
        "Namespace", "Secret", "ConfigMap", "CustomResourceDefinition", "Service", "Deployment", "Ingress", "Widget",
    ]  # fmt: skip


def test_waves_come_before_kinds_and_a_bad_number_is_zero() -> None:
    targets = [
        obj("ConfigMap", "late", wave="2"),
        obj("Deployment", "first", wave="-1"),
        obj("Secret", "odd", wave="x"),
    ]
    assert order(targets) == ["Sync/-1/Deployment/first", "Sync/0/Secret/odd", "Sync/2/ConfigMap/late"]


def test_phases_come_before_waves() -> None:
    targets = [
        obj("Job", "after", "batch/v1", hook="PostSync"),
        obj("ConfigMap", "main", wave="-5"),
        obj("Job", "before", "batch/v1", hook="PreSync", wave="9"),
    ]
    assert order(targets) == ["PreSync/9/Job/before", "Sync/-5/ConfigMap/main", "PostSync/0/Job/after"]


def test_a_namespace_moves_ahead_of_the_hooks_that_live_in_it() -> None:
    targets = [obj("Namespace", "web"), obj("Job", "before", "batch/v1", "web", hook="PreSync")]
    assert order(targets) == ["PreSync/0/Namespace/web", "PreSync/0/Job/before"]


def test_a_definition_moves_ahead_of_its_objects() -> None:
    crd = obj("CustomResourceDefinition", "widgets.demo.io", "apiextensions.k8s.io/v1", wave="3")
    crd["spec"] = {"group": "demo.io", "names": {"kind": "Widget"}}
    assert order([crd, obj("Widget", "w", "demo.io/v1", wave="1")]) == [
        "Sync/1/CustomResourceDefinition/widgets.demo.io",
        "Sync/1/Widget/w",
    ]


def test_prunes_run_in_reverse_waves_before_what_is_applied() -> None:
    prunable = [obj("ConfigMap", "a", wave="0"), obj("ConfigMap", "b", wave="1")]
    assert order([obj("ConfigMap", "new", wave="0")], prunable) == [
        "-Sync/0/ConfigMap/b",
        "Sync/0/ConfigMap/new",
        "-Sync/1/ConfigMap/a",
    ]


def test_prune_last_comes_after_all() -> None:
    assert order([obj("ConfigMap", "new", wave="4")], [obj("ConfigMap", "old")], PruneLast="true") == [
        "Sync/4/ConfigMap/new",
        "-Sync/5/ConfigMap/old",
    ]


def test_a_hook_with_only_a_prefix_is_named_by_revision_phase_and_time() -> None:
    hook = obj("Job", "", "batch/v1", hook="PostSync")
    hook["metadata"] = {"generateName": "check-", "annotations": hook["metadata"]["annotations"]}
    assert order([hook]) == ["PostSync/0/Job/check-0123456-postsync-1700000000"]


def test_helms_hooks_are_understood() -> None:
    job = obj("Job", "j", "batch/v1")
    job = annotated(job, **{"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-weight": "-3"})
    assert hook_phases(job) == ["PreSync"]
    assert wave_of(job) == -3
    assert delete_policies(annotated(job, **{"helm.sh/hook-delete-policy": "hook-succeeded"})) == {"HookSucceeded"}
    assert delete_policies(job) == {"BeforeHookCreation"}
    assert hook_phases(annotated(obj("Pod"), **{"helm.sh/hook": "test"})) == ["Skip"]
    assert order([annotated(obj("Pod"), **{"helm.sh/hook": "test"}), obj("Pod", "s", hook="Skip")]) == []
    assert hook_phases(config_map("c")) == []


def test_a_failed_sync_is_tried_again_for_ever_unless_the_application_sets_a_limit() -> None:
    usual = Retry.of(application("a", "r", "p"))
    assert [usual.delay(n) for n in (1, 2, 3, 9)] == [5, 10, 20, 180]
    assert usual.allows(1000)
    own = Retry.of(application("a", "r", "p", retry={"limit": 2, "backoff": {"duration": "1m30s", "factor": 3}}))
    assert (own.allows(2), own.allows(3), own.delay(1), own.delay(2)) == (True, False, 90, 180)
    assert Retry().delay(1, missing_kind=True) == 1
    assert not Retry.of(application("a", "r", "p", retry={"backoff": {"duration": "1s"}})).allows(1)
    for retry in (usual, own):
        assert Retry.said(retry.policy()) == retry


def test_durations_are_gos() -> None:
    assert (seconds("5s", 0), seconds("1m30s", 0), seconds("250ms", 0), seconds("soon", 7)) == (5, 90, 0.25, 7)
