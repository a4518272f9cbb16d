"""With the Prometheus operator in a cluster, each pod is asked for its metrics, and alerts name metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.charts.rendering import ALL, CHECKOUT, of_kind, template

MONITORED = ("--set", "global.monitoring.enabled=true")
BY_PROMETHEUS = {"up"}
FUNCTIONS = {"absent", "avg", "by", "count", "delta", "increase", "max", "min", "rate", "sum", "unless", "without"}
CHART = pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)


def our_metrics() -> set[str]:
    text = "".join(file.read_text() for file in (CHECKOUT / "src/regional").rglob("*.py"))
    return set(re.findall(r'"((?:[a-z]+_)+[a-z]+)"', text)) | set(re.findall(r"TYPE ((?:[a-z]+_)+[a-z]+)", text))


def metrics_in(expression: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)|\"[^\"]*\"", " ", expression)
    return set(re.findall(r"[a-z_]{2,}", bare)) - FUNCTIONS


@CHART
def test_alerts_name_metrics_that_the_code_has(chart: Path) -> None:
    known = our_metrics() | BY_PROMETHEUS
    (rules,) = of_kind(template(chart, *MONITORED), "PrometheusRule")
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    assert alerts and len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        named = metrics_in(rule["expr"])
        assert named and named <= known, f"{rule['alert']}: {named - known}"
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]


@CHART
def test_every_pod_is_asked_at_the_port_where_it_answers(chart: Path) -> None:
    objects = template(chart, *MONITORED)
    (monitor,) = of_kind(objects, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert endpoint["port"] in ports


@CHART
def test_without_the_operator_none_of_its_kinds_is_sent(chart: Path) -> None:
    assert not of_kind(template(chart), "PrometheusRule", "PodMonitor", "ServiceMonitor")
