"""Where an ApplicationSet's parameters come from: cluster secrets, directories of a Git repository, and the matrix of
two generators. Others that Argo CD has are refused by name, so that a set is never half understood."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from regional.gitops.gotemplate import StringMap, render
from regional.gitops.gotemplate.sprig import normalize
from regional.gitops.matching import BadPattern, is_hidden, path_match, walk_order
from regional.kube.objects import Obj, annotations_of, labels_of, matches, name_of

log = logging.getLogger(__name__)

SECRET_TYPE = "argocd.argoproj.io/secret-type"
LOCAL_SERVER = "https://kubernetes.default.svc"
LOCAL_NAME = "in-cluster"
Params = dict[str, Any]
Directories = Callable[[str, str], Awaitable[Sequence[str]]]
"""(repoURL, revision) -> every directory of that tree"""

_KNOWN = ("clusters", "git", "matrix")
_COMMON = ("selector", "template", "values")


class GeneratorError(Exception):
    pass


class Cluster(msgspec.Struct, frozen=True):
    secret: str
    name: str
    server: str
    project: str
    labels: dict[str, str]
    annotations: dict[str, str]

    @classmethod
    def from_secret(cls, secret: Obj) -> Cluster:
        data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
        data |= secret.get("stringData") or {}
        config = data.get("config", "")
        try:
            if config:
                json.loads(config)
        except ValueError as error:
            raise GeneratorError(
                f"unable to unmarshal the config of cluster secret {name_of(secret)}: {error}"
            ) from None
        return cls(
            name_of(secret),
            data.get("name", ""),
            data.get("server", ""),
            data.get("project", ""),
            labels_of(secret),
            annotations_of(secret),
        )


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


class Templating(msgspec.Struct, frozen=True):
    """How the strings of one set are expanded: Go templates, or the older `{{path.basename}}` tags."""

    go: bool
    options: tuple[str, ...] = ()

    def text(self, source: str, params: Params) -> str:
        if self.go:
            return render(source, params, self.options)
        flat = flatten(params)
        return re.sub(r"\{\{(.*?)\}\}", lambda tag: flat.get(tag[1].strip(), tag[0]), source)

    def value(self, source: Any, params: Params, *, drop_null: bool = False) -> Any:
        """Every string and every key of a map. JSON null leaves a map, as it does in Go's typed copy."""
        if isinstance(source, str):
            return self.text(source, params) if "{{" in source else source
        if isinstance(source, dict):
            return {
                (self.text(key, params) if "{{" in key else key): self.value(item, params, drop_null=drop_null)
                for key, item in source.items()
                if not (drop_null and item is None)
            }
        if isinstance(source, list):
            return [self.value(item, params, drop_null=drop_null) for item in source]
        if drop_null and isinstance(source, int) and not isinstance(source, bool):
            return _through_float64(source)
        return source


def _through_float64(number: int) -> int:
    """valuesObject is decoded as JSON in Go, where every number is a float64 for a moment."""
    return int(float(number))


def flatten(params: Params, prefix: str = "") -> dict[str, str]:
    """`a.b` for maps and `a[0]` for lists; a map of strings as Argo CD's flatten sees it: not at all."""
    flat: dict[str, str] = {}
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        elif isinstance(value, list):
            flat |= {f"{name}[{number}]": str(item) for number, item in enumerate(value)}
        elif value is not None:
            flat[name] = str(value)
    return flat


