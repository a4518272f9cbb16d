"""A controller that dies in the middle of a sync is followed by one that goes on where it stood."""

from __future__ import annotations

from regional.kube.objects import Obj, labels_of, status_of, uid_of
from tests.gitops.harness import GitOpsCluster, GitRepository, annotated, application, chart, config_map
from tests.kube_controllers.harness import deployment, eventually

DEPLOYMENT = "apps/v1", "Deployment"
JOB = "batch/v1", "Job"


def job(name: str = "", **annotations: str) -> Obj:
    template = {
        "metadata": {"labels": {"job": "yes"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]},
    }
    metadata = {"name": name} if name else {"generateName": "check-"}
    made: Obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    return annotated(made, **annotations)


def charted(**more: Obj) -> dict[str, str | Obj | list[Obj]]:
    """A hook before, a Deployment, a ConfigMap that waits for its health."""
    web = deployment("web", "")
    del web["metadata"]["namespace"]
    templates: dict[str, str | Obj] = {
        "before.yaml": job("migrate", hook="PreSync"),
        "web.yaml": web,
        "late.yaml": config_map("late", wave="1"),
    }
    return chart("charts/web", templates | {f"{name}.yaml": obj for name, obj in more.items()})


async def message(cluster: GitOpsCluster, words: str) -> Obj:
    async def said() -> Obj | None:
        state: Obj = status_of(await cluster.app("web")).get("operationState") or {}
        return state if words in state.get("message", "") and state["phase"] == "Running" else None

    found: Obj = await eventually(said, words)
    return found


def jobs_end(cluster: GitOpsCluster, healthy: bool = True) -> None:
    cluster.cluster.kubelet.finish = lambda pod: "Succeeded" if labels_of(pod).get("job") else ""
    cluster.cluster.kubelet.healthy = lambda pod: healthy
    cluster.cluster.kubelet.recheck()


