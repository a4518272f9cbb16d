"""What the server tells about itself: versions, groups and resources, old form and aggregated.

Every document is made once and again only when the set of served kinds has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from regional.kube.apiserver.catalogue import Catalogue
from regional.kube.apiserver.entries import Obj, encode
from regional.kube.apiserver.errors import PageNotFound, no_such_resource, not_acceptable
from regional.kube.apiserver.media import JSON, clauses, wanted
from regional.kube.apiserver.rendering import Renderer
from regional.kube.messages import Request, Response, json_response
from regional.kube.schema import openapi
from regional.kube.schema.registry import Kind, Subresource, group_versions

VERSION: Obj = {
    "major": "1",
    "minor": "35",
    "emulationMajor": "1",
    "emulationMinor": "35",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "34",
    "gitVersion": "v1.35.4",
    "gitCommit": "embedded",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "python",
    "compiler": "cpython",
    "platform": "linux/amd64",
}

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PUBLIC = {"cache-control": "public", "vary": "Accept"}


class Discovery:
    def __init__(self, catalogue: Catalogue, address: str) -> None:
        self._catalogue = catalogue
        self._address = address
        self._made: dict[Any, Any] = {}
        self._made_for = 0

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if self._made_for != self._catalogue.generation:
            self._made.clear()
            self._made_for = self._catalogue.generation
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    # --- groups and resources ------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response | None:
        """None if the path is none of discovery's."""
        parts = [part for part in request.path.split("/") if part]
        match parts:
            case ["api"] | ["apis"]:
                return self._roots(request, parts[0])
            case ["api", version]:
                return self._plain(request, self._resources("", version))
            case ["apis", group]:
                return self._plain(request, self._group(group))
            case ["apis", group, version]:
                return self._plain(request, self._resources(group, version))
            case ["version"]:
                return self._plain(request, VERSION)
            case ["openapi", "v2"]:
                return self._openapi_v2(request)
            case ["openapi", "v3", *rest]:
                return self._openapi_v3(request, "/".join(rest))
        return None

    @staticmethod
    def _plain(request: Request, document: Obj) -> Response:
        return Renderer.answer(200, encode(document), wanted(request))

    def _roots(self, request: Request, root: str) -> Response:
        accept = clauses(request.headers.get("accept", ""))
        aggregated = [p for media, p in accept if media == JSON and p.get("as") == "APIGroupDiscoveryList"]
        if any(p.get("v") == "v2" and p.get("g") == "apidiscovery.k8s.io" for p in aggregated):
            body, tag = self._once(("aggregated", root), lambda: _tagged(self._aggregated(root)))
            headers = _PUBLIC | {"etag": tag, "content-type": AGGREGATED}
            if request.headers.get("if-none-match") == tag:
                return Response(304, headers)
            return Response(200, headers, body)
        if aggregated and not any(media in (JSON, "*/*", "application/*") and "as" not in p for media, p in accept):
            raise not_acceptable("application/json, application/yaml, application/vnd.kubernetes.protobuf")
        request = Request(request.method, request.path, [], {"accept": _without_views(accept)})
        document = self._core_versions() if root == "api" else self._groups()
        return self._plain(request, document)

    def _core_versions(self) -> Obj:
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}],
        }

    def _groups(self) -> Obj:
        groups = [_group(name, versions) for name, versions in self._catalogue.versions().items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _group(self, name: str) -> Obj:
        versions = self._catalogue.versions().get(name)
        if not versions or not name:
            raise PageNotFound
        return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, versions)

    def _resources(self, group: str, version: str) -> Obj:
        def make() -> Obj:
            if version not in self._catalogue.versions().get(group, ()):
                if group in group_versions():
                    raise no_such_resource()
                raise PageNotFound
            resources = [entry for kind in self._catalogue.kinds(group, version) for entry in _legacy(kind)]
            return {
                "kind": "APIResourceList",
                **({"apiVersion": "v1"} if group else {}),
                "groupVersion": f"{group}/{version}" if group else version,
                "resources": resources,
            }

        document: Obj = self._once((group, version), make)
        return document

    def _aggregated(self, root: str) -> Obj:
        items = []
        for group, versions in self._catalogue.versions().items():
            if (group == "") != (root == "api"):
                continue
            served = [
                {
                    "version": version,
                    "resources": [_aggregated(kind) for kind in self._catalogue.kinds(group, version)],
                    "freshness": "Current",
                }
                for version in versions
            ]
            items.append({"metadata": {"name": group} if group else {}, "versions": served})
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }

    # --- OpenAPI -------------------------------------------------------------------------------------------------

    def _openapi_paths(self) -> dict[str, tuple[str, str]]:
        """`api/v1`, `apis/apps/v1` → (group, version)."""
        return {
            (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
            for group, versions in self._catalogue.versions().items()
            for version in versions
        }

    def _openapi_document(self, path: str) -> tuple[bytes, str]:
        group, version = self._openapi_paths()[path]

        def make() -> tuple[bytes, str]:
            return _tagged(openapi.v3_document(group, version, self._catalogue.kinds(group, version)))

        made: tuple[bytes, str] = self._once(("openapi", path), make)
        return made

    def _openapi_hash(self, path: str) -> str:
        """Names the content without making it: the documents of groups that nobody reads are never built."""
        group, version = self._openapi_paths()[path]

        def make() -> str:
            digest = hashlib.sha512(encode([VERSION["gitVersion"], path]))
            for kind in self._catalogue.kinds(group, version):
                if kind.custom is not None:
                    digest.update(encode([kind.kind, kind.plural, kind.namespaced, kind.custom]))
            return digest.hexdigest().upper()

        made: str = self._once(("openapi hash", path), make)
        return made

    def _openapi_v3(self, request: Request, path: str) -> Response:
        paths = self._openapi_paths()
        if not path:
            hashes = {each: self._openapi_hash(each) for each in paths}
            return self._plain(request, openapi.v3_index(list(paths), hashes))
        if path not in paths:
            raise PageNotFound
        body, tag = self._openapi_document(path)
        if request.headers.get("if-none-match") == tag:
            return Response(304, {"etag": tag})
        asked = request.parameter("hash")
        headers = {"etag": tag, "vary": "Accept"}
        if asked and asked != self._openapi_hash(path):
            return Response(301, {"location": f"/openapi/v3/{path}?hash={self._openapi_hash(path)}"})
        if asked:
            headers["cache-control"] = "public, immutable"
        return json_response(200, body, **headers)

    def _openapi_v2(self, request: Request) -> Response:
        accept = [media for media, _ in clauses(request.headers.get("accept", ""))]
        if _OPENAPI_V2 not in accept and "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" not in accept:
            raise not_acceptable(_OPENAPI_V2)

        def make() -> bytes:
            return openapi.v2_protobuf(
                kind
                for group, versions in self._catalogue.versions().items()
                for version in versions
                for kind in self._catalogue.kinds(group, version)
            )

        body = self._once("openapi v2", make)
        return Response(200, {"content-type": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}, body)


def _tagged(document: Obj) -> tuple[bytes, str]:
    body = encode(document)
    return body, f'"{hashlib.sha512(body).hexdigest().upper()}"'


def _without_views(accept: list[tuple[str, dict[str, str]]]) -> str:
    return ",".join(media for media, parameters in accept if "as" not in parameters)


def _group(name: str, versions: list[str]) -> Obj:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _legacy(kind: Kind) -> list[Obj]:
    entry: Obj = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.stored:
        digest = hashlib.sha256(f"{kind.store}/{kind.version}/{kind.kind}".encode()).digest()
        entry["storageVersionHash"] = digest[:8].hex()
    return [entry, *(_legacy_subresource(kind, part) for part in kind.subresources)]


def _legacy_subresource(kind: Kind, part: Subresource) -> Obj:
    entry: Obj = {
        "name": f"{kind.plural}/{part.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": part.kind or kind.kind,
        "verbs": list(part.verbs),
    }
    if part.group:
        entry |= {"group": part.group, "version": part.version}
    return entry


def _aggregated(kind: Kind) -> Obj:
    entry: Obj = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": part.name,
                "responseKind": {
                    "group": part.group or ("" if part.kind else kind.group),
                    "version": part.version or ("v1" if part.kind else kind.version),
                    "kind": part.kind or kind.kind,
                },
                "verbs": list(part.verbs),
            }
            for part in kind.subresources
        ]
    return entry
