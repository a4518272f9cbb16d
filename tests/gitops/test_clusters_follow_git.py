"""GitOps against the real API: what is in Git is in the cluster, and stays there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from regional.gitops.manifests import ObjectKey
from regional.gitops.syncing import Syncing
from regional.kube.objects import annotations_of, labels_of, name_of, uid_of
from tests.gitops.harness import (
    GitOpsCluster,
    GitRepository,
    Obj,
    annotated,
    application,
    chart,
    config_map,
)
from tests.kube_controllers.harness import deployment, eventually

DEPLOYMENT = "apps/v1", "Deployment"


def web(image: str = "app:1", **values: Any) -> dict[str, Any]:
    """A chart with a Deployment and a ConfigMap."""
    pod = deployment("web", "", image=image)
    del pod["metadata"]["namespace"]
    return chart("charts/web", {"deployment.yaml": pod, "cm.yaml": config_map("settings", {"image": image})}, values)


class TestAnApplication:
    async def test_is_brought_into_the_cluster_and_says_so(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        commit = repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.synced("web", commit)
        app = await cluster.settled("web")
        status = app["status"]
        live = await cluster.client.get(*DEPLOYMENT, "web", "web")
        assert live["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] == "web:apps/Deployment:web/web"
        managers = {entry["manager"] for entry in live["metadata"]["managedFields"] if entry["operation"] == "Apply"}
        assert managers == {"argocd-controller"}
        assert status["sync"]["revision"] == commit
        assert status["sync"]["comparedTo"]["source"]["path"] == "charts/web"
        assert status["sourceType"] == "Helm"
        assert status["summary"] == {"images": ["app:1"]}
        state = status["operationState"]
        assert (state["phase"], state["syncResult"]["revision"]) == ("Succeeded", commit)
        assert state["operation"]["initiatedBy"] == {"automated": True}
        assert [(r["kind"], r["status"]) for r in state["syncResult"]["resources"]] == [
            ("ConfigMap", "Synced"),
            ("Deployment", "Synced"),
        ]
        assert {(r["kind"], r["name"], r["status"]) for r in status["resources"]} == {
            ("ConfigMap", "settings", "Synced"),
            ("Deployment", "web", "Synced"),
        }
        assert [(entry["id"], entry["revision"]) for entry in status["history"]] == [(0, commit)]

    async def test_is_left_alone_at_rest(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.synced("web")
        before = await cluster.settled("web")
        cluster.gitops.applications.look_at_all()
        await asyncio.sleep(1.0)
        after = await cluster.app("web")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    async def test_follows_its_branch(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        commit = repository.commit(web("app:2"))
        await cluster.synced("web", commit)
        app = await cluster.settled("web", commit=commit)
        live = await cluster.client.get(*DEPLOYMENT, "web", "web")
        assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "app:2"
        assert [entry["revision"] for entry in app["status"]["history"]][-1] == commit

    async def test_prunes_what_git_no_longer_has(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web() | {"charts/web/templates/extra.yaml": config_map("extra")})
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.found("v1", "ConfigMap", "extra", "web")
        await cluster.settled("web")
        repository.remove("charts/web/templates/extra.yaml")
        commit = repository.commit()
        await cluster.gone("v1", "ConfigMap", "extra", "web")
        await cluster.settled("web", commit=commit)

    @pytest.mark.parametrize("option", ["Prune=false", "Prune=confirm"])
    async def test_keeps_what_asks_not_to_be_pruned(
        self, cluster: GitOpsCluster, repository: GitRepository, option: str
    ) -> None:
        kept = config_map("kept", options=option)
        repository.commit(web() | {"charts/web/templates/kept.yaml": kept})
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        repository.remove("charts/web/templates/kept.yaml")
        commit = repository.commit()
        app = await cluster.settled("web", sync="OutOfSync", commit=commit)
        assert [r["name"] for r in app["status"]["resources"] if r.get("requiresPruning")] == ["kept"]
        assert await cluster.client.get("v1", "ConfigMap", "kept", "web")

    async def test_takes_its_objects_with_it(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        options = {"a": "Delete=false", "b": "Delete=confirm"}
        kept = {f"charts/web/templates/{name}.yaml": config_map(name, options=said) for name, said in options.items()}
        repository.commit(web() | kept)
        finalizer = "resources-finalizer.argocd.argoproj.io"
        await cluster.put(application("web", repository.url, "charts/web", finalizers=[finalizer]))
        await cluster.settled("web")
        await cluster.client.delete("argoproj.io/v1alpha1", "Application", "web", "argocd")
        await cluster.gone("argoproj.io/v1alpha1", "Application", "web", "argocd")
        await cluster.gone(*DEPLOYMENT, "web", "web")
        await cluster.gone("v1", "ConfigMap", "settings", "web")
        for name in options:
            assert await cluster.client.get("v1", "ConfigMap", name, "web")

    async def test_takes_its_hooks_with_it_also_after_a_restart(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        files = chart(
            "charts/web", {"cm.yaml": config_map("settings"), "hook.yaml": config_map("before", hook="PreSync")}
        )
        secret: Obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kind-of-its-own"}}
        files["charts/web/templates/secret.yaml"] = annotated(secret, hook="PostSync")
        repository.commit(files)
        finalizers = ["resources-finalizer.argocd.argoproj.io"]
        await cluster.put(application("web", repository.url, "charts/web", finalizers=finalizers))
        app = await cluster.settled("web")
        await cluster.synced("web")
        assert [r["name"] for r in app["status"]["resources"]] == ["settings"], "hooks are no part of what is compared"
        await cluster.unfollow()
        await cluster.client.delete("argoproj.io/v1alpha1", "Application", "web", "argocd")
        await cluster.follow()
        for kind, name in (("ConfigMap", "settings"), ("ConfigMap", "before"), ("Secret", "kind-of-its-own")):
            await cluster.gone("v1", kind, name, "web")
        await cluster.gone("argoproj.io/v1alpha1", "Application", "web", "argocd")

    async def test_leaves_definitions_behind_and_what_was_made_of_them(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        """A chart that leaves Git for a moment must not take every object of its kinds along."""
        widget = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        repository.commit(web() | {"charts/web/templates/crd.yaml": widget})
        finalizer = "resources-finalizer.argocd.argoproj.io"
        await cluster.put(application("web", repository.url, "charts/web", finalizers=[finalizer]))
        await cluster.settled("web")
        one = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one", "namespace": "default"}}
        await cluster.client.create(one)
        repository.remove("charts/web/templates/crd.yaml")
        repository.remove("charts/web/templates/cm.yaml")
        await cluster.settled("web", commit=repository.commit())
        await cluster.gone("v1", "ConfigMap", "settings", "web")
        assert await cluster.client.get("example.com/v1", "Widget", "one", "default"), "definitions are not pruned"
        await cluster.client.delete("argoproj.io/v1alpha1", "Application", "web", "argocd")
        await cluster.gone("argoproj.io/v1alpha1", "Application", "web", "argocd")
        await cluster.gone(*DEPLOYMENT, "web", "web")
        assert await cluster.client.get("example.com/v1", "Widget", "one", "default")

    async def test_is_looked_at_when_somebody_asks(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        ask = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "hard"}}}
        await cluster.client.patch("argoproj.io/v1alpha1", "Application", "web", "argocd", ask)

        async def answered() -> bool:
            return "argocd.argoproj.io/refresh" not in annotations_of(await cluster.app("web"))

        await eventually(answered)
        await cluster.settled("web")

    async def test_without_automation_only_tells(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web", automated=None))
        await cluster.settled("web", sync="OutOfSync", health="Missing")
        asked = {"operation": {"initiatedBy": {"username": "joe"}, "sync": {"prune": True}}}
        await cluster.client.patch("argoproj.io/v1alpha1", "Application", "web", "argocd", asked)
        await cluster.synced("web")
        app = await cluster.settled("web")
        assert app["status"]["operationState"]["operation"]["initiatedBy"] == {"username": "joe"}
        assert "operation" not in app


class TestDrift:
    async def test_is_healed(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        change = {"spec": {"replicas": 3}, "metadata": {"labels": {"app": "changed"}}}
        await cluster.client.patch(*DEPLOYMENT, "web", "web", change)

        async def healed() -> bool:
            live = await cluster.client.get(*DEPLOYMENT, "web", "web")
            return live["spec"]["replicas"] == 1 and labels_of(live)["app"] == "web"

        await eventually(healed, "drift healed", 60.0)
        await cluster.settled("web")

    async def test_a_deleted_object_returns(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        old = uid_of(await cluster.client.get(*DEPLOYMENT, "web", "web"))
        await cluster.client.delete(*DEPLOYMENT, "web", "web")

        async def back() -> bool:
            live = await cluster.client.get_or_none(*DEPLOYMENT, "web", "web")
            return live is not None and uid_of(live) != old

        await eventually(back, "the Deployment is back", 60.0)
        await cluster.settled("web")

    async def test_what_others_add_is_no_drift(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        await cluster.client.patch(*DEPLOYMENT, "web", "web", {"metadata": {"annotations": {"note": "mine"}}})
        await cluster.client.patch("v1", "ConfigMap", "settings", "web", {"data": {"more": "x"}})
        await asyncio.sleep(0.5)
        await cluster.settled("web")
        assert (await cluster.client.get("v1", "ConfigMap", "settings", "web"))["data"] == {
            "image": "app:1",
            "more": "x",
        }

    async def test_that_is_to_be_ignored_is_ignored(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web())
        ignore = [{"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}]
        await cluster.put(application("web", repository.url, "charts/web", ignoreDifferences=ignore))
        await cluster.settled("web")
        await cluster.client.patch(*DEPLOYMENT, "web", "web", {"spec": {"replicas": 2}})
        await asyncio.sleep(0.5)
        await cluster.settled("web")
        assert (await cluster.client.get(*DEPLOYMENT, "web", "web"))["spec"]["replicas"] == 2


class TestOneBadChart:
    async def test_marks_its_application_and_no_other(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(web() | chart("charts/bad", {"cm.yaml": '{{ fail "needs a region" }}'}))
        await cluster.put(application("bad", repository.url, "charts/bad"))
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        assert "needs a region" in await cluster.condition("bad", "ComparisonError")
        assert (await cluster.app("bad"))["status"]["sync"]["status"] == "Unknown"

    async def test_leaves_what_runs_and_recovers_with_the_next_commit(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        repository.commit({"charts/web/templates/broken.yaml": "{{ .Values.no.such }}"})
        await cluster.settled("web", sync="Unknown")
        assert await cluster.client.get(*DEPLOYMENT, "web", "web")
        repository.remove("charts/web/templates/broken.yaml")
        commit = repository.commit()
        app = await cluster.settled("web", commit=commit)
        assert "conditions" not in app["status"]

    async def test_an_object_the_api_refuses_is_tried_again_until_git_is_mended(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        bad = config_map("Not_A_Name")
        repository.commit(chart("charts/web", {"bad.yaml": bad, "good.yaml": config_map("good")}))
        await cluster.put(application("web", repository.url, "charts/web"))

        async def failing() -> bool:
            state = (await cluster.app("web")).get("status", {}).get("operationState") or {}
            return "Not_A_Name" in state.get("message", "") and "Retrying attempt #1" in state["message"]

        await eventually(failing)
        repository.remove("charts/web/templates/bad.yaml")
        commit = repository.commit()
        await cluster.settled("web", commit=commit)

    async def test_a_limit_of_retries_ends_in_failure(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(chart("charts/web", {"bad.yaml": config_map("Not_A_Name")}))
        await cluster.put(application("web", repository.url, "charts/web", retry={"limit": 0}))
        assert "Not_A_Name" in await cluster.condition("web", "SyncError")
        assert (await cluster.app("web"))["status"]["operationState"]["phase"] == "Failed"

    async def test_a_sync_that_somebody_asks_for_is_tried_as_often_as_they_say(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        repository.commit(chart("charts/web", {"bad.yaml": config_map("Not_A_Name")}))
        await cluster.put(application("web", repository.url, "charts/web", automated=None))
        for retry, message in (
            ({}, "Not_A_Name"),
            ({"retry": {"limit": 1, "backoff": {"duration": "10ms"}}}, "1 times"),
        ):
            await cluster.client.patch(
                "argoproj.io/v1alpha1", "Application", "web", "argocd", {"operation": {"sync": {}} | retry}
            )

            async def failed(wanted: str = message) -> bool:
                app = await cluster.app("web")
                state = app.get("status", {}).get("operationState") or {}
                return "operation" not in app and state.get("phase") == "Failed" and wanted in state["message"]

            await eventually(failed)

    async def test_a_sync_that_asks_for_more_than_is_understood_is_refused_and_touches_nothing(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        old = repository.commit(web())
        repository.commit(web("app:2"))
        await cluster.put(application("web", repository.url, "charts/web", automated=None))
        await cluster.settled("web", sync="OutOfSync", health="Missing")
        for sync, reason in (
            ({"dryRun": True}, "dryRun is not supported"),
            ({"revision": old}, f"cannot sync to {old}"),
        ):
            asked = {"operation": {"sync": sync}}
            await cluster.client.patch("argoproj.io/v1alpha1", "Application", "web", "argocd", asked)

            async def failed(wanted: str = reason) -> bool:
                app = await cluster.app("web")
                state = app["status"].get("operationState") or {}
                return "operation" not in app and state.get("phase") == "Failed" and wanted in state["message"]

            await eventually(failed)
            assert await cluster.client.get_or_none(*DEPLOYMENT, "web", "web") is None
        asked = {"operation": {"sync": {"revision": "HEAD"}}}
        await cluster.client.patch("argoproj.io/v1alpha1", "Application", "web", "argocd", asked)
        await cluster.settled("web")

    async def test_an_unknown_project_or_cluster_is_said(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web", project="none"))
        assert "project none" in await cluster.condition("web", "InvalidSpecError")
        far = {"server": "https://elsewhere", "namespace": "x"}
        await cluster.put(application("far", repository.url, "charts/web", destination=far))
        assert "https://elsewhere" in await cluster.condition("far", "InvalidSpecError")


class TestOrder:
    async def test_a_wave_waits_for_the_health_of_the_one_before(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        cluster.cluster.kubelet.healthy = lambda pod: False
        files = web()
        files["charts/web/templates/late.yaml"] = config_map("late", wave="1")
        repository.commit(files)
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web", sync="OutOfSync", health="Progressing")

        async def waiting() -> bool:
            state = (await cluster.app("web"))["status"].get("operationState") or {}
            return state.get("message") == "waiting for healthy state of apps/Deployment/web/web"

        await eventually(waiting)
        assert await cluster.client.get_or_none("v1", "ConfigMap", "late", "web") is None
        cluster.cluster.kubelet.healthy = lambda pod: True
        cluster.cluster.kubelet.recheck()
        await cluster.found("v1", "ConfigMap", "late", "web")
        await cluster.settled("web")

    async def test_drift_is_healed_while_a_wave_still_waits(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        cluster.cluster.kubelet.healthy = lambda pod: False
        repository.commit(web() | {"charts/web/templates/late.yaml": config_map("late", wave="1")})
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web", sync="OutOfSync", health="Progressing")
        old = uid_of(await cluster.client.get(*DEPLOYMENT, "web", "web"))
        await cluster.client.delete(*DEPLOYMENT, "web", "web")

        async def back() -> bool:
            live = await cluster.client.get_or_none(*DEPLOYMENT, "web", "web")
            return live is not None and uid_of(live) != old

        await eventually(back)
        await cluster.client.patch(*DEPLOYMENT, "web", "web", {"spec": {"replicas": 3}})

        async def healed() -> bool:
            return bool((await cluster.client.get(*DEPLOYMENT, "web", "web"))["spec"]["replicas"] == 1)

        await eventually(healed)
        assert await cluster.client.get_or_none("v1", "ConfigMap", "late", "web") is None
        cluster.cluster.kubelet.healthy = lambda pod: True
        cluster.cluster.kubelet.recheck()
        await cluster.found("v1", "ConfigMap", "late", "web")
        await cluster.settled("web")

    async def test_drift_that_comes_just_before_a_step_is_not_taken_for_what_was_applied(
        self, cluster: GitOpsCluster, repository: GitRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Excludes a waiting sync that notes what it finds on the cluster as what it has applied."""
        drifted = False
        step = Syncing.step

        async def after_drift(self: Syncing, application: Obj, comparison: Any, comparer: Any) -> None:
            nonlocal drifted
            live = next((r.live for r in comparison.resources if r.key.kind == "Deployment"), None)
            # Once its controller has left its mark: any later change but ours would make the comparison ask anew.
            if live is not None and "deployment.kubernetes.io/revision" in annotations_of(live) and not drifted:
                await cluster.client.patch(*DEPLOYMENT, "web", "web", {"spec": {"replicas": 3}})
                key = ObjectKey.of(live)
                await eventually(lambda: replicas_are(self, key, 3))
                drifted = True
            await step(self, application, comparison, comparer)

        async def replicas_are(syncing: Syncing, key: ObjectKey, number: int) -> bool:
            seen = syncing._inventory.get(key)
            return seen is not None and seen["spec"]["replicas"] == number

        monkeypatch.setattr(Syncing, "step", after_drift)
        cluster.cluster.kubelet.healthy = lambda pod: False
        repository.commit(web() | {"charts/web/templates/late.yaml": config_map("late", wave="1")})
        await cluster.put(application("web", repository.url, "charts/web"))

        async def healed() -> bool:
            found = await cluster.client.get_or_none(*DEPLOYMENT, "web", "web")
            return drifted and found is not None and found["spec"]["replicas"] == 1

        await eventually(healed)

    async def test_hooks_run_around_the_sync_and_are_cleared_away(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        cluster.cluster.kubelet.finish = lambda pod: "Succeeded" if labels_of(pod).get("job") else ""
        template = {
            "metadata": {"labels": {"job": "yes"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]},
        }
        job: Obj = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "migrate"},
            "spec": {"template": template},
        }
        check: Obj = job | {"metadata": {"name": "check"}}
        files = web()
        files["charts/web/templates/before.yaml"] = annotated(job, hook="PreSync")
        files["charts/web/templates/after.yaml"] = annotated(check, hook="PostSync", delete="HookSucceeded")
        repository.commit(files)
        await cluster.put(application("web", repository.url, "charts/web"))
        results = (await cluster.synced("web"))["syncResult"]["resources"]
        assert [(r["name"], r["hookPhase"]) for r in results] == [
            ("migrate", "Succeeded"),
            ("settings", "Succeeded"),
            ("web", "Succeeded"),
            ("check", "Succeeded"),
        ]
        await cluster.gone("batch/v1", "Job", "check", "web")
        first = uid_of(await cluster.client.get("batch/v1", "Job", "migrate", "web"))
        commit = repository.commit(web("app:2"))
        await cluster.synced("web", commit)
        assert uid_of(await cluster.client.get("batch/v1", "Job", "migrate", "web")) != first

    async def test_a_kind_that_is_missing_is_waited_for(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        widget: Obj = {"apiVersion": "demo.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
        }
        crd: Obj = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.demo.io"},
            "spec": {
                "group": "demo.io",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
        repository.commit(chart("charts/user", {"w.yaml": widget}) | chart("charts/owner", {"crd.yaml": crd}))
        await cluster.put(application("user", repository.url, "charts/user"))

        async def complains() -> bool:
            state = (await cluster.app("user")).get("status", {}).get("operationState") or {}
            return "could not find demo.io/Widget" in state.get("message", "")

        await eventually(complains)
        await cluster.put(application("owner", repository.url, "charts/owner"))
        await cluster.settled("owner")
        await cluster.settled("user")


class TestAControllerThatDies:
    async def test_in_the_middle_of_a_sync_is_followed_by_one_that_finishes_it(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        cluster.cluster.kubelet.healthy = lambda pod: False
        files = web()
        files["charts/web/templates/late.yaml"] = config_map("late", wave="1")
        repository.commit(files)
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web", sync="OutOfSync", health="Progressing")
        await cluster.unfollow()
        cluster.cluster.kubelet.healthy = lambda pod: True
        cluster.cluster.kubelet.recheck()
        await cluster.follow()
        await cluster.synced("web")
        app = await cluster.settled("web")
        assert app["status"]["operationState"]["phase"] == "Succeeded"
        assert name_of(await cluster.client.get("v1", "ConfigMap", "late", "web")) == "late"

    async def test_finds_what_was_removed_from_git_meanwhile(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        repository.commit(web())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        await cluster.unfollow()
        repository.remove("charts/web/templates/cm.yaml")
        commit = repository.commit()
        await cluster.follow()
        await cluster.gone("v1", "ConfigMap", "settings", "web")
        await cluster.settled("web", commit=commit)
