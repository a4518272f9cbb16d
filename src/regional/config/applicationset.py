"""The ApplicationSet that every cluster starts from: its own identity × the chart directories of its type.

A pin changes exactly two places, the Git generator and the chart source; the `ref: values` source stays live unless
the region pins its values too. The `github.com:443` form keeps Argo CD from taking two revisions of one repository for
the same source.
"""

from __future__ import annotations

import functools
from typing import Any

from regional.config.yamltext import dump

LIVE = "{{ .metadata.annotations.git_revision }}"
REPOSITORY = "{{ .metadata.annotations.git_repo }}"
LABELS = ("cluster_type", "environment", "region_alias", "aws_region")
# Facts that only the infrastructure knows, and that not every cluster has.
FACTS = ("api_target_group_arn",)


def application_set(
    pin: str | None = None, *, values_pin: str | None = None, per_cluster_values: bool = False
) -> dict[str, Any]:
    charts = pin or LIVE
    region = "$values/deploy/{{ .metadata.labels.environment }}/{{ .metadata.labels.region_alias }}/argocd"
    value_files = ["values.yaml", f"{region}/{{{{ .metadata.labels.cluster_type }}}}-values.yaml"]
    if per_cluster_values:
        value_files.append(
            f"{region}/{{{{ .metadata.labels.cluster_type }}}}-values/{{{{ .metadata.labels.cluster_name }}}}.yaml"
        )
    generators = [
        {"clusters": {"selector": {"matchLabels": {"argocd.argoproj.io/secret-type": "cluster"}}}},
        {
            "git": {
                "directories": [
                    {"path": "argocd/config/{{ .metadata.labels.cluster_type }}/*"},
                    {"path": "argocd/config/shared/*"},
                ],
                "repoURL": REPOSITORY,
                "revision": charts,
            }
        },
    ]
    facts = _labels(*LABELS, "cluster_name") | _annotations(*FACTS)
    sources = [
        {
            "helm": {"valueFiles": value_files, "valuesObject": {"global": facts}},
            "path": "{{ .path.path }}",
            "repoURL": REPOSITORY,
            "targetRevision": charts,
        },
        {
            "repoURL": '{{ .metadata.annotations.git_repo | replace "github.com" "github.com:443" }}',
            "targetRevision": values_pin or LIVE,
            "ref": "values",
        },
    ]
    template = {
        "metadata": {"name": "{{ .path.basename }}", "labels": _labels(*LABELS)},
        "spec": {
            "project": "default",
            "destination": {"namespace": "{{ .path.basename }}", "server": "{{ .server }}"},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["ServerSideApply=true", "CreateNamespace=true"],
            },
            "sources": sources,
        },
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": "root-applicationset", "namespace": "argocd"},
        "spec": {"goTemplate": True, "generators": [{"matrix": {"generators": generators}}], "template": template},
    }


def _labels(*names: str) -> dict[str, str]:
    return {name: f"{{{{ .metadata.labels.{name} }}}}" for name in names}


def _annotations(*names: str) -> dict[str, str]:
    return {name: f'{{{{ index .metadata.annotations "{name}" | default "" }}}}' for name in names}


@functools.lru_cache(maxsize=256)
def application_set_text(pin: str | None, values_pin: str | None, per_cluster_values: bool) -> str:
    """Hundreds of regions share a handful of pins."""
    return dump(application_set(pin, values_pin=values_pin, per_cluster_values=per_cluster_values))
