"""The rows of the registry agree with the data and with each other."""

from __future__ import annotations

import pytest

from regional.kube.schema.registry import BODY_KINDS, BUILTINS, Kind, by_kind, by_plural, custom_kinds, group_versions
from regional.kube.schema.types import definitions, schema_of
from tests.kube_schema.widgets import crd


@pytest.mark.parametrize("kind", [*BUILTINS, *BODY_KINDS], ids=lambda row: f"{row.kind}.{row.group}")
def test_every_kind_has_a_definition_that_names_it(kind: Kind) -> None:
    names = definitions()[kind.definition]["x-kubernetes-group-version-kind"]
    assert {"group": kind.group, "version": kind.version, "kind": kind.kind} in names
    assert schema_of(kind).root.fields


def test_kinds_are_found_by_both_names_and_are_unique() -> None:
    for kind in BUILTINS:
        assert by_plural(kind.group, kind.version, kind.plural) is kind
        assert by_kind(kind.group, kind.version, kind.kind) is kind
    assert len({(kind.group, kind.version, kind.plural) for kind in BUILTINS}) == len(BUILTINS)
    assert group_versions()[""] == ("v1",)


def test_the_names_of_error_messages() -> None:
    deployment = by_kind("apps", "v1", "Deployment")
    config_map = by_kind("", "v1", "ConfigMap")
    assert deployment is not None
    assert config_map is not None
    assert (deployment.group_resource, deployment.group_kind) == ("deployments.apps", "Deployment.apps")
    assert (config_map.group_resource, config_map.api_version) == ("configmaps", "v1")


def test_a_status_subresource_goes_with_a_status_field() -> None:
    for kind in BUILTINS:
        if kind.status:
            assert "status" in schema_of(kind).root.fields, kind.kind


def test_a_definition_gives_one_row_per_served_version() -> None:
    obj = crd({"type": "object"})
    obj["spec"]["versions"].append({"name": "v2", "served": True, "storage": False, "deprecated": True})
    obj["spec"]["versions"].append({"name": "v3", "served": False, "storage": False})
    first, second = custom_kinds(obj)
    assert (first.version, first.status, first.short_names) == ("v1", True, ("wd",))
    assert (second.version, second.status, second.deprecation) == ("v2", False, "demo.io/v2 Widget is deprecated")
    assert first.generation
    assert not first.unconditional_update
