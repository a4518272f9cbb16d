"""What clusters would get at a commit: their Applications and every object of them, with the real Helm and no cluster.

The same evaluation and the same rendering as the controller's, on clusters that deploy/ declares. What Argo CD would
answer with silence is a problem here (`hazards`), so that it is heard of before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from regional.gitops.applicationset import Evaluation, EvaluationError, evaluate
from regional.gitops.bulk import Wanted, render_all
from regional.gitops.fleet import INDEX, Choice, Declared, declared, values_pins
from regional.gitops.generators import GeneratorError
from regional.gitops.hazards import Problem, of_applications, of_objects, of_set, of_shape, refused, warning
from regional.gitops.helm import Helm, HelmError
from regional.gitops.manifests import ManifestError, ObjectKey, group_of, parse
from regional.gitops.repo import RepoError, Repositories
from regional.gitops.sources import ComparisonError, Part, Revisions, Sources
from regional.kube.objects import Obj, name_of, namespace_of, spec_of
from regional.kube.schema.kinds import BUILTINS

CLUSTER_WIDE = frozenset((kind.group, kind.kind) for kind in BUILTINS if not kind.namespaced)
DEFINITION = "argocd/config/shared/argocd/crds/applicationset.yaml"
MANIFESTS = (".yaml", ".yml", ".json")


class Previewed(msgspec.Struct):
    """One Application as a cluster would have it."""

    application: Obj
    path: str = ""
    revisions: Revisions | None = None
    objects: dict[ObjectKey, Obj] = {}

    @property
    def name(self) -> str:
        return name_of(self.application)


class ClusterPreview(msgspec.Struct):
    cluster: Declared
    applications: list[Previewed] = []
    problems: list[Problem] = []

    @property
    def refused(self) -> bool:
        return any(problem.refused for problem in self.problems)


class Preview:
    def __init__(self, repositories: Repositories, helm: Helm, url: str, *, kube_version: str = "") -> None:
        self._repositories = repositories
        self._helm = helm
        self._url = url
        self._sources = Sources(repositories, helm)
        self._sources.kube_version = kube_version

    async def of(self, commit: str, choice: Choice, *, render: bool = True) -> list[ClusterPreview]:
        """Raises UserError if the commit declares nothing that was asked for."""
        return await self._of(commit, choice, None, render)

    async def of_both(self, old: str, new: str, choice: Choice) -> tuple[list[ClusterPreview], list[ClusterPreview]]:
        """For a diff: clusters that stand for others do so at both commits."""
        return await self._of(old, choice, new, True), await self._of(new, choice, old, True)

    async def _of(self, commit: str, choice: Choice, beside: str | None, render: bool) -> list[ClusterPreview]:
        files = await self._repositories.files(self._url, commit, _of_gitops)
        others = await self._repositories.files(self._url, beside, _of_gitops) if beside else None
        read, read_there = await self._as_pinned(files), await self._as_pinned(others) if others else None
        found = [ClusterPreview(cluster) for cluster in declared(read, self._url, commit, choice, read_there)]
        rooms = _by_folder(files)
        definition = await self._definition(commit)
        for one in found:
            await self._evaluate(one, rooms.get(one.cluster.identity.manifests, {}), definition)
        if render:
            await self._render(found)
        return found

    async def _as_pinned(self, files: dict[str, bytes]) -> dict[str, bytes]:
        """With clusters' own values as they will be read: those are what makes clusters alike."""
        pins = values_pins(files)
        read = {path: content for path, content in files.items() if path.rpartition("/")[0] not in pins}
        for pin in sorted(set(pins.values())):
            try:
                there = await self._repositories.files(self._url, pin, _of_gitops)
            except RepoError:
                continue  # said of each Application that is to be rendered with it
            read |= {path: content for path, content in there.items() if pins.get(path.rpartition("/")[0]) == pin}
        return read

    # -- Applications --------------------------------------------------------------------------------------------------

    async def _definition(self, commit: str) -> Obj | None:
        """The CRD of ApplicationSets, if the commit brings it as it should be."""
        content = await self._repositories.file(self._url, commit, DEFINITION)
        try:
            return next(iter(_parsed(content, DEFINITION)), None) if content else None
        except ManifestError:
            return None  # said of the chart that holds it

    async def _evaluate(self, one: ClusterPreview, files: dict[str, bytes], definition: Obj | None) -> None:
        """`files` are what the root Application would apply."""
        identity = one.cluster.identity
        objects: list[Obj] = []
        for path, content in sorted(files.items()):
            try:
                objects += _parsed(_without_comments(content), path.rpartition("/")[2])
            except ManifestError as error:
                one.problems.append(refused(f"{identity.manifests}/{error}"))
        sets = [obj for obj in objects if obj["kind"] == "ApplicationSet"]
        if not sets:
            one.problems.append(refused(f"{identity.manifests} holds no ApplicationSet: the cluster would get nothing"))
        applications: list[Obj] = []
        for applicationset in sets:
            if misshapen := of_shape(applicationset, definition):
                one.problems += misshapen
                continue
            one.problems += of_set(applicationset)
            evaluation = await self._evaluation(one, applicationset)
            if evaluation is not None:
                applications += evaluation.applications
        one.applications = [Previewed(application) for application in applications]
        if applications:
            one.problems += of_applications(applications, identity)

    async def _evaluation(self, one: ClusterPreview, applicationset: Obj) -> Evaluation | None:
        async def directories(url: str, revision: str) -> Sequence[str]:
            try:
                commit = await self._repositories.resolve(url, revision)
                return await self._repositories.directories(url, commit)
            except RepoError as error:
                raise GeneratorError(str(error)) from None

        try:
            evaluation = await evaluate(applicationset, [one.cluster.identity.cluster()], directories)
        except EvaluationError as error:
            one.problems.append(refused(f"ApplicationSet {name_of(applicationset)}: {error}"))
            return None
        one.problems += [refused(text) for text in evaluation.warnings]
        return evaluation

    # -- objects -------------------------------------------------------------------------------------------------------

    async def _render(self, found: Sequence[ClusterPreview]) -> None:
        ready: list[tuple[ClusterPreview, Previewed, list[Part]]] = []
        for one in found:
            for application in one.applications:
                try:
                    application.revisions = await self._sources.resolve(application.application)
                    parts = await self._sources.parts(application.application, application.revisions)
                except ComparisonError as error:
                    one.problems.append(refused(f"Application {application.name}: {error}"))
                else:
                    application.path = next((part.path for part in parts if part.path), "")
                    ready.append((one, application, parts))
        wanted = [Wanted(part.directory, part.release) for _, _, parts in ready for part in parts if part.release]
        texts = iter(await render_all(self._helm, wanted))
        for one, application, parts in ready:
            made = [(part, next(texts) if part.release else "") for part in parts]
            self._objects(one, application, made)
        for one in found:
            one.problems += of_objects({app.name: list(app.objects) for app in one.applications})

    def _objects(
        self, one: ClusterPreview, application: Previewed, made: Sequence[tuple[Part, str | HelmError]]
    ) -> None:
        namespace = (spec_of(application.application).get("destination") or {}).get("namespace") or ""
        known = len(one.problems)
        for part, text in made:
            try:
                if isinstance(text, HelmError):
                    raise ManifestError(str(text))
                objects = _placed(text, part.path, namespace) if part.kind == "Helm" else part.objects("")
            except ManifestError as error:
                one.problems.append(refused(f"Application {application.name}: {error}"))
                continue
            application.objects |= {ObjectKey.of(obj): obj for obj in objects}
        if not application.objects and len(one.problems) == known:
            one.problems.append(warning(f"Application {application.name}: {application.path} comes to no object"))


