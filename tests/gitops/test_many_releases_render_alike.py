"""A preview renders many releases in one run of Helm, and shares renderings; each is what Helm makes of it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from regional.core.paths import checkout
from regional.gitops.bulk import Wanted, render_all
from regional.gitops.chartfacts import chart_facts
from regional.gitops.helm import Helm, HelmError, Release
from regional.gitops.manifests import ObjectKey, parse
from tests.gitops.harness import Obj, chart, config_map, write_files

GLOBAL = {"environment": "local", "cluster_type": "any", "region_alias": "local", "cluster_name": "c"}


@pytest.fixture
def helm_runs(helm: str, tmp_path: Path) -> CountingHelm:
    return CountingHelm(tmp_path / "helm", binary=helm)


class CountingHelm(Helm):
    runs = 0

    async def _run(self, argv: Any) -> str:
        self.runs += 1
        return await super()._run(argv)


def release(name: str, *values: Obj, **changes: Any) -> Release:
    fields = {"tree": "t", "name": name, "namespace": name, "values": tuple(msgspec.json.encode(v) for v in values)}
    return Release(**(fields | changes))


def written(place: Path, templates: dict[str, str | Obj], values: Obj | None = None, **files: str) -> Path:
    write_files(place, chart("c", templates, values) | {f"c/{name}": content for name, content in files.items()})
    return place / "c"


def objects(text: str | HelmError) -> dict[ObjectKey, Obj]:
    assert isinstance(text, str), text
    return {ObjectKey.of(obj): obj for obj in parse(text, "")}


async def both_ways(helm: Helm, wanted: list[Wanted]) -> list[dict[ObjectKey, Obj]]:
    together = [objects(text) for text in await render_all(helm, wanted)]
    alone = [objects(await helm.template(one.chart, one.release)) for one in wanted]
    assert together == alone
    return together


@pytest.mark.parametrize("path", ["regional-cluster/clm", "management-cluster/hypershift", "shared/argocd"])
async def test_the_projects_own_charts(helm_runs: CountingHelm, path: str) -> None:
    place = checkout() / "argocd" / "config" / path
    name = place.name
    wanted = [
        Wanted(place, release(name, {"global": GLOBAL | {"aws_region": region}, name: {"logLevel": level}}))
        for region in ("eu-west-1", "us-east-1")
        for level in ("info", "debug", "warning")
    ]
    await both_ways(helm_runs, wanted)


async def test_one_run_renders_many_with_all_that_templates_see(helm_runs: CountingHelm, tmp_path: Path) -> None:
    templates: dict[str, str | Obj] = {
        "_helpers.tpl": '{{ define "who" }}{{ .Chart.Name }}/{{ .Release.Name }}/{{ .Release.Namespace }}{{ end }}',
        "cm.yaml": 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata:\n  who: {{ include "who" . }}\n'
        '  sum: {{ include (print $.Template.BasePath "/other.yaml") . | sha256sum }}\n'
        '  file: {{ .Files.Get "notes.txt" | quote }}\n  one: {{ .Values.one | quote }}\n'
        "  region: {{ .Values.global.region }}\n",
        "other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"
        "data: {one: {{ .Values.one | quote }}}\n",
        "constant.yaml": config_map("constant"),
    }
    place = written(tmp_path, templates, {"one": 1, "deep": {"a": 1}}, **{"notes.txt": "hello"})
    wanted = [Wanted(place, release("web", {"one": n, "global": {"region": f"r{n}"}})) for n in range(6)]
    texts = await render_all(helm_runs, wanted)
    assert helm_runs.runs == 1
    await both_ways(helm_runs, wanted)
    assert "who: c/web/web" in str(texts[0]) and "hello" in str(texts[0])


async def test_values_that_a_chart_does_not_read_cost_no_rendering(helm_runs: CountingHelm, tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata: {r: {{ .Values.global.region }}}\n"
    place = written(tmp_path, {"cm.yaml": text})
    wanted = [
        Wanted(place, release("web", {"global": {"region": "same", "cluster": f"c{n}"}, "others": {"n": n}}))
        for n in range(5)
    ]
    texts = await render_all(helm_runs, wanted)
    assert (helm_runs.runs, len(set(map(str, texts)))) == (1, 1)


@pytest.mark.parametrize(
    ("notes", "shared"),
    [
        ("{{ .Values.global.cluster }} is {{ if not .Values.global.away }}there{{ end }}", True),
        ('{{ required "which?" .Values.global.cluster }}', False),
    ],
)
def test_what_only_the_notes_say_costs_no_rendering_unless_its_words_can_fail(
    tmp_path: Path, notes: str, shared: bool
) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata: {r: {{ .Values.global.region }}}\n"
    place = written(tmp_path, {"cm.yaml": text, "NOTES.txt": notes})
    facts = chart_facts(place)
    one, two = (facts.read({"global": {"region": "same", "cluster": name}}) for name in ("c1", "c2"))
    assert (one == two) is shared


async def test_notes_that_cannot_be_said_fail_where_helm_says_so(helm_runs: CountingHelm, tmp_path: Path) -> None:
    place = written(tmp_path, {"cm.yaml": config_map("it"), "NOTES.txt": "{{ .Values.deep.word }}"})
    values: list[Obj] = [{"deep": {"word": "a"}}, {"deep": {"word": "b"}}, {"deep": "c"}, {}]
    wanted = [Wanted(place, release("web", {"global": {}} | one)) for one in values]
    texts = await render_all(helm_runs, wanted)
    for one, text in zip(wanted, texts, strict=True):
        try:
            assert await helm_runs.template(one.chart, one.release) == text
        except HelmError as error:
            assert str(error) == str(text)
    assert [isinstance(text, HelmError) for text in texts] == [False, False, True, True]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ .Values | toJson | quote }}", "all values are handed on"),
        ('{{ tpl "{{ .Values.b }}" . | quote }}', "text is evaluated"),
        ('{{ index .Values "b" | quote }}', "a value is read by its name in text"),
        ("{{ with .Values }}{{ .b }}{{ end }}", "values become the dot"),
    ],
)
async def test_what_a_chart_may_read_is_never_guessed(
    helm_runs: CountingHelm, tmp_path: Path, template: str, why: str
) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: it}}\ndata: {{a: {template}}}\n"
    place = written(tmp_path, {"cm.yaml": text})
    assert chart_facts(place).reads is None, why
    wanted = [Wanted(place, release("web", {"global": {}, "b": f"b{n}"})) for n in range(4)]
    assert len({str(text) for text in await render_all(helm_runs, wanted)}) == 4


async def test_a_null_takes_a_default_away_in_company_too(helm_runs: CountingHelm, tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata: {a: {{ .Values.a | toJson | quote }}}\n"
    place = written(tmp_path, {"cm.yaml": text}, {"a": {"x": 1, "y": 2}})
    wanted = [
        Wanted(place, release("web", {"global": {}, "a": {"x": n}}, {"a": {"y": None}} if n % 2 else {}))
        for n in range(6)
    ]
    await both_ways(helm_runs, wanted)


async def test_one_that_fails_has_its_own_error_and_spoils_no_other(helm_runs: CountingHelm, tmp_path: Path) -> None:
    text = '{{ if eq .Values.n "2" }}{{ fail "two is odd" }}{{ end }}\n'
    text += "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata: {n: {{ .Values.n | quote }}}\n"
    place = written(tmp_path, {"cm.yaml": text})
    texts = await render_all(helm_runs, [Wanted(place, release("web", {"global": {}, "n": str(n)})) for n in range(4)])
    assert [isinstance(text, HelmError) for text in texts] == [False, False, True, False]
    assert "two is odd" in str(texts[2])


async def test_values_that_the_schema_refuses_are_refused_though_nobody_reads_them(
    helm_runs: CountingHelm, tmp_path: Path
) -> None:
    schema = '{"type": "object", "properties": {"size": {"$ref": "#/definitions/size"}, "name": {"type": "string"}},'
    schema += '"definitions": {"size": {"type": "integer"}}}'
    place = written(tmp_path, {"cm.yaml": config_map("it")}, {}, **{"values.schema.json": schema})
    wanted = [
        Wanted(place, release("web", {"global": {}, "name": f"n{n}", "size": "x" if n == 1 else 1})) for n in range(3)
    ]
    texts = await render_all(helm_runs, wanted)
    assert [isinstance(text, HelmError) for text in texts] == [False, True, False]
    assert texts[0] is texts[2]