class Generation:
    """One evaluation: what the cluster holds, how to see a repository, how to expand text."""

    def __init__(self, clusters: Sequence[Cluster], directories: Directories, templating: Templating) -> None:
        self._clusters = sorted(clusters, key=lambda cluster: cluster.secret)
        self._directories = directories
        self._templating = templating

    async def run(self, generator: Obj, seen: Params | None = None) -> list[Params]:
        """Parameter sets of one generator; `seen` are the first matrix child's, for the second."""
        kinds = [key for key in generator if key not in _COMMON and generator[key] is not None]
        if len(kinds) != 1:
            raise GeneratorError(f"a generator needs exactly one of {', '.join(_KNOWN)}; found {kinds or 'none'}")
        kind = kinds[0]
        if kind not in _KNOWN:
            raise GeneratorError(f"generator {kind!r} is not supported (supported: {', '.join(_KNOWN)})")
        body = generator[kind] or {}
        if seen is not None:
            body = self._templating.value(body, seen)
        if kind == "clusters":
            found = self._from_clusters(body)
        elif kind == "git":
            found = await self._from_git(body, seen or {})
        else:
            found = await self._matrix(body)
        return self._selected(generator.get("selector"), found)

    def _selected(self, selector: Obj | None, found: list[Params]) -> list[Params]:
        if not selector:
            return found
        return [params for params in found if matches(selector, _selectable(params))]

    def _values(self, body: Obj, params: Params, seen: Params | None = None) -> Params:
        """`values` see the generator's parameters, never each other."""
        values = {
            key: self._templating.text(str(text), (seen or {}) | params)
            for key, text in (body.get("values") or {}).items()
        }
        if not values:
            return params
        if self._templating.go:
            return params | {"values": StringMap(values)}
        return params | {f"values.{key}": text for key, text in values.items()}

    def _from_clusters(self, body: Obj) -> list[Params]:
        selector = body.get("selector") or {}
        chosen = [c for c in self._clusters if matches(selector, c.labels)]
        by_name = {cluster.name: cluster for cluster in chosen}
        every = list(self._clusters)
        if not any(cluster.server == LOCAL_SERVER for cluster in every):
            every.append(Cluster("", LOCAL_NAME, LOCAL_SERVER, "", {}, {}))
        local: list[Params] = []
        found: list[Params] = []
        for cluster in every:
            if cluster.name in by_name:
                found.append(self._values(body, self._cluster_params(by_name[cluster.name])))
            elif not cluster.secret and not (selector.get("matchLabels") or selector.get("matchExpressions")):
                name = {"name": cluster.name, "nameNormalized": cluster.name, "server": cluster.server, "project": ""}
                local.append(self._values(body, name))
        return local + found

    def _cluster_params(self, cluster: Cluster) -> Params:
        params: Params = {
            "name": cluster.name,
            "nameNormalized": normalize(cluster.name),
            "server": cluster.server,
            "project": cluster.project,
        }
        if not self._templating.go:
            params |= {f"metadata.labels.{key}": value for key, value in cluster.labels.items()}
            return params | {f"metadata.annotations.{key}": value for key, value in cluster.annotations.items()}
        metadata: Params = {}
        if cluster.annotations:
            metadata["annotations"] = StringMap(cluster.annotations)
        if cluster.labels:
            metadata["labels"] = StringMap(cluster.labels)
        return params | {"metadata": metadata}

    async def _from_git(self, body: Obj, seen: Params) -> list[Params]:
        if "files" in body:
            raise GeneratorError("the git generator's 'files' is not supported (supported: 'directories')")
        patterns = body.get("directories")
        if not patterns:
            raise GeneratorError("the git generator needs 'directories'")
        repository = body.get("repoURL") or ""
        revision = body.get("revision") or "HEAD"
        every = await self._directories(repository, revision)
        chosen = _chosen(tuple(every), tuple((str(p.get("path") or ""), bool(p.get("exclude"))) for p in patterns))
        return [self._values(body, self._path_params(path, body.get("pathParamPrefix")), seen) for path in chosen]

    def _path_params(self, path: str, prefix: str | None) -> Params:
        basename = path.rsplit("/", 1)[-1]
        facts: Params = {
            "path": path,
            "basename": basename,
            "basenameNormalized": normalize(basename),
            "segments": path.split("/"),
        }
        if self._templating.go:
            return {prefix: {"path": facts}} if prefix else {"path": facts}
        stem = f"{prefix}.path" if prefix else "path"
        flat: Params = {stem: path, f"{stem}.basename": basename, f"{stem}.basenameNormalized": normalize(basename)}
        return flat | {f"{stem}[{number}]": part for number, part in enumerate(path.split("/"))}

    async def _matrix(self, body: Obj) -> list[Params]:
        children = body.get("generators") or []
        if len(children) != 2:
            few = "less" if len(children) < 2 else "more"
            raise GeneratorError(f"found {few} than two generators, Matrix support only two")
        found: list[Params] = []
        for first in await self.run(children[0]):
            found += [merged(first, second) for second in await self.run(children[1], first)]
        return found


@lru_cache(maxsize=64)
def _chosen(every: tuple[str, ...], patterns: tuple[tuple[str, bool], ...]) -> list[str]:
    """Kept, because every cluster of a type asks the same of the same commit."""
    return sorted((path for path in every if not is_hidden(path) and _wanted(path, patterns)), key=walk_order)


def _wanted(path: str, patterns: Sequence[tuple[str, bool]]) -> bool:
    """`exclude` wins wherever it stands; a pattern that Go cannot read is skipped, as Argo CD does."""
    included = False
    for pattern, exclude in patterns:
        try:
            hit = path_match(pattern, path)
        except BadPattern:
            log.warning("bad directory pattern skipped", extra={"pattern": pattern})
            continue
        if hit and exclude:
            return False
        included = included or hit
    return included


def merged(first: Params, second: Params) -> Params:
    out = dict(first)
    for key, value in second.items():
        present = out.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            out[key] = type(present)(merged(present, value))
        else:
            out[key] = value
    return out


def _selectable(params: Params) -> dict[str, str]:
    """What a generator's `selector` can see: everything but the maps of labels and annotations."""
    plain = {key: value for key, value in params.items() if key != "metadata"}
    return flatten(plain)