def _of_gitops(path: str) -> bool:
    return path == INDEX or (path.startswith("deploy/") and "/argocd/" in path)


def _by_folder(files: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        if path.endswith(MANIFESTS):
            found.setdefault(path.rpartition("/")[0], {})[path] = content
    return found


@lru_cache(maxsize=1024)
def _parsed(content: bytes, path: str) -> list[Obj]:
    return parse(content, path)


def _without_comments(content: bytes) -> bytes:
    """The head of a rendered file names its region; what follows is the same for hundreds."""
    lines = content.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    return b"".join(lines[first:])


@lru_cache(maxsize=4096)
def _placed(text: str, path: str, namespace: str) -> tuple[Obj, ...]:
    """Objects of a rendering, in their Application's namespace unless they say otherwise. Shared: not to be changed."""
    found = []
    for document in text.split("\n---\n"):
        for obj in _document(document, path):
            wide = (group_of(obj), obj["kind"]) in CLUSTER_WIDE
            if not wide and not namespace_of(obj):
                obj = obj | {"metadata": obj["metadata"] | {"namespace": namespace}}
            found.append(obj)
    return tuple(found)


@lru_cache(maxsize=16384)
def _document(text: str, path: str) -> tuple[Obj, ...]:
    return tuple(parse(text, path))
