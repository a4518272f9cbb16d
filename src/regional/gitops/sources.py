"""From an Application's sources to its manifests: which commits, which chart, which values, rendered.

Shared by the controller, the bootstrap task (which must install exactly what will later manage itself) and previews.
"""

from __future__ import annotations

import contextlib
import posixpath
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from regional.gitops.chartfacts import chart_facts
from regional.gitops.generators import LOCAL_NAME, LOCAL_SERVER
from regional.gitops.helm import ChartError, Helm, HelmError, Release
from regional.gitops.manifests import ManifestError, parse
from regional.gitops.matching import glob_match
from regional.gitops.repo import RepoError, Repositories, clean_path
from regional.kube.objects import Obj, name_of, spec_of

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
KUSTOMIZE_FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


class ComparisonError(Exception):
    """The sources cannot be turned into manifests. The Application says so; nothing is changed in the cluster."""

    lasting = False
    """Whether these very commits are at fault, so that only others mend it."""


class Revisions(msgspec.Struct, frozen=True):
    """One commit per source, in the order of the sources."""

    commits: tuple[str, ...]
    multiple: bool

    def fields(self) -> Obj:
        """`revision` for one source and `revisions` for several, as Argo CD writes them."""
        return {"revisions": list(self.commits)} if self.multiple else {"revision": self.commits[0]}

    def __str__(self) -> str:
        return ", ".join(commit[:7] for commit in self.commits)


class Rendering(msgspec.Struct):
    revisions: Revisions
    objects: list[Obj]
    types: list[str]
    """Helm or Directory per source; "" for one that is only referred to."""


class Part(msgspec.Struct):
    """One source: a chart with its release, a directory of manifests, or one that others only refer to."""

    number: int
    kind: str  # Helm, Directory, ""
    path: str
    directory: Path
    release: Release | None = None
    options: Obj = {}

    def objects(self, text: str) -> list[Obj]:
        """`text` is what Helm made of the release."""
        if self.kind == "Helm":
            return parse(text, self.path)
        return _plain(self.directory, self.path, self.options) if self.kind else []


def sources_of(application: Obj) -> list[Obj]:
    spec = spec_of(application)
    found = spec.get("sources") or ([spec["source"]] if spec.get("source") else [])
    return [source for source in found if isinstance(source, dict)]


def destination_problem(application: Obj) -> str:
    destination = spec_of(application).get("destination") or {}
    server, name = destination.get("server"), destination.get("name")
    if server == LOCAL_SERVER or (not server and name == LOCAL_NAME):
        return ""
    return f"there are no clusters with this {'name: ' + str(name) if not server else 'server: ' + str(server)}"


