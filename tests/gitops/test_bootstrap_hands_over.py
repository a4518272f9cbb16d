"""From an empty cluster to one that manages itself, however often the task is interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from regional.core.clock import SystemClock
from regional.core.problems import UserError
from regional.gitops.bootstrap import BootstrapSettings, bootstrap, parse
from regional.gitops.identity import Facts
from regional.kube.client import Answer, Client, Stream, Transport
from regional.kube.client.transport import Query
from regional.kube.objects import uid_of
from tests.gitops.harness import CHART, GitOpsCluster, GitRepository, Obj, application_set, chart, config_map
from tests.kube_controllers.harness import eventually

ROOM = "deploy/local/local/argocd"


@pytest.fixture
def platform(repository: GitRepository) -> GitRepository:
    """A repository as a region's: the controller's real chart, another one, the rendered files."""
    shutil.copytree(CHART, repository.path / "argocd" / "config" / "shared" / "argocd")
    repository.commit(
        chart("argocd/config/regional-cluster/clm", {"cm.yaml": config_map("it")})
        | {
            f"{ROOM}/regional-cluster-manifests/applicationset.yaml": application_set(),
            f"{ROOM}/regional-cluster-values.yaml": {"argocd": {"logLevel": "debug"}},
        }
    )
    return repository


@pytest.fixture
def settings(platform: GitRepository, helm: str) -> BootstrapSettings:
    return BootstrapSettings(
        kubeconfig="",
        git_repo=platform.url,
        git_revision="main",
        environment="local",
        region_alias="local",
        aws_region="us-west-2",
        cluster_type="regional-cluster",
        cluster_name="rc",
        facts=["account_id=123456789012"],
        timeout=120.0,
        wait_all=True,
        helm=helm,
    )


class Killed(BaseException):
    """Like SIGKILL, nothing may catch it."""


class Narrator:
    """Hears what the task reports, and may kill it after so many words."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.lines: list[str] = []
        self._kill_at = kill_at

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if self._kill_at is not None and len(self.lines) >= self._kill_at:
            raise Killed


class LastLook(SystemClock):
    """Time is over when the task has looked once more after it has said these words, however long that took."""

    def __init__(self, words: str) -> None:
        self._words, self._said, self._over = words, False, False

    def hear(self, line: str) -> None:
        self._said = self._said or self._words in line

    def monotonic(self) -> float:
        return super().monotonic() + (1e6 if self._over else 0.0)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._over = self._said


async def controller_starts(cluster: GitOpsCluster) -> None:
    """Where pods are processes, the Deployment would start it; here the test does, and GitOps waits for its CRDs."""
    await cluster.follow()


async def objects(cluster: GitOpsCluster) -> dict[str, str]:
    """resourceVersions of everything the task writes."""
    wanted = [
        ("v1", "Namespace", "argocd", None),
        ("v1", "Secret", "local-cluster-identity", "argocd"),
        ("v1", "ServiceAccount", "argocd", "argocd"),
        ("apps/v1", "Deployment", "argocd", "argocd"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "argocd", None),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "applications.argoproj.io", None),
        ("argoproj.io/v1alpha1", "AppProject", "default", "argocd"),
        ("argoproj.io/v1alpha1", "Application", "root", "argocd"),
    ]
    found = {}
    for version, kind, name, namespace in wanted:
        live = await cluster.client.get(version, kind, name, namespace)
        found[f"{kind}/{name}"] = f"{uid_of(live)} {live['metadata']['resourceVersion']}"
    return found


async def test_a_fresh_cluster_comes_to_manage_itself(bare: GitOpsCluster, settings: BootstrapSettings) -> None:
    await controller_starts(bare)
    heard = Narrator()
    await bootstrap(settings, client=bare.client, report=heard)
    assert heard.lines[-1].startswith("handoff: the controller manages itself")
    assert await bare.apps() == ["argocd", "clm", "root"]
    secret = await bare.client.get("v1", "Secret", "local-cluster-identity", "argocd")
    assert secret["metadata"]["labels"]["cluster_name"] == "rc"
    assert secret["metadata"]["annotations"]["account_id"] == "123456789012"
    live = await bare.client.get("apps/v1", "Deployment", "argocd", "argocd")
    assert "--log-level=debug" in live["spec"]["template"]["spec"]["containers"][0]["args"]
    appliers = {e["manager"] for e in live["metadata"]["managedFields"] if e["operation"] == "Apply"}
    assert appliers == {"argocd-controller"}
    root = await bare.app("root")
    assert root["spec"]["syncPolicy"]["automated"] == {"prune": False, "selfHeal": True}


