"""Two answers are equal when all is equal but what chance, time and place decide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from .wire import PATCHES, Answer, Http, Obj

CASES = Path(__file__).parent / "cases"
ACCEPT = {
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "partials": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"(\d+[smhd])+( ago)?")
_CREDENTIAL = re.compile(r"X509SHA256=[0-9a-f]{64}")
_TOKEN = re.compile(r"kube-api-access-[a-z0-9]{5}")
_ADDRESS = re.compile(r"10\.96\.(?!77\.)\d+\.\d+")
_ENTRY = ("operation", "manager", "subresource", "apiVersion")
_REVISION = re.compile(r"(?<=in record \()\d+(?=\))")
_HEADERS = ("content-type", "cache-control", "retry-after", "location", "vary")


def cases() -> list[Obj]:
    """Every case of every file; a file is a subject. A step that `differs` names a row of the exceptions in
    docs/kubernetes.md: it is sent, so that what follows finds the same state, but not compared."""
    return [case | {"file": path.stem} for path in sorted(CASES.glob("*.yaml")) for case in _read(path)]


def _read(path: Path) -> list[Obj]:
    found: list[Obj] = yaml.safe_load(path.read_text())
    return found


async def send(http: Http, step: Obj, namespace: str) -> Answer:
    method, _, path = step["send"].partition(" ")
    path = path.replace("NS", namespace) + (f"?{step['query']}" if "query" in step else "")
    options: dict[str, str] = {}
    if "accept" in step:
        options["accept"] = ACCEPT.get(step["accept"], step["accept"])
    if "type" in step or method == "PATCH":
        options["content_type"] = PATCHES.get(step.get("type", "merge"), step.get("type", ""))
    for name in ("authorization", "impersonate"):
        if name in step:
            options["Impersonate_User" if name == "impersonate" else name] = step[name]
    body = step["text"].encode() if "text" in step else _placed(step.get("body"), namespace)
    if "until" in step:
        return await http.until(path, lambda answer: answer.status == step["until"])
    return await http.call(method, path, body, user=step.get("user", "admin"), **options)


def _placed(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {key: _placed(each, namespace) for key, each in value.items()}
    if isinstance(value, list):
        return [_placed(each, namespace) for each in value]
    return namespace if value == "NS" else value


def comparable(answer: Answer) -> Obj:
    headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
    body: Any = answer.content.decode(errors="replace")
    if answer.media.startswith("application/json") and answer.content:
        body = _neutral(answer.body, ())
    return {"status": answer.status, "headers": headers, "warnings": answer.warnings, "body": body}


def _neutral(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _neutral(each, (*path, key)) for key, each in value.items()}
    if isinstance(value, list):
        if path[-1:] == ("managedFields",):  # sorted by time, so by how the requests fell into seconds
            value = sorted(value, key=lambda each: [str(each.get(key)) for key in _ENTRY])
        return [_neutral(each, path) for each in value]
    if not isinstance(value, str):
        return value
    if path[-2:] == ("columnDefinitions", "description"):
        return "DESCRIPTION"  # prose of theirs
    if path[-1:] == ("resourceVersion",) and value.isdigit():
        return "RV"
    if path[-1:] == ("cells",) and _AGE.fullmatch(value):
        return "AGE"
    if path[-1:] == ("manager",) and value == "kube":
        return "kube-apiserver"  # the name of its program, which here is all of Kubernetes in one
    if path[-1:] == ("storageVersionHash",):
        return "HASH"  # of a Go type's name
    if path[-1:] == ("continue",) and value:
        return "TOKEN"
    for pattern, name in (
        (_UID, "UID"),
        (_REVISION, "RV"),
        (_TOKEN, "kube-api-access-XXXXX"),
        (_ADDRESS, "ADDRESS"),
        (_CREDENTIAL, "CREDENTIAL"),
    ):
        value = pattern.sub(name, value)
    return _TIME.sub("TIME", value) if path[:1] != ("columnDefinitions",) else value
