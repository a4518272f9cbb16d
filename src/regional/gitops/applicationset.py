"""What an ApplicationSet means: a pure evaluation from the set, the cluster secrets and the repository's directories to
the Applications it wants. The controller, the bootstrap task and previews share it.

It behaves as Argo CD does even where that is dangerous (an empty result is a success that deletes everything);
`warnings` names those cases, so that a preview can refuse before the commit.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from regional.gitops.generators import Cluster, Directories, Generation, GeneratorError, Params, Templating
from regional.gitops.gotemplate import TemplateError
from regional.gitops.goyaml import YamlError, load_yaml
from regional.kube.objects import Obj, finalizers_of, name_of, namespace_of, spec_of

GROUP = "argoproj.io"
API_VERSION = "argoproj.io/v1alpha1"
RESOURCES_FINALIZER = "resources-finalizer.argocd.argoproj.io"


class EvaluationError(Exception):
    """Nothing may be created, updated or deleted by a set that fails. `reason` is Argo CD's condition reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Evaluation(msgspec.Struct):
    applications: list[Obj]
    """In generation order, without those in `invalid`."""
    invalid: dict[str, str] = {}
    """Name -> why. An existing Application of that name stays as it is."""
    warnings: list[str] = []

    @property
    def names(self) -> set[str]:
        """All that must not be deleted."""
        return {name_of(app) for app in self.applications} | set(self.invalid)


async def evaluate(
    applicationset: Obj,
    clusters: Sequence[Cluster],
    directories: Directories,
    projects: Collection[str] | None = None,
) -> Evaluation:
    """`projects` are the AppProjects that exist; None does not check them."""
    spec = spec_of(applicationset)
    template = spec.get("template") or {}
    templating = Templating(bool(spec.get("goTemplate")), tuple(spec.get("goTemplateOptions") or ()))
    project = str(spec_of(template).get("project", ""))
    if projects is not None and "{{" not in project and project not in projects:
        raise EvaluationError("ApplicationParamsGenerationError", f"error getting project {project}: not found")
    generation = Generation(clusters, directories, templating)
    expanded: list[Obj] = []
    warnings: list[str] = []
    for generator in spec.get("generators") or []:
        own = next((body["template"] for body in generator.values() if _has_template(body)), None)
        chosen = _deep(template, own) if own else template
        try:
            found = await generation.run(generator)
        except (GeneratorError, TemplateError) as error:
            raise EvaluationError("ApplicationParamsGenerationError", str(error)) from None
        plain = _without_values(chosen)
        expanded += [_expand(applicationset, chosen, plain, templating, params) for params in found]
    if not expanded:
        warnings.append("no Applications: Argo CD takes this as success and deletes every Application of the set")
    return _without_twins(applicationset, expanded, warnings)


def _has_template(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("template"), dict)


def _expand(applicationset: Obj, template: Obj, plain: Obj, templating: Templating, params: Params) -> Obj:
    """`plain` is the template without its valuesObject, which has rules of its own."""
    spec = spec_of(applicationset)
    try:
        body = templating.value(plain, params)
        _put_values(body, template, templating, params)
        application: Obj = {"apiVersion": API_VERSION, "kind": "Application", "metadata": {}} | body
        if patch := spec.get("templatePatch"):
            application = _patched(application, load_yaml(templating.text(patch, params)))
    except TemplateError as error:
        raise EvaluationError("RenderTemplateParamsError", str(error)) from None
    except YamlError as error:
        raise EvaluationError("RenderTemplateParamsError", f"templatePatch: {error}") from None
    metadata = dict(application.get("metadata") or {})
    metadata["namespace"] = namespace_of(applicationset)
    application["metadata"] = metadata
    preserve = (spec.get("syncPolicy") or {}).get("preserveResourcesOnDeletion")
    if preserve:
        metadata.pop("finalizers", None)
    elif not finalizers_of(application):
        metadata["finalizers"] = [RESOURCES_FINALIZER]
    return application


def _helms(template: Obj) -> list[Obj]:
    """The `helm` of each source; a nested map, so that callers can change it in place."""
    spec = spec_of(template)
    sources = [spec.get("source"), *(spec.get("sources") or [])]
    return [source["helm"] for source in sources if isinstance(source, dict) and isinstance(source.get("helm"), dict)]


def _without_values(template: Obj) -> Obj:
    plain = copy.deepcopy(template)
    for helm in _helms(plain):
        helm.pop("valuesObject", None)
    return plain


def _put_values(body: Obj, template: Obj, templating: Templating, params: Params) -> None:
    """valuesObject is raw JSON to Argo CD, and so loses its nulls and the precision of large numbers."""
    for helm, original in zip(_helms(body), _helms(template), strict=True):
        if isinstance(original.get("valuesObject"), dict):
            helm["valuesObject"] = templating.value(original["valuesObject"], params, drop_null=True)


def _patched(application: Obj, patch: Any) -> Obj:
    if patch is None:
        return application
    if not isinstance(patch, dict):
        raise EvaluationError("RenderTemplateParamsError", "templatePatch must render to a map")
    out = _deep(application, patch)
    out["spec"]["project"] = spec_of(application).get("project")
    return out


def _deep(base: Obj, patch: Obj) -> Obj:
    """A merge patch: maps merge, null deletes, the rest (lists too) replaces."""
    out = dict(base)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            present = out.get(key)
            out[key] = _deep(present if isinstance(present, dict) else {}, value)
        else:
            out[key] = value
    return out


def _without_twins(applicationset: Obj, expanded: list[Obj], warnings: list[str]) -> Evaluation:
    count = Counter(name_of(app) for app in expanded)
    twins = {
        name: f"ApplicationSet {name_of(applicationset)} contains applications with duplicate name: {name}"
        for name, times in count.items()
        if times > 1
    }
    warnings += [
        f"Application {name_of(app)} contains <no value>: a parameter is missing"
        for app in expanded
        if b"<no value>" in msgspec.json.encode(app)
    ]
    warnings += sorted(twins.values())
    return Evaluation([app for app in expanded if name_of(app) not in twins], twins, warnings)