async def test_self_management_finds_nothing_to_change(bare: GitOpsCluster, settings: BootstrapSettings) -> None:
    await controller_starts(bare)
    await bootstrap(settings, client=bare.client, report=Narrator())
    live = await bare.client.get("apps/v1", "Deployment", "argocd", "argocd")
    assert live["metadata"]["generation"] == 1


async def test_again_on_a_live_cluster_it_changes_nothing(bare: GitOpsCluster, settings: BootstrapSettings) -> None:
    await controller_starts(bare)
    await bootstrap(settings, client=bare.client, report=Narrator())
    before = await objects(bare)
    heard = Narrator()
    await bootstrap(settings, client=bare.client, report=heard)
    assert "install: the controller is there and manages itself" in heard.lines
    assert await objects(bare) == before


@pytest.mark.parametrize("step", range(1, 7))
async def test_killed_after_any_step_the_next_run_finishes(
    bare: GitOpsCluster, settings: BootstrapSettings, step: int
) -> None:
    await controller_starts(bare)
    with pytest.raises(Killed):
        await bootstrap(settings, client=bare.client, report=Narrator(kill_at=step))
    await bootstrap(settings, client=bare.client, report=Narrator())
    await bare.settled("argocd")
    await bare.settled("clm")


class DyingTransport:
    """Lets so many writes through, and then the process is gone: before the next one, or after it but unheard."""

    def __init__(self, inner: Transport, writes: int, *, unheard: bool) -> None:
        self._inner, self._left, self._unheard = inner, writes, unheard

    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        if method == "GET":
            return await self._inner.request(method, path, query, headers, body)
        self._left -= 1
        if self._left >= 0 or self._unheard:
            answer = await self._inner.request(method, path, query, headers, body)
            if self._left >= 0:
                return answer
        raise Killed

    async def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> Stream:
        return await self._inner.stream(method, path, query, headers)

    async def close(self) -> None:
        await self._inner.close()


@pytest.mark.parametrize("unheard", [False, True])
@pytest.mark.parametrize("writes", [0, 1, 3, 5, 8, 10])
async def test_killed_at_any_write_the_next_run_finishes(
    bare: GitOpsCluster, settings: BootstrapSettings, writes: int, unheard: bool
) -> None:
    await controller_starts(bare)
    dying = Client(DyingTransport(bare.client.transport, writes, unheard=unheard))
    with pytest.raises(Killed):
        await bootstrap(settings, client=dying, report=Narrator())
    await bootstrap(settings, client=bare.client, report=Narrator())
    await bare.settled("argocd")
    await bare.settled("clm")


async def test_it_waits_for_an_api_that_is_not_up_yet(bare: GitOpsCluster, settings: BootstrapSettings) -> None:
    await bare.cluster.api.stop()
    settings.timeout = 1.0
    with pytest.raises(UserError, match="API was not ready"):
        await bootstrap(settings, client=bare.client, report=Narrator())


async def test_a_controller_that_was_scaled_to_nothing_is_brought_back(
    bare: GitOpsCluster, settings: BootstrapSettings
) -> None:
    """Excludes a task that takes no replicas for a healthy controller: nobody would ever start one again."""
    await controller_starts(bare)
    await bootstrap(settings, client=bare.client, report=Narrator())
    await bare.unfollow()
    await bare.client.patch("apps/v1", "Deployment", "argocd", "argocd", {"spec": {"replicas": 0}})

    async def scaled() -> bool:
        live = await bare.client.get("apps/v1", "Deployment", "argocd", "argocd")
        observed = (live.get("status") or {}).get("observedGeneration")
        return observed == live["metadata"]["generation"] and not live["status"].get("replicas")

    await eventually(scaled)
    heard = Narrator(kill_at=3)
    with pytest.raises(Killed):
        await bootstrap(settings, client=bare.client, report=heard)
    assert "applied at" in heard.lines[-1]
    assert (await bare.client.get("apps/v1", "Deployment", "argocd", "argocd"))["spec"]["replicas"] == 1


