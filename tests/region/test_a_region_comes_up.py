"""The tour of the README, on a real region."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.region import processes
from tests.region.conftest import LiveRegion

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(900)]


def test_every_part_is_well_and_says_where_it_is(region: LiveRegion) -> None:
    seen = region.wait_healthy()
    names = {(part["where"], part["kind"], part["name"]) for part in seen["parts"]}
    services = {
        "aws",
        "warm",
        "postgres",
        "broker",
        "gateway",
        *(f"{c}-{p}" for c in ("rc", "mc01", "mc02") for p in ("api", "node")),
    }
    assert {("region", "service", s) for s in services} <= names
    assert {("rc", "application", a) for a in ("root", "argocd", "platform-api", "clm", "maestro-server")} <= names
    for cluster in ("mc01", "mc02"):
        assert {(cluster, "application", a) for a in ("root", "argocd", "maestro-agent", "hypershift")} <= names
    for part in seen["parts"]:
        assert part["since"] or part["kind"] == "application", part
        if part["kind"] in ("service", "pod"):
            assert part["pid"], part
            assert part["address"], part
    assert "no address or credential" in seen["isolation"]


def test_status_exit_code_tells(region: LiveRegion) -> None:
    region.eventually(lambda: region.regionctl("status", check=False).returncode == 0, "all is well")
    assert region.regionctl("status", "--region", "nowhere", check=False).returncode == 3


def test_kubectl_sees_applications_pods_and_logs(region: LiveRegion) -> None:
    applications = region.kubectl("rc", "get", "applications", "-n", "argocd")
    assert "SYNC STATUS" in applications and "Synced" in applications and "Healthy" in applications
    assert "maestro-server" in region.kubectl("rc", "get", "pods", "-A")
    logs = region.kubectl("mc01", "logs", "-n", "maestro-agent", "deploy/maestro-agent")
    assert '"msg"' in logs
    described = region.kubectl("rc", "describe", "deployment", "-n", "platform-api", "platform-api")
    assert "platform-api" in described


def test_a_deleted_pod_comes_back_by_itself(region: LiveRegion) -> None:
    before = {pod["name"] for pod in region.pods("rc", "maestro-server/")}
    region.kubectl("rc", "-n", "maestro-server", "delete", "pod", "--all")
    region.wait_healthy()

    def others() -> bool:
        after = {pod["name"] for pod in region.pods("rc", "maestro-server/")}
        return bool(after) and not after & before

    region.eventually(others, "other pods")


def test_a_role_runs_only_because_a_pod_says_so(region: LiveRegion) -> None:
    """GitOps would heal the drift, so it is scaled down first, as an operator would."""
    region.rest_gitops("mc02")
    pid = region.pods("mc02", "hypershift/")[0]["pid"]
    region.kubectl("mc02", "-n", "hypershift", "scale", "deployment/hypershift", "--replicas=0")
    region.eventually(lambda: pid not in processes.parents(), "its process is gone")
    assert not region.pods("mc02", "hypershift/")
    region.kubectl("mc02", "-n", "argocd", "scale", "deployment/argocd", "--replicas=1")
    region.wait_healthy()
    assert region.pods("mc02", "hypershift/"), "GitOps brought it back"


def test_rollout_restart_rolls(region: LiveRegion) -> None:
    before = {pod["name"] for pod in region.pods("rc", "platform-api/")}
    region.kubectl("rc", "-n", "platform-api", "rollout", "restart", "deployment/platform-api")
    region.kubectl("rc", "-n", "platform-api", "rollout", "status", "deployment/platform-api", "--timeout=150s")
    region.wait_healthy()
    region.eventually(
        lambda: not before & {pod["name"] for pod in region.pods("rc", "platform-api/")}, "the former ones are gone"
    )


def test_up_on_a_running_region_changes_nothing(region: LiveRegion) -> None:
    before = {(p["where"], p["name"]): p["pid"] for p in region.wait_healthy()["parts"]}
    region.up()
    after = {(p["where"], p["name"]): p["pid"] for p in region.wait_healthy()["parts"]}
    assert after == before


def test_gitops_that_somebody_deleted_is_missed_and_brought_back_by_up(region: LiveRegion) -> None:
    def missed() -> bool:
        # Again and again, since a controller may bring its own Deployment back before it ends.
        region.kubectl("mc02", "-n", "argocd", "delete", "deployment", "argocd", "--ignore-not-found")
        seen = region.regionctl("status", check=False)
        return seen.returncode == 1 and "GitOps does not run" in seen.stdout

    region.eventually(missed, "status says that GitOps is gone")
    region.up()
    region.wait_healthy()
    region.kubectl("mc02", "-n", "argocd", "rollout", "status", "deployment/argocd", "--timeout=150s")


def test_two_ups_at_once_one_is_told_to_wait(region: LiveRegion) -> None:
    import fcntl

    with (region.paths.supervisor / "up.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        refused = region.regionctl("up", "local", "--worktree", check=False)
    assert refused.returncode == 1
    assert "another `regionctl up`" in refused.stderr and "Traceback" not in refused.stderr


def test_env_and_kubeconfig_are_ready_to_use(region: LiveRegion) -> None:
    script = (
        f'eval "$({sys.executable} -m regional.cli.main env)"; '
        'regionctl kubeconfig mc01 > "$1"; kubectl --kubeconfig "$1" version'
    )
    target = region.home / "mine.kubeconfig"
    result = subprocess.run(
        ["bash", "-c", script, "-", str(target)], env=region.env, capture_output=True, text=True, check=False
    )
    assert "Server Version" in result.stdout, result.stderr
    unknown = region.regionctl("kubeconfig", "mc09", check=False)
    assert unknown.returncode == 1 and "clusters: rc, mc01, mc02" in unknown.stderr


def test_logs_of_a_part_and_of_a_pod(region: LiveRegion) -> None:
    assert "warm parent ready" in region.regionctl("logs", "warm", "-n", "1000").stdout
    assert region.regionctl("logs", "maestro-server").stdout
    unknown = region.regionctl("logs", "warmm", check=False)
    assert unknown.returncode != 0 and "did you mean" in unknown.stderr


def test_the_pipelines_can_be_run_again_one_by_one(region: LiveRegion) -> None:
    for pipeline in ("provision-maestro-agent-iot-regional", "provision-maestro-agent-iot-management"):
        name = pipeline.removeprefix("provision-")
        result = region.regionctl("pipeline", "run", name, "--region", "local", "--cluster", "mc01")
        assert "✓" in result.stdout
    again = region.regionctl("pipeline", "run", "provision-management", "--cluster", "mc01").stdout
    assert "✓ provision-management-mc01: register" in again
    key = region.paths.root / "customers" / "customer.json"
    before = key.read_text()
    assert "register-account" in region.regionctl("pipeline", "run", "customer").stdout
    assert key.read_text() == before
    region.wait_healthy()


def test_pods_are_adopted_when_only_their_node_died(region: LiveRegion) -> None:
    before = {pod["name"]: pod["pid"] for pod in region.pods("rc")}
    old = region.pid("rc-node")
    os.kill(old, signal.SIGKILL)
    region.eventually(lambda: region.pid("rc-node") not in (0, old), "another node process")
    region.wait_healthy()
    assert {pod["name"]: pod["pid"] for pod in region.pods("rc")} == before


def test_down_stops_all_and_up_brings_all_data_back(region: LiveRegion) -> None:
    region.kubectl("rc", "create", "configmap", "kept", "--from-literal=answer=42")
    uid = json.loads(region.kubectl("mc01", "get", "ns", "maestro-agent", "-o", "json"))["metadata"]["uid"]
    region.regionctl("down")
    region.eventually(lambda: not processes.of_home(region.home), "no process is left")
    region.up()
    region.wait_healthy()
    kept = json.loads(region.kubectl("rc", "get", "configmap", "kept", "-o", "json"))
    assert kept["data"] == {"answer": "42"}
    assert json.loads(region.kubectl("mc01", "get", "ns", "maestro-agent", "-o", "json"))["metadata"]["uid"] == uid
