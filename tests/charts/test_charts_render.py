"""Every chart, with every region's values, through the real Helm: it lints, it renders, and its pods are sound."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional.config.load import load
from regional.config.shape import CLUSTER_TYPES
from regional.core import paths
from regional.local.tools import ensure_kubectl_and_helm

CHECKOUT = paths.checkout()
CHARTS = CHECKOUT / "argocd" / "config"
REGIONS = load(CHECKOUT / "config.yaml").regions
ALL = sorted(file.parent for file in CHARTS.glob("*/*/Chart.yaml"))
RUNS = [
    pytest.param(chart, region, kind, id=f"{region.key}-{chart.name}-{kind}")
    for region in REGIONS
    for kind in CLUSTER_TYPES
    for chart in ALL
    if chart.parent.name in (kind, "shared")
]


def helm(*words: str) -> str:
    done = subprocess.run([ensure_kubectl_and_helm() / "helm", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def template(chart: Path, *words: str) -> list[dict[str, Any]]:
    text = helm("template", chart.name, str(chart), "--namespace", chart.name, "--include-crds", *words)
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def as_deployed(chart: Path, region: Any, kind: str) -> list[dict[str, Any]]:
    """The three layers of values as the ApplicationSet stacks them."""
    facts = {"cluster_type": kind, "environment": region.environment, "region_alias": region.name}
    facts |= {"aws_region": region.aws_region, "cluster_name": "some-cluster"}
    values = CHECKOUT / "deploy" / region.environment / region.name / "argocd" / f"{kind}-values.yaml"
    sets = ",".join(f"global.{key}={value}" for key, value in facts.items())
    return template(chart, "-f", str(chart / "values.yaml"), "-f", str(values), "--set", sets)


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_the_chart_lints_without_a_warning(chart: Path) -> None:
    assert "[WARNING]" not in helm("lint", "--strict", str(chart))


@pytest.mark.parametrize(("chart", "region", "kind"), RUNS)
def test_every_pod_is_sound(chart: Path, region: Any, kind: str) -> None:
    objects = as_deployed(chart, region, kind)
    accounts = {found["metadata"]["name"] for found in objects if found["kind"] == "ServiceAccount"}
    providers = {found["metadata"]["name"] for found in objects if found["kind"] == "SecretProviderClass"}
    deployments = [found for found in objects if found["kind"] == "Deployment"]
    assert deployments
    for deployment in deployments:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
        pod = deployment["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] in accounts
        assert pod["securityContext"]["runAsNonRoot"] is True
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
    assert {"requests", "limits"} <= set(container["resources"])
    fields = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"]}
    assert fields["POD_IP"] == "status.podIP"


def check_probes(container: dict[str, Any]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["health"] == 8083
    assert all(port >= 1024 for port in ports.values())
    for probe, path in (("startupProbe", "/healthz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "health"}


@pytest.mark.parametrize(("chart", "region", "kind"), RUNS)
def test_every_service_and_budget_selects_the_pods_of_a_deployment(chart: Path, region: Any, kind: str) -> None:
    objects = as_deployed(chart, region, kind)
    pods = [found["spec"]["template"] for found in objects if found["kind"] == "Deployment"]
    for found in objects:
        if found["kind"] == "Service":
            selector: dict[str, str] = found["spec"]["selector"]
        elif found["kind"] == "PodDisruptionBudget":
            selector = found["spec"]["selector"]["matchLabels"]
        else:
            continue
        (pod,) = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
        names = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        for port in found["spec"].get("ports", []):
            assert port["targetPort"] in names


@pytest.mark.parametrize(
    ("chart", "service", "port"),
    [
        ("regional-cluster/platform-api", "platform-api", 8000),
        ("regional-cluster/clm", "clm-api", 8000),
        ("regional-cluster/maestro-server", "maestro-http", 8080),
    ],
)
def test_services_have_the_names_that_others_call(chart: str, service: str, port: int) -> None:
    services = [found for found in template(CHARTS / chart) if found["kind"] == "Service"]
    assert [(found["metadata"]["name"], found["spec"]["ports"][0]["port"]) for found in services] == [(service, port)]


@pytest.mark.parametrize(
    "chart", [chart for chart in ALL if chart.parent.name != "shared"], ids=lambda chart: chart.name
)
def test_a_misspelt_value_is_refused_by_the_schema(chart: Path) -> None:
    (key,) = set(yaml.safe_load((chart / "values.yaml").read_text())) - {"global"}
    with pytest.raises(AssertionError, match="replcas"):
        template(chart, "--set", f"{key}.replcas=2")


def test_more_replicas_bring_a_disruption_budget_and_spread() -> None:
    objects = template(CHARTS / "regional-cluster/platform-api", "--set", "platformApi.replicas=3")
    assert "PodDisruptionBudget" in {found["kind"] for found in objects}
    (deployment,) = [found for found in objects if found["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]


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
