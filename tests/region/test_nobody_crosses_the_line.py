"""No process of the Regional Cluster holds an address or credential of a Management Cluster, nor the other way round;
no pod reads the supervisor's state. What is proven is "holds no", not "has no path": that needs namespaces."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest

from tests.region import processes
from tests.region.conftest import LiveRegion
from tests.region.policies import Policies

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(900)]
CLUSTERS = ("rc", "mc01", "mc02")


@pytest.fixture(scope="module")
def blocks(region: LiveRegion) -> dict[str, ipaddress.IPv4Network]:
    bases = json.loads((region.paths.root / "addresses.json").read_text())
    return {cluster: ipaddress.IPv4Network(f"{bases[cluster]}/22") for cluster in CLUSTERS}


def pod_processes(region: LiveRegion, cluster: str) -> dict[int, str]:
    return {pod["pid"]: pod["name"] for pod in region.pods(cluster) if pod["pid"]}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_pod_opens_the_supervisors_state(region: LiveRegion, cluster: str) -> None:
    region.wait_healthy()
    private = [str(region.paths.supervisor), str(region.paths.root / "clusters"), str(region.paths.postgres)]
    for pid, name in pod_processes(region, cluster).items():
        touched = {f for f in processes.open_files(pid) if any(f.startswith(p) for p in private)}
        assert not touched, f"{cluster} {name}: {touched}"


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_pods_sockets_stay_in_its_cluster_or_go_to_shared_services(
    region: LiveRegion, cluster: str, blocks: dict[str, ipaddress.IPv4Network]
) -> None:
    foreign = [network for name, network in blocks.items() if name != cluster]
    for pid, name in pod_processes(region, cluster).items():
        for peer in processes.peers(pid):
            inside = [n for n in foreign if ipaddress.IPv4Address(peer) in n]
            assert not inside, f"{cluster} {name} talks to {peer}"


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_pods_open_no_connection_that_their_network_policies_deny(region: LiveRegion, cluster: str) -> None:
    """Nothing enforces policies on one machine: this is how we know that they leave open what a region needs."""
    region.wait_healthy()
    policies = Policies(
        json.loads(region.kubectl(cluster, "get", "networkpolicies,services,namespaces,pods", "-A", "-o", "json"))
    )
    judged = 0
    for pid, name in pod_processes(region, cluster).items():
        for address, port in processes.opened(pid):
            judged += 1
            assert policies.let_out(name, address, port), f"{cluster} {name} talks to {address}:{port}"
    assert judged


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_file_of_a_pod_names_another_cluster(
    region: LiveRegion, cluster: str, blocks: dict[str, ipaddress.IPv4Network]
) -> None:
    """Environment (from the manifest), mounted secrets, tokens, hosts files: everything a pod was given."""
    foreign_authorities = {
        (region.paths.cluster(other) / "pki" / "ca.crt").read_text().strip() for other in CLUSTERS if other != cluster
    }
    foreign_prefixes = {
        str(network.network_address).rsplit(".", 2)[0]
        + "."
        + str(int(str(network.network_address).split(".")[2]) + n)
        + "."
        for other, network in blocks.items()
        if other != cluster
        for n in range(4)
    }
    files = {path: text for path, text in processes.files(region.paths.node(cluster)) if path.name != "log"}
    assert files
    for path, text in files.items():
        assert not any(authority in text for authority in foreign_authorities), path
        assert not any(prefix in text for prefix in foreign_prefixes), path
    for pid, name in pod_processes(region, cluster).items():
        given = processes.environment(pid)
        if not given and pid not in processes.parents():
            continue  # it has ended meanwhile
        assert "KUBERNETES_SERVICE_HOST" in given, f"{name}: not the pod's own environment"
        assert not any(prefix in given for prefix in foreign_prefixes), name
    manifests = region.kubectl(cluster, "get", "pods,secrets,configmaps,services", "-A", "-o", "json")
    assert not any(prefix in manifests for prefix in foreign_prefixes)


def test_nodes_and_apis_are_not_started_with_another_clusters_files(region: LiveRegion) -> None:
    for cluster in CLUSTERS:
        for part in ("api", "node"):
            pid = region.pid(f"{cluster}-{part}")
            command = processes.command(pid)
            others = [o for o in CLUSTERS if o != cluster and str(region.paths.cluster(o)) in command]
            assert not others, command


def test_secrets_on_disk_are_for_the_owner_only(region: LiveRegion) -> None:
    for path in [*region.paths.root.glob("clusters/*/pki/*.key"), *region.paths.root.glob("clusters/*/*.kubeconfig")]:
        assert Path(path).stat().st_mode & 0o077 == 0, path