async def test_a_stuck_application_is_named_with_its_reason(
    bare: GitOpsCluster, settings: BootstrapSettings, platform: GitRepository
) -> None:
    platform.commit({"argocd/config/regional-cluster/clm/templates/cm.yaml": '{{ fail "no database" }}'})
    await controller_starts(bare)
    clock = LastLook("no database")
    with pytest.raises(UserError, match=r"clm: Unknown.*no database"):
        await bootstrap(settings, client=bare.client, report=clock.hear, clock=clock)


async def test_a_controller_that_does_not_start_is_said(bare: GitOpsCluster, settings: BootstrapSettings) -> None:
    bare.cluster.kubelet.healthy = lambda pod: False
    clock = LastLook("applied at")
    with pytest.raises(UserError, match="did not become available"):
        await bootstrap(settings, client=bare.client, report=clock.hear, clock=clock)


@pytest.mark.parametrize(
    ("files", "change", "reason"),
    [
        ({}, {"region_alias": "nowhere"}, "app path does not exist"),
        ({}, {"git_revision": "nope"}, "unable to resolve 'nope'"),
        ({}, {"environment": "not a label"}, "is not a label value"),
        ({}, {"git_repo": "https://me:secret@example.com/r"}, "git-repo holds a password"),
        ({}, {"facts": ["acount_id=1"]}, "did you mean 'account_id'"),
        ({"argocd/config/shared/clm/Chart.yaml": "name: clm"}, {}, "duplicate name: clm"),
        ({f"{ROOM}/regional-cluster-values.yaml": "argocd: {logLevel: loud}"}, {}, "logLevel"),
    ],
)
async def test_what_cannot_work_is_refused_before_anything_is_written(
    bare: GitOpsCluster,
    settings: BootstrapSettings,
    platform: GitRepository,
    files: Any,
    change: dict[str, Any],
    reason: str,
) -> None:
    platform.commit(files)
    for name, value in change.items():
        setattr(settings, name, value)
    with pytest.raises(UserError) as caught:
        await bootstrap(settings, client=bare.client, report=Narrator())
    assert reason in caught.value.message and "secret@" not in caught.value.message
    assert await bare.client.get_or_none("v1", "Namespace", "argocd") is None


async def test_a_new_revision_reaches_a_cluster_that_is_bootstrapped_again(
    bare: GitOpsCluster, settings: BootstrapSettings, platform: GitRepository
) -> None:
    await controller_starts(bare)
    await bootstrap(settings, client=bare.client, report=Narrator())
    platform.git("checkout", "-q", "-b", "next")
    commit = platform.commit(
        {"argocd/config/regional-cluster/clm/templates/cm.yaml": config_map("it", {"key": "next"})}
    )
    settings.git_revision = "next"
    await bootstrap(settings, client=bare.client, report=Narrator())

    async def arrived() -> bool:
        found: Obj = await bare.client.get("v1", "ConfigMap", "it", "clm")
        return bool(found["data"] == {"key": "next"})

    await eventually(arrived)
    await bare.settled("clm", commit=commit)


def test_flags_fill_the_settings(tmp_path: Path) -> None:
    argv = [
        "--kubeconfig",
        "k",
        "--git-repo",
        "file:///r",
        "--git-revision",
        "main",
        "--environment",
        "local",
        "--region-alias",
        "local",
        "--aws-region",
        "us-west-2",
        "--cluster-type",
        "regional-cluster",
        "--cluster-name",
        "rc",
        "--fact",
        "account_id=1",
        "--fact=vpc_id=vpc-1",
        "--timeout",
        "90",
        "--wait-all",
    ]
    settings = parse(argv)
    assert settings.identity().facts == Facts(account_id="1", vpc_id="vpc-1")
    assert (settings.timeout, settings.wait_all) == (90.0, True)
