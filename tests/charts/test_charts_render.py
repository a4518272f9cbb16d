"""Every chart, with every region's values, through the real Helm: it lints, it renders, and its pods are sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.rendering import (
    ALL,
    CHARTS,
    Deployed,
    Objects,
    charts_of,
    each_shape_of_values,
    helm,
    of_kind,
    template,
)

SHAPES = [pytest.param(deployed, id=deployed.name) for deployed in each_shape_of_values()]


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_the_chart_lints_without_a_warning(chart: Path) -> None:
    assert "[WARNING]" not in helm("lint", "--strict", str(chart))


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_its_notes_say_what_to_look_at(chart: Path) -> None:
    said = helm("install", chart.name, str(chart), "--namespace", chart.name, "--dry-run=client").split("NOTES:\n")[1]
    assert "kubectl" in said
    assert "<" not in said and "{{" not in said and "nil" not in said


@pytest.mark.parametrize("deployed", SHAPES)
def test_every_object_of_a_cluster_is_sound(deployed: Deployed) -> None:
    for chart in charts_of(deployed.kind):
        objects = deployed.rendered(chart)
        check_pods(objects)
        check_selectors(objects)
        check_networks(objects)


def check_pods(objects: Objects) -> None:
    accounts = {found["metadata"]["name"]: found for found in of_kind(objects, "ServiceAccount")}
    providers = {found["metadata"]["name"] for found in of_kind(objects, "SecretProviderClass")}
    budgets = {found["metadata"]["name"] for found in of_kind(objects, "PodDisruptionBudget")}
    bound = {subject["name"] for found in of_kind(objects, "ClusterRoleBinding") for subject in found["subjects"]}
    deployments = of_kind(objects, "Deployment")
    assert deployments
    for deployment in deployments:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
        pod = deployment["spec"]["template"]["spec"]
        several = deployment["spec"]["replicas"] > 1
        assert (deployment["metadata"]["name"] in budgets) == several
        assert ("topologySpreadConstraints" in pod) == several
        # A token is in a pod that asks for it, and only pods that have rights ask.
        assert accounts[pod["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert pod["automountServiceAccountToken"] is (pod["serviceAccountName"] in bound)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False
        for volume in pod.get("volumes", []):
            if "csi" in volume:
                assert volume["csi"]["volumeAttributes"]["secretProviderClass"] in providers
        for container in pod["containers"] + pod.get("initContainers", []):
            check_container(container)
        for container in pod["containers"]:
            check_probes(container)


def check_container(container: dict[str, Any]) -> None:
    assert container["image"] == "regional/regional:0.1.0"
    assert container["command"][:2] == ["regionctl", "serve"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    fields = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"]}
    assert fields["POD_IP"] == "status.podIP"


def check_probes(container: dict[str, Any]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["health"] == 8083
    assert all(port >= 1024 for port in ports.values())
    for probe, path in (("startupProbe", "/healthz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "health"}


def check_selectors(objects: Objects) -> None:
    """A Service, a budget, a monitor selects the pods of one Deployment, and names their ports."""
    pods = [found["spec"]["template"] for found in of_kind(objects, "Deployment")]
    for found in of_kind(objects, "Service", "PodDisruptionBudget"):
        selector: dict[str, str] = found["spec"]["selector"]
        selector = selector.get("matchLabels", selector)  # type: ignore[assignment]
        (pod,) = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
        names = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        for port in found["spec"].get("ports", []):
            assert port["targetPort"] in names


def check_networks(objects: Objects) -> None:
    """Each pod is denied everything, and has a policy of its own that says what it may."""
    policies = {found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "NetworkPolicy")}
    assert policies.pop("default-deny") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    selected = {name: spec["podSelector"]["matchLabels"] for name, spec in policies.items()}
    assert selected == {
        found["metadata"]["name"]: found["spec"]["selector"]["matchLabels"] for found in of_kind(objects, "Deployment")
    }


@pytest.mark.parametrize(
    ("chart", "service", "port"),
    [
        ("regional-cluster/platform-api", "platform-api", 8000),
        ("regional-cluster/clm", "clm-api", 8000),
        ("regional-cluster/maestro-server", "maestro-http", 8080),
        ("regional-cluster/maestro-server", "maestro-grpc", 8090),
    ],
)
def test_services_have_the_names_that_others_call(chart: str, service: str, port: int) -> None:
    services = [found for found in template(CHARTS / chart) if found["kind"] == "Service"]
    assert (service, port) in [(found["metadata"]["name"], found["spec"]["ports"][0]["port"]) for found in services]


@pytest.mark.parametrize(
    "chart", [chart for chart in ALL if chart.parent.name != "shared"], ids=lambda chart: chart.name
)
def test_a_misspelt_value_is_refused_by_the_schema(chart: Path) -> None:
    (key,) = set(yaml.safe_load((chart / "values.yaml").read_text())) - {"global"}
    with pytest.raises(AssertionError, match="replcas"):
        template(chart, "--set", f"{key}.replcas=2")


def test_pods_are_registered_with_the_load_balancer_if_there_is_one() -> None:
    chart = CHARTS / "regional-cluster/platform-api"
    assert "TargetGroupBinding" not in {found["kind"] for found in template(chart)}
    arn = "arn:aws:elasticloadbalancing:us-west-2:111111111111:targetgroup/api/0123456789abcdef"
    objects = template(chart, "--set", f"global.api_target_group_arn={arn}")
    (binding,) = [found for found in objects if found["kind"] == "TargetGroupBinding"]
    (service,) = [found for found in objects if found["kind"] == "Service"]
    assert binding["spec"]["targetGroupARN"] == arn
    assert binding["spec"]["serviceRef"] == {
        "name": service["metadata"]["name"],
        "port": service["spec"]["ports"][0]["port"],
    }


def test_secrets_come_from_secrets_manager_under_the_names_that_terraform_makes() -> None:
    mounted: dict[str, set[str]] = {}
    for chart in ALL:
        for found in template(chart):
            if found["kind"] == "SecretProviderClass":
                for entry in yaml.safe_load(found["spec"]["parameters"]["objects"]):
                    aliases = {path["objectAlias"] for path in entry["jmesPath"]}
                    mounted.setdefault(entry["objectName"], set()).update(aliases)
    database = {"db.host", "db.port", "db.name", "db.user", "db.password"}
    certificate = {"ca.crt", "tls.crt", "tls.key"}
    assert mounted == {
        "clm/db-credentials": database,
        "maestro/db-credentials": database,
        "maestro/server-cert": certificate,
        "maestro/server-config": {"config.yaml"},
        "maestro/agent-cert": certificate,
        "maestro/agent-config": {"config.yaml", "consumerName"},
        "platform-api/gateway-secret": {"gateway.secret"},
        "platform-api/config": {"privileged-accounts"},
    }


def test_custom_resources_outlive_their_chart() -> None:
    for chart in ALL:
        for found in template(chart):
            if found["kind"] == "CustomResourceDefinition" and chart.name in ("hypershift", "maestro-agent"):
                assert found["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"


def test_the_readme_lists_the_charts_and_how_many_of_each_run() -> None:
    lines = (CHARTS.parent / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    listed = {row[0].strip("`"): row for row in rows if len(row) == 5}
    assert set(listed) == {chart.name for chart in ALL}
    for chart in ALL:
        objects = template(chart)
        _, where, _, replicas, rights = listed[chart.name]
        assert chart.parent.name.startswith(where)
        assert {found["spec"]["replicas"] for found in of_kind(objects, "Deployment")} == {int(replicas[0])}
        assert (rights == "none, no token") == (not of_kind(objects, "ClusterRoleBinding"))