class TestTheNextController:
    async def test_runs_no_hook_again_that_has_run(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        jobs_end(cluster, healthy=False)
        repository.commit(charted())
        await cluster.put(application("web", repository.url, "charts/web"))
        before = await message(cluster, "waiting for healthy state of apps/Deployment/web/web")
        hook = uid_of(await cluster.client.get(*JOB, "migrate", "web"))
        await cluster.unfollow()
        jobs_end(cluster)
        await cluster.follow()
        after = await cluster.synced("web")
        assert uid_of(await cluster.client.get(*JOB, "migrate", "web")) == hook
        assert after["startedAt"] == before["startedAt"]
        assert [(r["name"], r["hookPhase"]) for r in after["syncResult"]["resources"]] == [
            ("migrate", "Succeeded"),
            ("web", "Succeeded"),
            ("late", "Succeeded"),
        ]
        assert len(status_of(await cluster.app("web"))["history"]) == 1

    async def test_clears_away_the_hooks_of_the_one_before(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        jobs_end(cluster, healthy=False)
        repository.commit(charted(seed=job("seed", hook="PreSync", delete="HookSucceeded")))
        await cluster.put(application("web", repository.url, "charts/web"))
        await message(cluster, "waiting for healthy state")
        await cluster.found(*JOB, "seed", "web")
        await cluster.unfollow()
        jobs_end(cluster)
        await cluster.follow()
        await cluster.synced("web")
        await cluster.gone(*JOB, "seed", "web")

    async def test_waits_for_the_hook_that_still_runs(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        cluster.cluster.kubelet.finish = lambda pod: ""
        repository.commit(charted(named=job(hook="PreSync", wave="1")))
        await cluster.put(application("web", repository.url, "charts/web"))
        await message(cluster, "waiting for completion of hook batch/Job/web/migrate")
        hook = uid_of(await cluster.client.get(*JOB, "migrate", "web"))
        await cluster.unfollow()
        await cluster.follow()
        await cluster.found(*JOB, "migrate", "web")
        jobs_end(cluster)
        await cluster.synced("web")
        jobs = {j["metadata"]["name"]: uid_of(j) for j in await cluster.client.list(*JOB, "web")}
        assert len(jobs) == 2, "a hook that is named by time was made twice"
        assert jobs["migrate"] == hook

    async def test_brings_back_what_was_taken_away_meanwhile(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        jobs_end(cluster, healthy=False)
        repository.commit(charted())
        await cluster.put(application("web", repository.url, "charts/web"))
        await message(cluster, "waiting for healthy state")
        hook = uid_of(await cluster.client.get(*JOB, "migrate", "web"))
        await cluster.unfollow()
        await cluster.client.delete(*DEPLOYMENT, "web", "web")
        await cluster.gone(*DEPLOYMENT, "web", "web")
        jobs_end(cluster)
        await cluster.follow()
        await cluster.settled("web")
        assert uid_of(await cluster.client.get(*JOB, "migrate", "web")) == hook

    async def test_goes_to_the_commit_that_came_meanwhile_with_all_its_hooks(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        jobs_end(cluster, healthy=False)
        repository.commit(charted())
        await cluster.put(application("web", repository.url, "charts/web"))
        await message(cluster, "waiting for healthy state")
        hook = uid_of(await cluster.client.get(*JOB, "migrate", "web"))
        await cluster.unfollow()
        commit = repository.commit(charted(more=config_map("more")))
        jobs_end(cluster)
        await cluster.follow()
        await cluster.synced("web", commit)
        assert uid_of(await cluster.client.get(*JOB, "migrate", "web")) != hook

    async def test_goes_on_with_what_a_person_asked_for(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        jobs_end(cluster, healthy=False)
        repository.commit(charted())
        await cluster.put(application("web", repository.url, "charts/web", automated=None))
        await cluster.settled("web", sync="OutOfSync", health="Missing")
        asked = {"operation": {"initiatedBy": {"username": "joe"}, "sync": {"prune": True}}}
        await cluster.client.patch("argoproj.io/v1alpha1", "Application", "web", "argocd", asked)
        await message(cluster, "waiting for healthy state")
        hook = uid_of(await cluster.client.get(*JOB, "migrate", "web"))
        await cluster.unfollow()
        jobs_end(cluster)
        await cluster.follow()
        after = await cluster.synced("web")
        assert after["operation"]["initiatedBy"] == {"username": "joe"}
        assert uid_of(await cluster.client.get(*JOB, "migrate", "web")) == hook
        assert "operation" not in await cluster.app("web")

    async def test_heals_no_more_than_the_one_before_began_to(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        """Excludes a heal that becomes a whole sync, with its hooks, because its controller died."""
        jobs_end(cluster)
        repository.commit(charted())
        await cluster.put(application("web", repository.url, "charts/web"))
        await cluster.settled("web")
        await cluster.synced("web")
        hook = uid_of(await cluster.client.get(*JOB, "migrate", "web"))
        await cluster.unfollow()
        jobs_end(cluster, healthy=False)
        await cluster.client.delete("v1", "ConfigMap", "late", "web")
        await cluster.client.delete(*DEPLOYMENT, "web", "web")
        await cluster.gone(*DEPLOYMENT, "web", "web")
        await cluster.follow()
        await message(cluster, "waiting for healthy state of apps/Deployment/web/web")
        await cluster.unfollow()
        jobs_end(cluster)
        await cluster.follow()
        await cluster.settled("web")
        assert uid_of(await cluster.client.get(*JOB, "migrate", "web")) == hook

    async def test_counts_the_attempts_of_the_one_before(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        bad: Obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bad"}, "spec": {"ports": "none"}}
        repository.commit(chart("charts/web", {"bad.yaml": bad}))
        retry = {"limit": 1, "backoff": {"duration": "1h", "maxDuration": "1h"}}
        await cluster.put(application("web", repository.url, "charts/web", retry=retry))
        waiting = await message(cluster, "Retrying attempt #1")
        assert "finishedAt" in waiting, "as Argo CD marks an attempt that is over while the operation is not"
        await cluster.unfollow()
        await cluster.follow()

        async def ended() -> bool:
            state = status_of(await cluster.app("web"))["operationState"]
            return state["phase"] == "Failed" and "(retried 1 times)" in state["message"]

        await eventually(ended)
