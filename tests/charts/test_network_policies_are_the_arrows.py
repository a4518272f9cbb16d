"""What network policies let through is what docs/architecture.md draws, arrow by arrow, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from regional.config.shape import CLUSTER_TYPES
from tests.charts.rendering import ALL, CHECKOUT, charts_of, of_kind, template

Arrow = tuple[str, str, int]
MONITORED = ("--set", "global.monitoring.enabled=true")
LOAD_BALANCER, DATABASE, BROKER, DNS = "the gateway's load balancer", "PostgreSQL", "the broker", "DNS"
KUBERNETES, GIT, HOSTED, PROMETHEUS = "the Kubernetes API", "Git", "hosted clusters' APIs", "Prometheus"
OUTSIDE = {LOAD_BALANCER, DATABASE, BROKER, DNS, KUBERNETES, GIT, HOSTED, PROMETHEUS}
VPC, SERVICES, INTERNET = "10.0.0.0/16", "172.20.0.0/16", "0.0.0.0/0"
BY_RANGE = {
    ("from", VPC, 8000): LOAD_BALANCER,
    ("to", VPC, 5432): DATABASE,
    ("to", INTERNET, 8883): BROKER,
    ("to", INTERNET, 443): GIT,
    ("to", VPC, 443): KUBERNETES,
    ("to", SERVICES, 443): KUBERNETES,
    ("to", SERVICES, 53): DNS,
}
BY_PODS = {
    ("kubernetes.io/metadata.name=kube-system", "k8s-app=kube-dns"): DNS,
    ("hypershift.openshift.io/hosted-control-plane=true", "app=kube-apiserver"): HOSTED,
    ("kubernetes.io/metadata.name=monitoring", ""): PROMETHEUS,
}


def labels_of(selector: dict[str, Any]) -> str:
    assert set(selector) <= {"matchLabels"}, selector
    return ",".join(f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items()))


def deployments() -> dict[tuple[str, str], tuple[str, dict[str, int]]]:
    """(its namespace, its pods' labels, as a policy names them) → name and ports."""
    found = {}
    for chart in ALL:
        for deployment in of_kind(template(chart, *MONITORED), "Deployment"):
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            ports = {port["name"]: int(port["containerPort"]) for port in container["ports"]}
            where = f"kubernetes.io/metadata.name={chart.name}"
            found[where, labels_of(deployment["spec"]["selector"])] = (deployment["metadata"]["name"], ports)
    return found


def place(peer: dict[str, Any], word: str, port: int, ours: dict[tuple[str, str], Any]) -> str:
    if "ipBlock" in peer:
        return BY_RANGE[word, peer["ipBlock"]["cidr"], port]
    who = labels_of(peer["namespaceSelector"]), labels_of(peer.get("podSelector", {}))
    if who in ours:
        return str(ours[who][0])
    return BY_PODS[who]


def let_through() -> tuple[set[Arrow], set[Arrow]]:
    """What policies let out, and what they let in."""
    out: set[Arrow] = set()
    into: set[Arrow] = set()
    ours = deployments()
    for chart in ALL:
        for policy in of_kind(template(chart, *MONITORED), "NetworkPolicy"):
            spec = policy["spec"]
            selected = (f"kubernetes.io/metadata.name={chart.name}", labels_of(spec["podSelector"]))
            if not selected[1]:
                continue  # denies all
            name, ports = ours[selected]
            out |= {(name, *end) for end in ends(spec.get("egress", []), "to", ports, ours)}
            into |= {(end[0], name, end[1]) for end in ends(spec.get("ingress", []), "from", ports, ours)}
    return out, into


def ends(
    rules: list[dict[str, Any]], word: str, ports: dict[str, int], ours: dict[tuple[str, str], Any]
) -> Iterator[tuple[str, int]]:
    for rule in rules:
        assert set(rule) == {word, "ports"} and rule[word] and rule["ports"], f"it opens too much: {rule}"
        for entry in rule["ports"]:
            assert set(entry) == {"protocol", "port"}
            port = ports[entry["port"]] if isinstance(entry["port"], str) else int(entry["port"])
            for peer in rule[word]:
                yield place(peer, word, port, ours), port


def drawn() -> set[Arrow]:
    """The table's rows, one arrow for each pair of names."""
    text = (CHECKOUT / "docs" / "architecture.md").read_text()
    section = text.split("## Who calls whom\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    pods = {name for name, _ in deployments().values()}
    found: set[Arrow] = set()
    for start, end, port, _ in rows[2:]:
        found |= {(a, b, int(port)) for a in named(start, pods) for b in named(end, pods)}
    return found


def named(cell: str, pods: set[str]) -> set[str]:
    if cell == "every pod":
        return pods
    names = set(re.findall(r"`([^`]+)`", cell)) or {cell}
    assert names <= pods | OUTSIDE, f"the architecture names what no chart has: {names - pods - OUTSIDE}"
    return names


def test_each_arrow_has_its_policies_and_nothing_else_is_open() -> None:
    out, into = let_through()
    arrows = drawn()
    assert out == {arrow for arrow in arrows if arrow[0] not in OUTSIDE}
    assert into == {arrow for arrow in arrows if arrow[1] not in OUTSIDE}


def test_without_monitoring_nobody_asks_for_metrics() -> None:
    for kind in CLUSTER_TYPES:
        for chart in charts_of(kind):
            for policy in of_kind(template(chart), "NetworkPolicy"):
                assert "monitoring" not in str(policy["spec"])


def test_the_door_for_other_clients_of_maestro_opens_for_those_who_are_named() -> None:
    chart = CHECKOUT / "argocd/config/regional-cluster/maestro-server"
    client = "namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=elsewhere"
    objects = template(chart, "--set", f"maestroServer.grpcClients[0].{client}")
    (policy,) = [found for found in of_kind(objects, "NetworkPolicy") if found["metadata"]["name"] == "maestro-server"]
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}}
    assert {"from": [peer], "ports": [{"protocol": "TCP", "port": 8090}]} in policy["spec"]["ingress"]


def test_what_a_pod_is_told_to_call_is_what_it_may_call() -> None:
    """URLs in arguments are values: their ports and namespaces must be those of the arrows."""
    out, _ = let_through()
    seen: set[Arrow] = set()
    services = {"clm-api.clm": "clm-api", "maestro-http.maestro-server": "maestro-server"}
    for chart in ALL:
        for deployment in of_kind(template(chart, *MONITORED), "Deployment"):
            for argument in deployment["spec"]["template"]["spec"]["containers"][0]["args"]:
                if match := re.search(r"=http://([^:/]+):(\d+)$", argument):
                    seen.add((deployment["metadata"]["name"], services[match.group(1)], int(match.group(2))))
    assert len(seen) == 4
    assert seen <= out
