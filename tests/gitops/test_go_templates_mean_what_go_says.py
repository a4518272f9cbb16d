"""The corners of Go's templates on which a region's Applications depend."""

from __future__ import annotations

import pytest

from regional.gitops.gotemplate import StringMap, TemplateError, render

DATA = {
    "name": "in-cluster",
    "number": 3,
    "nothing": None,
    "path": {"basename": "clm", "segments": ["argocd", "config", "clm"]},
    "metadata": {"labels": StringMap(cluster_type="regional-cluster"), "annotations": StringMap()},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{{ .name }}/{{.path.basename}}", "in-cluster/clm"),
        ("{{ .metadata.labels.cluster_type }}", "regional-cluster"),
        ("{{ 42 }}{{ 1.5 }}{{ 1e30 }}{{ 'a' }}{{ true }}", "421.51e+3097true"),
        ("{{ .path }}", "map[basename:clm segments:[argocd config clm]]"),
        (
            '{{ printf "%s-%03d|%q|%5s|%v" .name 7 "x" "y" .path.segments }}',
            'in-cluster-007|"x"|    y|[argocd config clm]',
        ),
        ('{{ printf "%d" "x" }}', "%!d(string=x)"),
        ("{{ index .path.segments 2 }}", "clm"),
        ('{{ index .metadata.annotations "x" }}', ""),
        ("{{ len .path.segments }}", "3"),
        ('{{ if eq .name "a" "in-cluster" }}yes{{ else }}no{{ end }}', "yes"),
        ("{{ if .missing }}a{{ else if .nothing }}b{{ else }}c{{ end }}", "c"),
        ("{{ with .path }}{{ .basename }}{{ $.name }}{{ end }}", "clmin-cluster"),
        ("{{ range $i, $s := .path.segments }}{{ $i }}{{ $s }} {{ end }}", "0argocd 1config 2clm "),
        ('{{ range .path.segments }}{{ if eq . "config" }}{{ continue }}{{ end }}{{ . }},{{ end }}', "argocd,clm,"),
        ("{{ range .missing }}x{{ else }}none{{ end }}", "none"),
        ("{{ range $k, $v := .metadata.labels }}{{ $k }}={{ $v }}{{ end }}", "cluster_type=regional-cluster"),
        ('{{ $x := "a" }}{{ if true }}{{ $x = "b" }}{{ end }}{{ $x }}', "b"),
        ("a  {{- /* why */ -}}  b", "ab"),
        ("a {{- 1 -}} b", "a1b"),
        ("{{ and .name 0 }}{{ or 0 .name }}{{ not .name }}", "0in-clusterfalse"),
        ('{{ and .missing (fail "never evaluated") }}', "<no value>"),
        ("{{ (index .path.segments 0) | upper | quote }}", '"ARGOCD"'),
        ('{{ "}}" }}', "}}"),
        ('{{ .name | replace "-" "_" | trunc 4 }}', "in_c"),
        ('{{ splitList "/" "a/b/c" | last }}{{ join "," .path.segments }}', "cargocd,config,clm"),
        ('{{ ternary "yes" "no" (hasKey .metadata "labels") }}', "yes"),
        ('{{ dig "basename" "none" .path }}{{ get .metadata "nope" }}', "clm"),
        ("{{ toYaml .path.segments }}", "- argocd\n- config\n- clm"),
        ('{{ (fromYaml "a: [1, y]").a }}', "[1 true]"),
        ('{{ normalize "--Foo_Bär.9-" }}', "foo-b-r.9"),
        ('{{ slugify 10 true "Feature Branch: very long" }}', "feature"),
    ],
)
def test_what_a_template_says(template: str, text: str) -> None:
    assert render(template, DATA) == text


class TestMissingKeys:
    def test_print_no_value_however_deep(self) -> None:
        assert render("{{ .no }}|{{ .no.such.key }}", DATA) == "<no value>|<no value>"

    def test_take_a_default(self) -> None:
        assert render('{{ .metadata.annotations.git_repo | default "d" }}', DATA) == "d"

    def test_fail_in_a_function_of_strings(self) -> None:
        with pytest.raises(TemplateError, match="invalid value; expected string"):
            render('{{ .metadata.annotations.git_repo | replace "a" "b" }}', DATA)

    def test_are_empty_in_maps_of_strings_with_the_zero_option(self) -> None:
        options = ["missingkey=zero"]
        assert render("{{ .metadata.labels.x }}|{{ .x }}", DATA, options) == "|<no value>"

    def test_are_errors_with_the_error_option_even_before_a_default(self) -> None:
        with pytest.raises(TemplateError, match='map has no entry for key "x"'):
            render('{{ .x | default "d" }}', DATA, ["missingkey=error"])

    def test_stay_safe_through_index_with_the_error_option(self) -> None:
        assert render('{{ index .metadata.annotations "x" }}', DATA, ["missingkey=error"]) == ""


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ nosuch 1 }}", 'function "nosuch" not defined'),
        ("{{ if false }}{{ nosuch }}{{ end }}", 'function "nosuch" not defined'),
        ('{{ env "HOME" }}', 'function "env" not defined'),
        ("{{ .name.deeper }}", "can't evaluate field deeper in type string"),
        ("{{ .nothing.deeper }}", "nil pointer evaluating"),
        ('{{ dig "cluster_type" "x" .metadata.labels }}', r"map\[string\]interface"),
        ('{{ get .metadata.labels "cluster_type" }}', r"expected map\[string\]interface {}; got map\[string\]string"),
        ("{{ upper .number }}", "wrong type for value; expected string; got int"),
        ("{{ eq .name 1 }}", "incompatible types for comparison"),
        ("{{ replace 1 }}", "wrong number of args for replace: want 3 got 1"),
        ("{{ .name", "unclosed action"),
        ("{{ if .name }}", "unexpected EOF"),
        ("{{ end }}", "unexpected"),
        ("{{ $x }}", "undefined variable"),
        ("{{ index .path.segments 9 }}", "out of range"),
        ('{{ template "x" }}', "not supported"),
        ("{{ 1 | 2 }}", "can't give argument to non-function"),
        ('{{ fail "stop" }}', "stop"),
    ],
)
def test_an_error_names_its_cause_and_its_template(template: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason) as caught:
        render(template, DATA)
    assert template in str(caught.value)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TemplateError, match="unrecognized option"):
        render("{{ .x }}", DATA, ["missingkey=whatever"])
