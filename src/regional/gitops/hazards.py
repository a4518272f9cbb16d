"""What Argo CD answers with silence, or too late: said before the commit.

`refused` is what must not be committed: a cluster would lose Applications, or install something else than was meant.
The rest are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from regional.gitops.generators import Params
from regional.gitops.identity import ClusterIdentity
from regional.gitops.manifests import ObjectKey
from regional.gitops.sources import sources_of
from regional.kube.objects import Obj, labels_of, name_of, spec_of
from regional.kube.schema.openapi_validation import NOTHING, SchemaValidator

CONTROLLER = "argocd"
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_EXACT = 2**53
_SOURCES = ("list", "clusters", "git", "scmProvider", "clusterDecisionResource", "pullRequest", "plugin")
_GENERATORS = frozenset((*_SOURCES, "matrix", "merge", "selector", "template"))


class Problem(msgspec.Struct, frozen=True):
    refused: bool
    message: str

    def __str__(self) -> str:
        return f"{'refused' if self.refused else 'warning'}: {self.message}"


def refused(message: str) -> Problem:
    return Problem(True, message)


def warning(message: str) -> Problem:
    return Problem(False, message)


def of_shape(applicationset: Obj, definition: Obj | None) -> list[Problem]:
    """What the API would refuse altogether: such a set means nothing. `definition` is the CRD of its kind."""
    spec, name = applicationset.get("spec"), name_of(applicationset)
    found = list(_not_text(spec, "spec"))
    if definition is not None:
        schema = _schema(definition).get("spec") or {}
        wrong = SchemaValidator().validate(spec, NOTHING, schema, "spec")
        found += [str(error) for error in wrong if not any(text.startswith(f"{error.field} ") for text in found)]
    return [refused(f"ApplicationSet {name}: {text}") for text in found]


def _schema(definition: Obj) -> Obj:
    for version in spec_of(definition).get("versions") or []:
        if version.get("storage"):
            properties: Obj = version["schema"]["openAPIV3Schema"]["properties"]
            return properties
    return {}


def of_set(applicationset: Obj) -> list[Problem]:
    """In a set of the right shape, whatever it generates."""
    spec, name = spec_of(applicationset), name_of(applicationset)
    template = spec.get("template") or {}
    found: list[Problem] = []
    if not spec.get("goTemplate") and b"{{ ." in msgspec.json.encode(spec):
        found.append(refused(f"ApplicationSet {name}: without `goTemplate: true` every `{{{{ .x }}}}` stays as it is"))
    unknown = [kind for generator in _generators(spec.get("generators") or []) for kind in generator]
    found += [
        refused(f"ApplicationSet {name}: unknown generator {kind!r} is dropped without a word")
        for kind in unknown
        if kind not in _GENERATORS
    ]
    missing = [field for field in ("metadata", "spec") if not template.get(field)]
    found += [refused(f"ApplicationSet {name}: template.{field} is missing") for field in missing]
    for source in sources_of(template):
        values = (source.get("helm") or {}).get("valuesObject") or {}
        found += [warning(f"ApplicationSet {name}: valuesObject.{text}") for text in _lossy(values, "")]
    return found


def _generators(generators: Iterable[Any]) -> Iterable[Params]:
    for generator in generators:
        if isinstance(generator, dict):
            yield generator
            for kind in ("matrix", "merge"):
                yield from _generators((generator.get(kind) or {}).get("generators") or [])


def _not_text(value: Any, path: str) -> Iterable[str]:
    """A pin of digits, or of digits and one `e`, is a number unless it is quoted, and the API refuses the whole set."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _not_text(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("revision", "targetRevision", "repoURL", "path") and not isinstance(item, str | dict):
                yield f"{path}.{key} is not text but {item!r}: quote it"
            elif key != "valuesObject":
                yield from _not_text(item, f"{path}.{key}")


def _lossy(values: Mapping[str, Any], path: str) -> Iterable[str]:
    for key, value in values.items():
        if value is None:
            yield f"{path}{key} is null: it is dropped, and takes no default of the chart away"
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
            yield f"{path}{key} is {value}: beyond 2^53 a number changes on its way"
        elif isinstance(value, dict):
            yield from _lossy(value, f"{path}{key}.")


def of_applications(applications: Sequence[Obj], identity: ClusterIdentity) -> list[Problem]:
    """In what a cluster's sets generate together."""
    found: list[Problem] = []
    paths = [str(source.get("path", "")) for app in applications for source in sources_of(app)]
    if not any(f"/{identity.cluster_type}/" in path for path in paths):
        found.append(
            refused(f"only shared charts: none is of type {identity.cluster_type!r}, which Argo CD takes for a success")
        )
    names = [name_of(app) for app in applications]
    if CONTROLLER not in names:
        found.append(refused(f"no Application {CONTROLLER!r}: the cluster would not manage its own controller"))
    for app in applications:
        name = name_of(app)
        if not _NAME.fullmatch(name) or len(name) > 253:
            found.append(refused(f"Application {name!r} is no name for an object; its creation would fail"))
        for key, value in labels_of(app).items():
            if not _LABEL.fullmatch(str(value)):
                found.append(refused(f"Application {name}: label {key}={value!r} is no value of a label"))
        if b"{{" in msgspec.json.encode({"metadata": app["metadata"], "spec": spec_of(app)}):
            found.append(refused(f"Application {name}: a template was left as it is (`{{{{`)"))
    return found


def of_objects(applications: Mapping[str, Sequence[ObjectKey]]) -> list[Problem]:
    """Objects that two Applications would fight over."""
    owners: dict[ObjectKey, list[str]] = {}
    for name, keys in applications.items():
        for key in keys:
            owners.setdefault(key, []).append(name)
    return [
        warning(f"{key} is part of Applications {' and '.join(names)}: each undoes the other")
        for key, names in owners.items()
        if len(names) > 1
    ]
