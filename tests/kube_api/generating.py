"""Requests made up from what a server says of itself: every path and verb of its OpenAPI documents, with bodies that
follow their schemas or nearly so."""

from __future__ import annotations

import copy
import random
from typing import Any
from urllib.parse import quote

import msgspec

Obj = dict[str, Any]

NAMES = ("a", "b", "c-1", "default", "kube-system")
WORDS = (
    "",
    "a",
    "b",
    "1",
    "10m",
    "1Gi",
    "a/b",
    "A=b",
    "10.0.0.1",
    "::1",
    "TCP",
    "80",
    "Always",
    "*",
    "..",
    "é\u2028",
    "%",
    "x" * 300,
)
NUMBERS = (0, 1, 2, 80, 65536, -1, 2**31, 2**63, 2**70, 1.5, 1e300)
TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "yesterday", "0000-00-00T00:00:00Z")
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    2**70,
    "",
    "\u2028",
    "A" * 300,
    [],
    {},
    [None],
    [{}],
    {"a": None},
    [[1]],
    {"": ""},
)
PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")
TYPES = (
    "application/json",
    "application/yaml",
    "application/cbor",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
)
ACCEPTS = (
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "*/*",
    "nonsense",
)
METHODS = ("get", "post", "put", "patch", "delete")
DEPTH = 7


class Asked(msgspec.Struct):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None

    @property
    def streams(self) -> bool:
        return "watch" in self.target or "follow" in self.target


