"""A task file is checked whole when the adapter starts; one that passes does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional.clm.adapter.expressions import Environment, ExpressionError
from regional.clm.adapter.main import Settings, engines_of
from regional.clm.adapter.task import load_task
from regional.clm.adapter.template import Template, TemplateError
from regional.clm.adapter.transport import TransportError, read_work
from regional.clm.client import ClmClient
from regional.core.problems import UserError
from regional.maestro.client import MaestroClient
from tests.clm.harness import TASKS


def edited(tmp_path: Path, old: str, new: str) -> Path:
    """Our cluster task with one thing changed."""
    text = (TASKS / "cluster.yaml").read_text()
    assert old in text
    file = tmp_path / "task.yaml"
    file.write_text(text.replace(old, new, 1))
    return file


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("params:", "parms:", r"task.yaml:\d+: the file: .*unknown field `parms`"),
        ("method: GET", "method: FETCH", r"task.yaml:\d+: preconditions\[0\].api_call.method: Invalid enum value"),
        ("client: maestro", "client: kubernetes", r"resources\[0\].transport.client: Invalid enum value"),
        ("timeout: 5s", "timeout: soon", r"preconditions\[0\].api_call.timeout: 'soon' is no duration"),
        ("source: event.id", "source: somewhere", r"params\[0\].source: a source is event"),
        ('expression: consumer != ""', "expression: consumr", r"undeclared reference to 'consumr'"),
        ('expression: consumer != ""', "expression: consumer !=", r"preconditions\[2\].expression: no valid CEL"),
        ("field: name", "path: name", r"preconditions\[0\].capture\[0\].*unknown field `path`"),
        ("- name: clusterName", "- name: config", r"preconditions\[0\].capture\[0\].name: the name 'config' is taken"),
        ("- name: clusterName", "- name: a-b", r"'a-b' is no name"),
        ("- name: clusterName", "- name: list", r"capture\[0\].name: the name 'list' is taken"),
        ("{{ .clusterId }}", "{{ if .clusterId }}", r"only \{\{ .name \}\} is understood"),
        ("{{ .clusterId }}", "{{ .clusterId", r"there is a \{\{ without its \}\}|only \{\{"),
        ("params:", "params: [", r"task.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        load_task(edited(tmp_path, old, new))
    assert re.search(says, str(caught.value)), caught.value
    assert "task.yaml" in str(caught.value)


def test_the_line_is_the_right_one(tmp_path: Path) -> None:
    file = edited(tmp_path, 'expression: consumer != ""', "expression: nobody")
    with pytest.raises(UserError) as caught:
        load_task(file)
    found = re.search(r"task.yaml:(\d+):", str(caught.value))
    assert found
    assert "expression: nobody" in file.read_text().splitlines()[int(found[1]) - 1]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the task file .*absent.yaml: No such file"):
        load_task(tmp_path / "absent.yaml")


@pytest.mark.parametrize("entry", ["Cluster", "Thing=x.yaml", "Account=x.yaml", "=x"])
async def test_a_task_for_a_kind_that_has_none_is_refused(entry: str) -> None:
    async with ClmClient("http://127.0.0.1:1") as clm, MaestroClient("http://127.0.0.1:1") as maestro:
        with pytest.raises(UserError, match="is not KIND=FILE with a kind that needs hypershift"):
            engines_of(Settings(task_files=[entry]), clm, maestro)


@pytest.mark.parametrize("file", ["cluster.yaml", "nodepool.yaml"])
def test_our_own_files_pass(file: str) -> None:
    assert load_task(TASKS / file).document.post.post_actions[0].name == "reportStatus"


@pytest.mark.parametrize("name", ["null", "true", "123", "1e3", "0x10", "2024-01-01", "1-2", "yes", "12-30-45"])
def test_a_name_that_yaml_would_read_as_something_else_stays_a_name(name: str) -> None:
    """Names come from customers; the manifest is YAML."""
    task = load_task(TASKS / "cluster.yaml")
    (rule,) = task.document.resources
    variables: dict[str, Any] = {
        "clusterId": "01890000-0000-7000-8000-000000000000",
        "clusterName": name,
        "clusterNamespace": "cluster-x",
        "labels": "{}",
        "annotations": '{"hyperfleet.io/generation": "1"}',
        "hostedClusterSpec": '{"a": "b: c # d"}',
        "config": {"pull_secret": "e30="},
    }
    work = read_work(task.render(rule.manifest, variables))
    hosted = next(found for found in work["spec"]["workload"]["manifests"] if found["kind"] == "HostedCluster")
    assert hosted["metadata"]["name"] == name
    assert hosted["spec"] == {"a": "b: c # d"}
    names = [found["resourceIdentifier"]["name"] for found in work["spec"]["manifestConfigs"]]
    assert names == ["cluster-x", f"{name}-pull-secret", name, f"{name}-admin-kubeconfig"]


@pytest.mark.parametrize(
    "text",
    ["a: [", "[]", "kind: Secret", "{kind: ManifestWork, metadata: {annotations: {hyperfleet.io/generation: x}}}"],
)
def test_a_manifest_that_is_no_work_is_refused(text: str) -> None:
    with pytest.raises(TransportError):
        read_work(text)


def test_a_missing_value_is_an_error_and_never_an_empty_text() -> None:
    with pytest.raises(TemplateError, match=r"there is no a\.b"):
        Template("{{ .a.b }}").render({"a": {}})
    assert Template("{{ .a }}/{{ .b.c }}").render({"a": 1, "b": {"c": ["x"]}}) == '1/["x"]'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a.?b.orValue('x')", "x"),
        ("a.?b.hasValue()", False),
        ("dig(a, 'c.d')", 5),
        ("conditionStatus(seen, 'Ready')", "True"),
        ("conditionStatus(seen, 'Other')", "Unknown"),
        ("triState(true, false) + triState(false, true) + triState(false, false)", "TrueFalseUnknown"),
        ("toJson({'k': [1, 'two', null]})", '{"k":[1,"two",null]}'),
        ("feedback(fed, 'raw')", {"x": 1}),
        ("feedback(fed, 'absent') == null", True),
        ("statusFeedbackValue(fed, 'text')", "hello"),
    ],
)
def test_the_functions_of_expressions(expression: str, expected: Any) -> None:
    values = [
        {"name": "raw", "fieldValue": {"type": "JsonRaw", "jsonRaw": '{"x":1}'}},
        {"name": "text", "fieldValue": {"type": "String", "string": "hello"}},
    ]
    variables = {"a": {"c": {"d": 5}}, "seen": [{"type": "Ready", "status": "True"}], "fed": {"values": values}}
    assert Environment(variables).compile(expression).evaluate(variables) == expected


def test_an_expression_that_fails_says_which() -> None:
    with pytest.raises(ExpressionError, match=r"in 'a\.b\.c'"):
        Environment(["a"]).compile("a.b.c").evaluate({"a": {}})


def test_the_chart_carries_the_files_as_they_are() -> None:
    """What the adapter mounts is what these tests have checked."""
    from tests.charts.test_charts_render import template

    chart = TASKS.parent.parent
    objects = template(chart)
    (config,) = (found for found in objects if found["kind"] == "ConfigMap")
    assert config["data"] == {file.name: file.read_text() for file in TASKS.glob("*.yaml")}
    (adapter,) = (
        found for found in objects if found["kind"] == "Deployment" and found["metadata"]["name"] == "clm-adapter"
    )
    spec = adapter["spec"]["template"]["spec"]
    assert {"name": "tasks", "configMap": {"name": config["metadata"]["name"]}} in spec["volumes"]
    (container,) = spec["containers"]
    (mount,) = (found["mountPath"] for found in container["volumeMounts"] if found["name"] == "tasks")
    (flag,) = (found for found in container["args"] if found.startswith("--task-files="))
    pairs = dict(pair.split("=") for pair in flag.removeprefix("--task-files=").split(","))
    assert pairs == {"Cluster": f"{mount}/cluster.yaml", "NodePool": f"{mount}/nodepool.yaml"}
    changed = template(chart, "--set", "clm.adapter.releaseVersion=4.23.1")
    assert "--release-version=4.23.1" in str(changed)


@pytest.mark.parametrize(
    "value",
    [
        "clm.adapter.tasks.Cluster=../x.yaml",
        "clm.adapter.releaseVersion=new",
        "clm.adapter.maestroUrl=maestro",
        "clm.sentinel.pulseReconciledSeconds=0",
        "clm.adapter.unknown=1",
    ],
)
def test_the_charts_schema_refuses_values_that_would_not_work(value: str) -> None:
    from tests.charts.test_charts_render import template

    with pytest.raises(AssertionError, match="values don't meet the specifications"):
        template(TASKS.parent.parent, "--set", value)


def test_every_expression_of_ours_is_yaml_that_says_what_it_looks_like() -> None:
    """An unquoted `expression: true` would be no text."""
    for file in TASKS.glob("*.yaml"):
        for value in _expressions(yaml.safe_load(file.read_text())):
            assert isinstance(value, str)


def _expressions(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        own = [tree["expression"]] if "expression" in tree else []
        return own + [found for below in tree.values() for found in _expressions(below)]
    return [found for below in tree for found in _expressions(below)] if isinstance(tree, list) else []
