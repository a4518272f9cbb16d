"""From a signed request to a kubeconfig that works, on a real region, with what `regionctl env` gives a customer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regional.core.paths import checkout, tools
from tests.region import processes
from tests.region.conftest import SLOW, LiveRegion
from tests.region.customer import Customer, condition, is_ready, shell_settings

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(900 * SLOW)]
MANAGEMENT_CLUSTERS = ("mc01", "mc02")


@pytest.fixture
def customer(region: LiveRegion) -> Iterator[Customer]:
    region.wait_healthy()
    made = Customer(region)
    yield made
    made.api.close()


def payload(cluster: str, name: str) -> dict[str, Any]:
    """The example that the guides send, under a name of this test's own."""
    text = (checkout() / "examples" / "work" / "payload.json").read_text()
    work: dict[str, Any] = json.loads(text.replace("maestro-payload-test", name))
    work["cluster_id"] = cluster
    return work


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


# -- the edge --------------------------------------------------------------------------------------------------------


def test_the_settings_are_all_that_a_signed_request_needs(customer: Customer, region: LiveRegion) -> None:
    known = shell_settings(region)
    assert "://" not in known["API_GATEWAY_URL"] and known["AWS_DEFAULT_REGION"] == known["AWS_REGION"] == "us-west-2"
    assert known["REQUESTS_CA_BUNDLE"] == known["AWS_CA_BUNDLE"]
    assert customer.get("/live") == {"status": "ok"}
    assert customer.get("/ready") == {"status": "ok"}
    info = customer.get("/info")
    assert info["arn"].startswith(f"arn:aws:iam::{info['account_id']}:user/")


