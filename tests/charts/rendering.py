"""Charts through the real Helm, as a cluster of a declared region gets them. Each is rendered once per process."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from regional.config.load import load
from regional.config.model import Region
from regional.config.shape import CLUSTER_TYPES
from regional.core import paths
from regional.local.tools import ensure_kubectl_and_helm

CHECKOUT = paths.checkout()
CHARTS = CHECKOUT / "argocd" / "config"
ALL = sorted(file.parent for file in CHARTS.glob("*/*/Chart.yaml"))
Objects = list[dict[str, Any]]


def helm(*words: str) -> str:
    # One P: it renders a small chart, and others want the machine's cores too.
    environment = os.environ | {"GOMAXPROCS": "1", "KUBECONFIG": os.devnull}
    command = [str(ensure_kubectl_and_helm() / "helm"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@functools.cache
def _text(chart: Path, namespace: str, words: tuple[str, ...]) -> str:
    return helm("template", chart.name, str(chart), "--namespace", namespace, "--include-crds", *words)


def template(chart: Path, *words: str, namespace: str = "") -> Objects:
    text = _text(chart, namespace or chart.name, words)
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def charts_of(kind: str) -> list[Path]:
    return [chart for chart in ALL if chart.parent.name in (kind, "shared")]


def of_kind(objects: Objects, *kinds: str) -> Objects:
    return [found for found in objects if found["kind"] in kinds]


class Deployed:
    """A cluster's values as the ApplicationSet stacks them: the chart's, the region's, the cluster's, the facts."""

    def __init__(self, region: Region, kind: str, cluster: str = "") -> None:
        self.kind = kind
        self.name = f"{region.key}-{cluster or kind}"
        argocd = CHECKOUT / "deploy" / region.environment / region.name / "argocd"
        files = [argocd / f"{kind}-values.yaml"]
        if cluster and (own := argocd / f"{kind}-values" / f"{cluster}.yaml").exists():
            files.append(own)
        self._files = files
        self._facts = {"cluster_type": kind, "environment": region.environment, "region_alias": region.name}
        self._facts |= {"aws_region": region.aws_region, "cluster_name": cluster or "some-cluster"}

    def shape(self) -> str:
        """What two regions have in common that differ in nothing but their names."""
        text = "".join(line for file in self._files for line in file.read_text().splitlines(True) if line[0] != "#")
        for fact in sorted(self._facts.values(), key=len, reverse=True):
            text = text.replace(fact, "…")
        return self.kind + text

    def rendered(self, chart: Path) -> Objects:
        words = ["-f", str(chart / "values.yaml")]
        for file in self._files:
            words += ["-f", str(file)]
        return template(chart, *words, "--set", ",".join(f"global.{key}={value}" for key, value in self._facts.items()))


def each_shape_of_values() -> list[Deployed]:
    """One cluster for each way in which values differ: Helm takes its time, and names change nothing."""
    found: dict[str, Deployed] = {}
    for region in load(CHECKOUT / "config.yaml").regions:
        for kind in CLUSTER_TYPES:
            clusters = [c.cluster_id for c in region.management_clusters] if kind == "management-cluster" else []
            for cluster in clusters or [""]:
                deployed = Deployed(region, kind, cluster)
                found.setdefault(deployed.shape(), deployed)
    return list(found.values())
