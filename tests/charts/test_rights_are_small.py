"""What pods may do to their cluster: only who must, only what they need, and no stars but the GitOps controller's."""

from __future__ import annotations

import itertools
from typing import Any

import yaml

from tests.charts.rendering import ALL, CHARTS, Objects, of_kind, template

WRITES = {"create", "update", "patch", "delete"}


def rules_of(chart: str) -> list[dict[str, Any]]:
    (path,) = CHARTS.glob(f"*/{chart}")
    return [rule for role in of_kind(template(path), "ClusterRole") for rule in role["rules"]]


def allowed(rules: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_only_the_gitops_controller_may_do_everything() -> None:
    starred = {
        chart.name
        for chart in ALL
        for role in of_kind(template(chart), "ClusterRole", "Role")
        if any("*" in str(rule) for rule in role["rules"])
    }
    assert starred == {"argocd"}


def test_roles_are_bound_to_their_own_charts_account_only() -> None:
    for chart in ALL:
        objects = template(chart)
        assert not of_kind(objects, "Role", "RoleBinding")
        for binding in of_kind(objects, "ClusterRoleBinding"):
            assert binding["roleRef"]["name"] == chart.name
            (subject,) = binding["subjects"]
            assert subject == {"kind": "ServiceAccount", "name": chart.name, "namespace": chart.name}


def test_the_agent_may_apply_everything_that_adapters_send() -> None:
    may = allowed(rules_of("maestro-agent"))
    sent = set()
    for task in (CHARTS / "regional-cluster/clm/files/adapters").glob("*.yaml"):
        for resource in yaml.safe_load(task.read_text())["resources"]:
            lines = [line.strip(" -") for line in resource["manifest"].splitlines()]
            for version, kind in itertools.pairwise(lines):
                if version.startswith("apiVersion: ") and kind.startswith("kind: "):
                    group = version.removeprefix("apiVersion: ").rpartition("/")[0]
                    sent.add((group, kind.removeprefix("kind: ").lower() + "s"))
    sent.remove(("work.open-cluster-management.io", "manifestworks"))
    assert {("", "namespaces"), ("", "secrets"), ("hypershift.openshift.io", "nodepools")} <= sent
    for what in sent:
        assert may[what] >= WRITES | {"get", "list", "watch"}, what


def test_the_agent_cannot_give_itself_more_or_run_anything() -> None:
    """Namespaces, Secrets and hosted clusters start no process by themselves: HyperShift decides what comes of them."""
    may = allowed(rules_of("maestro-agent"))
    groups = {group for group, _ in may}
    assert not groups & {"apps", "batch", "rbac.authorization.k8s.io", "apiextensions.k8s.io"}
    core = {resource for group, resource in may if group == ""}
    assert core == {"namespaces", "configmaps", "secrets"}
    assert not any({"escalate", "bind", "impersonate"} & verbs for verbs in may.values())


def test_more_kinds_are_a_value_away() -> None:
    (chart,) = CHARTS.glob("*/maestro-agent")
    rule = '[{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get","list","watch","create","patch"]}]'
    objects: Objects = template(chart, "--set-json", f"maestroAgent.rules={rule}")
    (role,) = of_kind(objects, "ClusterRole")
    assert role["rules"][-1]["resources"] == ["deployments"]