class Generator:
    """`documents` are the OpenAPI v3 documents of a server."""

    def __init__(self, documents: list[Obj], chance: random.Random) -> None:
        self._chance = chance
        self._schemas: Obj = {}
        self._operations: list[tuple[str, str, Obj, list[Obj]]] = []
        for document in documents:
            self._schemas |= document.get("components", {}).get("schemas", {})
            for path, item in document["paths"].items():
                for method in METHODS:
                    if method in item:
                        parameters = [*item.get("parameters", []), *item[method].get("parameters", [])]
                        self._operations.append((method, path, item[method], parameters))
        self._operations.sort(key=lambda operation: operation[:2])

    def requests(self, count: int) -> list[Asked]:
        """Every operation once, in a random order, and again until there are enough."""
        made: list[Asked] = []
        while len(made) < count:
            for method, path, operation, parameters in self._chance.sample(self._operations, len(self._operations)):
                made.append(self._request(method, path, operation, parameters))
        return made[:count]

    def _request(self, method: str, path: str, operation: Obj, parameters: list[Obj]) -> Asked:
        chance = self._chance
        query: list[str] = []
        for parameter in parameters:
            name = parameter["name"]
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", quote(self._name(name), safe=""))
            elif chance.random() < 0.15:
                query.append(f"{name}={quote(self._argument(name))}")
        if method == "patch" and chance.random() < 0.7:
            query.append("fieldManager=generated&force=true")
        headers = {"accept": chance.choice(ACCEPTS)} if chance.random() < 0.5 else {}
        target = path + ("?" + "&".join(query) if query else "")
        if method == "get":
            return Asked("GET", target, headers, None)
        document = self._document(operation, path)
        content = msgspec.json.encode(document)
        headers["content-type"] = f"application/{chance.choice(PATCHES)}" if method == "patch" else "application/json"
        if chance.random() < 0.05:
            headers["content-type"] = chance.choice(TYPES)
        if chance.random() < 0.03:
            content = content[: chance.randrange(len(content) + 1)]
        return Asked(method.upper(), target, headers, content)

    def _name(self, parameter: str) -> str:
        if parameter == "namespace":
            return "default" if self._chance.random() < 0.9 else self._chance.choice(WORDS)
        return self._chance.choice(NAMES if self._chance.random() < 0.9 else WORDS)

    def _argument(self, name: str) -> str:
        if name in ("watch", "allowWatchBookmarks", "pretty", "force", "sendInitialEvents", "follow"):
            return self._chance.choice(("true", "false", "1", "maybe"))
        if name == "resourceVersion":  # a future one is waited for
            return self._chance.choice(("0", "1", "", "-1", "x"))
        known = ("All", "Background", "Foreground", "Orphan", "NotOlderThan", "Exact", "Strict", "metadata.name=a")
        return self._chance.choice((*known, *WORDS[:-1], "0", "1", "500", "999999999999999999999"))

    # --- bodies --------------------------------------------------------------------------------------------------

    def _document(self, operation: Obj, path: str) -> Any:
        contents = operation.get("requestBody", {}).get("content", {})
        schema: Obj = next((each["schema"] for each in contents.values()), {})
        if schema.get("$ref", "").endswith(".Patch"):
            schema = self._written_at(path) or schema
        document = self._value(schema, 0)
        kinds = self._resolved(schema).get("x-kubernetes-group-version-kind", [])
        if isinstance(document, dict) and kinds and self._chance.random() < 0.95:
            kind = kinds[0]
            document |= {
                "apiVersion": f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"],
                "kind": kind["kind"],
            }
            if isinstance(document.get("metadata"), dict | None):
                document["metadata"] = (document.get("metadata") or {}) | {"name": self._chance.choice(NAMES)}
                document["metadata"].pop("namespace", None)
        if self._chance.random() < 0.3:
            document = mutilated(document, self._chance)
        return document

    def _written_at(self, path: str) -> Obj | None:
        """A patch is like the object that a PUT would bring, so far as it has one."""
        for method, other, operation, _ in self._operations:
            if method in ("put", "post") and _shape(other) == _shape(path):
                contents = operation.get("requestBody", {}).get("content", {})
                return next((each["schema"] for each in contents.values()), None)
        return None

    def _resolved(self, schema: Obj) -> Obj:
        while True:
            if "$ref" in schema:
                schema = self._schemas.get(schema["$ref"].rpartition("/")[2], {})
            elif len(schema.get("allOf", [])) == 1:
                schema = schema["allOf"][0]
            else:
                return schema

    def _value(self, schema: Obj, depth: int) -> Any:
        chance, schema = self._chance, self._resolved(schema)
        if "enum" in schema and chance.random() < 0.9:
            return chance.choice(schema["enum"])
        if "oneOf" in schema:
            return self._value(chance.choice(schema["oneOf"]), depth)
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                few = 0 if depth > DEPTH else chance.choice((0, 1, 1, 2))
                return [self._value(schema.get("items", {}), depth + 1) for _ in range(few)]
            case "integer" | "number":
                return chance.choice(NUMBERS[:4] if chance.random() < 0.9 else NUMBERS)
            case "boolean":
                return chance.random() < 0.5
            case "string":
                times = schema.get("format") == "date-time"
                return chance.choice(TIMES if times else WORDS if chance.random() < 0.5 else NAMES)
        return copy.deepcopy(chance.choice(JUNK))

    def _object(self, schema: Obj, depth: int) -> Obj:
        chance, made = self._chance, {}
        rate = 0.0 if depth > DEPTH else (0.9, 0.4, 0.3)[min(depth, 2)]
        for name, part in schema.get("properties", {}).items():
            if (depth <= DEPTH and name in schema.get("required", [])) or chance.random() < rate:
                made[name] = self._value(part, depth + 1)
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and depth <= DEPTH:
            made |= {chance.choice(WORDS): self._value(more, depth + 1) for _ in range(chance.randrange(3))}
        return made


def _shape(path: str) -> str:
    """Paths that differ in nothing but names."""
    return "/".join("*" if part in (*NAMES, "{name}", "{namespace}") else part for part in path.split("/"))


def mutilated(document: Any, chance: random.Random) -> Any:
    """With junk in one place."""
    if not isinstance(document, dict | list) or not document or chance.random() < 0.1:
        return copy.deepcopy(chance.choice(JUNK))
    step = chance.choice(list(document) if isinstance(document, dict) else range(len(document)))
    document[step] = mutilated(document[step], chance)
    return document
