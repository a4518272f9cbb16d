"""An ApplicationSet against the real API: each chart directory in Git is an Application, and only those."""

from __future__ import annotations

from typing import Any

from regional.kube.objects import labels_of
from tests.gitops.harness import (
    GitOpsCluster,
    GitRepository,
    application_set,
    chart,
    identity_secret,
)
from tests.kube_controllers.harness import eventually

VALUES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: it}
data: {who: "{{ .Values.who }}", region: "{{ .Values.global.region }}"}
"""


class TestAnApplicationSet:
    def files(self, *names: str) -> dict[str, Any]:
        files: dict[str, Any] = {"deploy/local/local/argocd/regional-cluster-values.yaml": {"who": "region"}}
        for name in names:
            files |= chart(f"argocd/config/{name}", {"cm.yaml": VALUES}, {"who": "chart"})
        return files

    async def started(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        repository.commit(self.files("regional-cluster/clm", "shared/argocd"))
        await cluster.put(identity_secret(repository.url))
        await cluster.put(application_set())
        await cluster.settled("clm")
        await cluster.settled("argocd")

    async def test_brings_up_what_git_has_for_this_cluster(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        await self.started(cluster, repository)
        assert await cluster.apps() == ["argocd", "clm"]
        found = await cluster.client.get("v1", "ConfigMap", "it", "clm")
        assert found["data"] == {"who": "region", "region": "us-west-2"}
        applicationset = await cluster.client.get(
            "argoproj.io/v1alpha1", "ApplicationSet", "root-applicationset", "argocd"
        )
        conditions = {c["type"]: c["status"] for c in applicationset["status"]["conditions"]}
        assert conditions == {"ErrorOccurred": "False", "ParametersGenerated": "True", "ResourcesUpToDate": "True"}

    async def test_a_new_directory_appears_and_a_removed_one_goes(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        await self.started(cluster, repository)
        repository.commit(self.files("regional-cluster/platform-api"))
        await cluster.found("v1", "ConfigMap", "it", "platform-api")
        await cluster.settled("platform-api")
        repository.remove("argocd/config/regional-cluster/clm")
        repository.commit()
        await cluster.gone("argoproj.io/v1alpha1", "Application", "clm", "argocd")
        await cluster.gone("v1", "ConfigMap", "it", "clm")
        assert await cluster.apps() == ["argocd", "platform-api"]

    async def test_a_deleted_application_returns(self, cluster: GitOpsCluster, repository: GitRepository) -> None:
        await self.started(cluster, repository)
        before = await cluster.client.get("v1", "ConfigMap", "it", "clm")
        await cluster.client.delete("argoproj.io/v1alpha1", "Application", "clm", "argocd")

        async def anew() -> bool:
            found = await cluster.client.get_or_none("v1", "ConfigMap", "it", "clm")
            return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(anew)  # it is gone for a moment only
        await cluster.settled("clm")

    async def test_a_failure_changes_nothing_and_is_told(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        await self.started(cluster, repository)
        broken = application_set(generators=[{"list": {"elements": []}}])
        await cluster.put(broken)

        async def told() -> str:
            found = await cluster.client.get("argoproj.io/v1alpha1", "ApplicationSet", "root-applicationset", "argocd")
            return next(
                (
                    c["message"]
                    for c in found["status"]["conditions"]
                    if c["type"] == "ErrorOccurred" and c["status"] == "True"
                ),
                "",
            )

        assert "generator 'list' is not supported" in await eventually(told)
        assert await cluster.apps() == ["argocd", "clm"]

    async def test_changes_of_its_applications_are_undone(
        self, cluster: GitOpsCluster, repository: GitRepository
    ) -> None:
        await self.started(cluster, repository)
        change = {"spec": {"destination": {"namespace": "elsewhere"}}, "metadata": {"labels": {"environment": "prod"}}}
        await cluster.client.patch("argoproj.io/v1alpha1", "Application", "clm", "argocd", change)

        async def undone() -> bool:
            app = await cluster.app("clm")
            return app["spec"]["destination"]["namespace"] == "clm" and labels_of(app)["environment"] == "local"

        await eventually(undone)