def test_curl_signs_and_trusts_with_the_same_settings(region: LiveRegion) -> None:
    if shutil.which("curl") is None:
        pytest.skip("this machine has no curl")
    known = shell_settings(region)
    key = f"{known['AWS_ACCESS_KEY_ID']}:{known['AWS_SECRET_ACCESS_KEY']}"
    done = subprocess.run(
        [
            *("curl", "-sS", "--fail-with-body", "--aws-sigv4", f"aws:amz:{known['AWS_REGION']}:execute-api"),
            *("--config", "-", f"https://{known['API_GATEWAY_URL']}/prod/api/v0/info"),
        ],
        env={**os.environ, **known},
        input=f'user = "{key}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    if "unknown" in done.stderr and "aws-sigv4" in done.stderr:
        pytest.skip("this curl cannot sign")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["arn"]


def test_keys_are_for_the_owners_eyes_only(region: LiveRegion) -> None:
    region.wait_healthy()
    secret = shell_settings(region)["AWS_SECRET_ACCESS_KEY"]
    private = [*region.paths.root.glob("customers/*"), *region.paths.root.glob("gateway/*")]
    private += [*region.paths.root.glob("pki/gateway/*")]
    assert {"customer.json", "tls.key", "gateway.secret", "ca.key"} <= {file.name for file in private}
    for file in private:
        assert file.stat().st_mode & 0o077 == 0, file
    gateway_secret = (region.paths.root / "gateway" / "gateway.secret").read_text()
    told = region.regionctl("status", "-o", "json").stdout + region.regionctl("status").stdout
    written = (region.paths.service_logs, region.paths.pipelines, region.paths.root / "nodes")
    logs = [text for place in written for path, text in processes.files(place) if path.name.endswith("log")]
    assert logs
    for text in (told, *logs):
        assert secret not in text and gateway_secret not in text


def test_the_edge_comes_back_and_status_is_red_while_it_does_not_answer(customer: Customer, region: LiveRegion) -> None:
    pid = region.pid("gateway")
    os.kill(pid, signal.SIGSTOP)
    try:
        seen = region.status()
        (edge,) = [part for part in seen["parts"] if part["name"] == "gateway"]
        assert not seen["healthy"] and not edge["ok"] and edge["message"]
        assert region.regionctl("status", check=False).returncode == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    region.eventually(lambda: region.pid("gateway") not in (0, pid), "another edge")
    region.wait_healthy()
    assert customer.get("/live") == {"status": "ok"}
    assert "signatures" in region.regionctl("logs", "gateway", "-n", "1000").stdout


def test_the_edge_follows_the_service_to_another_address(customer: Customer, region: LiveRegion) -> None:
    """GitOps makes the Service again; its address is taken by then, so it gets another, and nobody tells the edge."""
    where = ("get", "service", "platform-api", "-n", "platform-api", "-o", "jsonpath={.spec.clusterIP}")
    before = region.kubectl("rc", *where)
    try:
        region.rest_gitops("rc")
        region.kubectl("rc", "delete", "service", "platform-api", "-n", "platform-api")
        region.kubectl("rc", "create", "service", "clusterip", "squatter", f"--clusterip={before}", "--tcp=8000")
    finally:
        region.kubectl("rc", "-n", "argocd", "scale", "deployment/argocd", "--replicas=1")
    region.eventually(lambda: region.kubectl("rc", *where, check=False) not in ("", before), "another address")
    region.kubectl("rc", "delete", "pod", "-n", "platform-api", "--all")  # and with them the connections of before
    region.wait_healthy()
    assert customer.get("/ready") == {"status": "ok"}
    region.kubectl("rc", "delete", "service", "squatter")


# -- the slides' commands --------------------------------------------------------------------------------------------


def test_management_clusters_are_registered_with_their_capacity(customer: Customer) -> None:
    known = {found["name"]: found for found in customer.get("/management_clusters")["items"]}
    accounts = {known[name]["accountId"] for name in MANAGEMENT_CLUSTERS}
    assert len(accounts) == 2
    for name in MANAGEMENT_CLUSTERS:
        assert known[name]["labels"]["cluster_id"] == name
        assert known[name]["region"] == "us-west-2"
        assert known[name]["accepting"] is True and known[name]["capacity"] == 50


def test_a_consumer_is_registered_once(customer: Customer) -> None:
    name = unique("management")
    body = {"name": name, "labels": {"cluster_type": "management", "cluster_id": name}}
    status, made = customer.ask("POST", "/management_clusters", body)
    assert status == 201, made
    assert made["kind"] == "Consumer" and made["name"] == name and made["labels"] == body["labels"]
    status, refused = customer.ask("POST", "/management_clusters", body)
    assert status == 409 and "already exists" in refused["reason"]
    assert customer.get(f"/management_clusters/{made['id']}")["name"] == name


def test_work_is_applied_and_speaks_back(customer: Customer, region: LiveRegion) -> None:
    name = unique("work")
    status, work = customer.ask("POST", "/work", payload("mc01", name))
    assert status == 201, work
    assert work["kind"] == "ManifestWork" and work["cluster_id"] == "mc01" and work["name"] == name
    bundle = customer.bundle_of(work, lambda found: condition(found.get("status"), "Applied") == "True")
    listed = customer.get("/resource_bundles", search=f"name = '{name}'")
    assert [found["id"] for found in listed["items"]] == [bundle["id"]]
    assert isinstance(bundle["status"]["resourceStatus"], list)
    (resource,) = bundle["status"]["resourceStatus"]
    assert condition(resource, "Applied") == "True" and condition(resource, "StatusFeedbackSynced") == "True"
    (value,) = resource["statusFeedback"]["values"]
    assert json.loads(value["fieldValue"]["jsonRaw"])["name"] == name
    applied = json.loads(region.kubectl("mc01", "get", "configmap", name, "-o", "json"))
    assert applied["data"]["message"]
    assert not region.kubectl("mc02", "get", "configmap", name, "--ignore-not-found")
    assert customer.ask("DELETE", f"/resource_bundles/{work['id']}")[0] == 202
    customer.until_gone(f"/resource_bundles/{work['id']}")
    assert not region.kubectl("mc01", "get", "configmap", name, "--ignore-not-found")


def test_work_for_a_consumer_without_an_agent_is_taken_and_never_applied(customer: Customer) -> None:
    name = unique("nobody")
    assert customer.ask("POST", "/management_clusters", {"name": name})[0] == 201
    status, work = customer.ask("POST", "/work", payload(name, name))
    assert status == 201, work
    # An agent that listens answers within the time that another cluster's needs.
    status, other = customer.ask("POST", "/work", payload("mc02", name))
    assert status == 201, other
    customer.bundle_of(other, lambda found: condition(found.get("status"), "Applied") == "True")
    silent = customer.get(f"/resource_bundles/{work['id']}")
    assert condition(silent.get("status"), "Applied") == ""
    assert silent["delivery"]
    customer.ask("DELETE", f"/resource_bundles/{other['id']}")


def test_work_for_a_stranger_is_refused(customer: Customer) -> None:
    status, refused = customer.ask("POST", "/work", payload("nowhere", unique("work")))
    assert status in (400, 404), refused
    assert "nowhere" in refused["reason"]


# -- a cluster -------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(customer: Customer, name: str) -> Iterator[dict[str, Any]]:
    status, made = customer.ask("POST", "/clusters", {"name": name})
    assert status == 201, made
    try:
        yield made
    finally:
        customer.ask("DELETE", f"/clusters/{made['id']}")
        customer.until_gone(f"/clusters/{made['id']}")


def test_a_cluster_lives_and_dies(customer: Customer, region: LiveRegion, tmp_path: Path) -> None:
    before = {name: leftovers(region, name) for name in MANAGEMENT_CLUSTERS}
    name = unique("demo")
    with cluster(customer, name) as made:
        ready = customer.until(f"/clusters/{made['id']}", is_ready, "Ready")
        host = ready["status"]["placementRef"]["managementCluster"]
        assert host in MANAGEMENT_CLUSTERS
        steps = [step["step"] for step in ready["status"]["timeline"]]
        assert steps == ["accepted", "placed", "published", "applied", "control plane", "Ready"]
        times = [step["time"] for step in ready["status"]["timeline"]]
        assert times == sorted(times)
        pool = {"cluster_id": made["id"], "name": "workers", "spec": {"replicas": 2}}
        status, workers = customer.ask("POST", "/nodepools", pool)
        assert status == 201, workers
        customer.until(f"/nodepools/{workers['id']}", is_ready, "workers Ready")
        kubeconfig = tmp_path / "guest.kubeconfig"
        status, text = customer.ask("GET", f"/clusters/{made['id']}/kubeconfig")
        assert status == 200, text
        kubeconfig.write_text(text if isinstance(text, str) else json.dumps(text))
        nodes = guest(kubeconfig, "get", "nodes", "-o", "json")
        assert len(json.loads(nodes)["items"]) == 2
        assert "kube-system" in guest(kubeconfig, "get", "namespaces", "-o", "name")
        assert ready["status"]["version"] in guest(kubeconfig, "get", "clusterversion")
        guest(kubeconfig, "create", "configmap", "mine", "--from-literal=answer=42")
        assert guest(kubeconfig, "get", "configmap", "mine", "-o", "jsonpath={.data.answer}") == "42"
        assert "mine" not in region.kubectl(host, "get", "configmaps", "-A", "-o", "name")
        assert leftovers(region, host) != before[host]
    for host in MANAGEMENT_CLUSTERS:
        region.eventually(lambda host=host: leftovers(region, host) == before[host], f"{host} is as it was")
    assert not [item for item in customer.get("/clusters")["items"] if item["name"] == name]


def leftovers(region: LiveRegion, host: str) -> dict[str, Any]:
    """Everything on a management cluster that a hosted cluster could leave behind: objects, processes, files."""
    kinds = "namespaces,hostedclusters,nodepools,secrets,persistentvolumeclaims,persistentvolumes"
    pods = [pod for pod in region.pods(host) if pod["name"].startswith("cluster-")]
    return {
        "objects": sorted(region.kubectl(host, "get", kinds, "-A", "-o", "name").split()),
        "pods": sorted(pod["name"] for pod in pods),
        "files": sorted(str(path) for path in (region.paths.node(host) / "claims").glob("*")),
    }


def guest(kubeconfig: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(tools() / "bin" / "kubectl"), "--kubeconfig", str(kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_ready_is_only_what_came_back_over_the_broker(customer: Customer, region: LiveRegion) -> None:
    """With no agent listening a cluster cannot become Ready; when one comes, it does."""
    try:
        for host in MANAGEMENT_CLUSTERS:  # GitOps would bring the agent back, so it rests first
            region.rest_gitops(host)
            pids = [pod["pid"] for pod in region.pods(host, "maestro-agent/")]
            region.kubectl(host, "-n", "maestro-agent", "scale", "deployment/maestro-agent", "--replicas=0")
            region.eventually(lambda pids=pids: not set(pids) & set(processes.parents()), "the agent is gone")
        name = unique("dark")
        status, made = customer.ask("POST", "/clusters", {"name": name})
        assert status == 201, made
        published = customer.until(
            f"/clusters/{made['id']}",
            lambda found: "published" in {step["step"] for step in found["status"]["timeline"]},
            "published",
        )
        host = published["status"]["placementRef"]["managementCluster"]
        for _ in range(12):  # longer than a create takes at rest
            time.sleep(0.5)
            found = customer.get(f"/clusters/{made['id']}")
            assert found["status"]["phase"] == "Provisioning" and found["status"]["message"]
            assert "applied" not in {step["step"] for step in found["status"]["timeline"]}
        assert not region.kubectl(host, "get", "hostedclusters", "-A", "-o", "name")
    finally:
        for host in MANAGEMENT_CLUSTERS:
            region.kubectl(host, "-n", "argocd", "scale", "deployment/argocd", "--replicas=1")
    region.wait_healthy()
    customer.until(f"/clusters/{made['id']}", is_ready, "Ready after the agent came")
    assert customer.ask("DELETE", f"/clusters/{made['id']}")[0] == 202
    customer.until_gone(f"/clusters/{made['id']}")


def test_accounts_that_nobody_let_in_stay_out(customer: Customer, region: LiveRegion) -> None:
    """A key of the region's AWS that is real, in an account that is not registered."""
    from regional.cloud.accounts import mint_account
    from regional.cloud.aws import Aws, Credentials
    from regional.gateway.client import ApiClient, ApiError

    known = shell_settings(region)
    central = Aws(
        region=known["AWS_REGION"],
        endpoint=known["AWS_ENDPOINT_URL"],
        credentials=Credentials("central", "central"),
        environ={},
    )
    name = unique("stranger")
    inside = central.assume(mint_account(central, name, f"{name}@example.com"), session_name="stranger")
    stranger = ApiClient(
        known["API_GATEWAY_URL"], known["AWS_REGION"], inside.frozen_credentials(), ca_file=known["AWS_CA_BUNDLE"]
    )
    try:
        for path in ("/clusters", "/management_clusters", "/accounts", "/resource_bundles"):
            with pytest.raises(ApiError) as refused:
                stranger.get(f"/api/v0{path}")
            assert refused.value.status == 403 and refused.value.code == "account-not-allowed"
        assert stranger.get("/api/v0/info")["arn"].endswith("/stranger")
        account = stranger.get("/api/v0/info")["account_id"]
        assert customer.ask("POST", "/accounts", {"accountId": account})[0] == 201
        with cluster(customer, unique("mine")) as mine:
            found = region.eventually(lambda: listed(stranger), "it is let in")
            assert found["items"] == []
            with pytest.raises(ApiError) as hidden:
                stranger.get(f"/api/v0/clusters/{mine['id']}")
            assert hidden.value.status == 404
            with pytest.raises(ApiError) as unprivileged:
                stranger.get("/api/v0/management_clusters")
            assert unprivileged.value.status == 403 and unprivileged.value.code == "not-privileged"
        assert customer.ask("DELETE", f"/accounts/{account}")[0] in (200, 202)
    finally:
        stranger.close()
        inside.close()
        central.close()


def listed(api: Any) -> Any:
    from regional.gateway.client import ApiError

    try:
        return api.get("/api/v0/clusters")
    except ApiError as error:
        assert error.status == 403
        return None