class Sources:
    """`kube_version` and `api_versions` say what `.Capabilities` is in charts that ask."""

    def __init__(self, repositories: Repositories, helm: Helm) -> None:
        self.repositories = repositories
        self._helm = helm
        self.kube_version = ""
        self.api_versions: tuple[str, ...] = ()

    async def resolve(self, application: Obj) -> Revisions:
        sources = sources_of(application)
        if not sources:
            raise ComparisonError("spec.source.repoURL and either spec.source.path or spec.source.chart are required")
        commits = []
        for source in sources:
            if source.get("chart"):
                raise ComparisonError("Helm repositories (spec.source.chart) are not supported: put the chart in Git")
            try:
                commits.append(
                    await self.repositories.resolve(source.get("repoURL") or "", source.get("targetRevision") or "HEAD")
                )
            except RepoError as error:
                raise ComparisonError(str(error)) from None
        return Revisions(tuple(commits), "sources" in spec_of(application))

    async def render(self, application: Obj, revisions: Revisions | None = None) -> Rendering:
        revisions = revisions or await self.resolve(application)
        parts = await self.parts(application, revisions)
        objects: list[Obj] = []
        for part in parts:
            try:
                text = await self._helm.template(part.directory, part.release) if part.release else ""
                objects += part.objects(text)
            except (HelmError, ManifestError) as error:
                raise _failed(part.number, len(parts), error) from None
        return Rendering(revisions, objects, [part.kind for part in parts])

    async def parts(self, application: Obj, revisions: Revisions) -> list[Part]:
        """Each source made ready to be rendered."""
        sources = sources_of(application)
        refs = {f"${s['ref']}": (s, c) for s, c in zip(sources, revisions.commits, strict=True) if s.get("ref")}
        found: list[Part] = []
        for number, (source, commit) in enumerate(zip(sources, revisions.commits, strict=True), 1):
            if source.get("ref") and not source.get("path"):
                found.append(Part(number, "", "", Path()))
                continue
            try:
                found.append(await self._part(number, application, source, commit, refs))
            except (RepoError, ManifestError) as error:
                raise _failed(number, len(sources), error) from None
        return found

    async def _part(
        self, number: int, application: Obj, source: Obj, commit: str, refs: dict[str, tuple[Obj, str]]
    ) -> Part:
        url, path = source.get("repoURL") or "", clean_path(source.get("path") or "")
        tree = await self.repositories.tree(url, commit, path)
        if tree is None:
            raise ManifestError(f"{path}: app path does not exist")
        directory = await self.repositories.export(url, tree)
        if (directory / "Chart.yaml").is_file():
            release = await self._release(application, source, tree, commit, directory, refs)
            return Part(number, "Helm", path, directory, release)
        for name in KUSTOMIZE_FILES:
            if (directory / name).is_file():
                raise ManifestError(f"{path}/{name}: Kustomize is not supported; use a Helm chart or plain manifests")
        return Part(number, "Directory", path, directory, options=source.get("directory") or {})

    async def _release(
        self,
        application: Obj,
        source: Obj,
        tree: str,
        commit: str,
        directory: Path,
        refs: dict[str, tuple[Obj, str]],
    ) -> Release:
        helm = source.get("helm") or {}
        destination = spec_of(application).get("destination") or {}
        values = []
        for file in helm.get("valueFiles") or []:
            content = await self._value_file(source, commit, directory, file, refs)
            if content is not None:
                values.append(content)
        if helm.get("valuesObject") is not None:
            values.append(msgspec.json.encode(helm["valuesObject"]))
        elif helm.get("values"):
            values.append(str(helm["values"]).encode())
        return Release(
            tree=tree,
            name=helm.get("releaseName") or name_of(application),
            namespace=helm.get("namespace") or destination.get("namespace") or "",
            values=tuple(values),
            kube_version=helm.get("kubeVersion") or self.kube_version,
            api_versions=self._capabilities(directory, helm),
            include_crds=not helm.get("skipCrds"),
            skip_tests=bool(helm.get("skipTests")),
            parameters=tuple(
                (p["name"], str(p.get("value", "")), bool(p.get("forceString"))) for p in helm.get("parameters") or []
            ),
        )

    def _capabilities(self, directory: Path, helm: Obj) -> tuple[str, ...]:
        """Only charts that ask get the list: it changes with every CRD, and would spoil everybody's cache."""
        if helm.get("apiVersions"):
            return tuple(helm["apiVersions"])
        return self.api_versions if chart_facts(directory).asks_capabilities else ()

    async def _value_file(
        self, source: Obj, commit: str, directory: Path, file: str, refs: dict[str, tuple[Obj, str]]
    ) -> bytes | None:
        if file.startswith("$"):
            ref, _, rest = file.partition("/")
            if ref not in refs:
                raise ManifestError(f"source referenced {ref!r} in valueFiles, but no source has that 'ref'")
            owner, commit = refs[ref]
            path = clean_path(rest)
            url = owner.get("repoURL") or ""
        elif "://" in file:
            raise ManifestError(f"{file}: values from URLs are not supported")
        else:
            url = source.get("repoURL") or ""
            path = clean_path(file if file.startswith("/") else posixpath.join(source.get("path") or "", file))
            # The chart's own files have just been exported: no need to ask git for them.
            with contextlib.suppress(OSError, ValueError):
                return (directory / PurePosixPath(path).relative_to(clean_path(source.get("path") or ""))).read_bytes()
        content = await self.repositories.file(url, commit, path)
        if content is None and not (source.get("helm") or {}).get("ignoreMissingValueFiles"):
            raise ManifestError(f"value file {path} does not exist at {commit[:7]}")
        return content


def _failed(number: int, count: int, error: Exception) -> ComparisonError:
    failed = ComparisonError(
        f"Failed to load target state: failed to generate manifest for source {number} of {count}: {error}"
    )
    failed.lasting = isinstance(error, ChartError | ManifestError)
    return failed


def _plain(directory: Path, path: str, options: Obj) -> list[Obj]:
    if options.get("jsonnet"):
        raise ManifestError("Jsonnet is not supported")
    found = directory.rglob("*") if options.get("recurse") else directory.glob("*")
    objects: list[Obj] = []
    for file in sorted(found):
        relative = file.relative_to(directory).as_posix()
        if not file.is_file() or file.suffix not in MANIFEST_SUFFIXES or not _chosen(relative, options):
            continue
        objects += parse(file.read_bytes(), f"{path}/{relative}")
    return objects


def _chosen(relative: str, options: Obj) -> bool:
    def hit(pattern: Any) -> bool:
        choices = str(pattern)[1:-1].split(",") if str(pattern).startswith("{") else [str(pattern)]
        return any(glob_match(choice, relative) for choice in choices)

    if options.get("exclude") and hit(options["exclude"]):
        return False
    return not options.get("include") or hit(options["include"])
