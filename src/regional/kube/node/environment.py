"""A container's environment: what the manifest says, and the few variables every pod may count on.

Nothing of the node's own environment passes: a pod must not learn where the region's supervisor keeps its things.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from regional.kube.node import quantities
from regional.kube.objects import Obj, annotations_of, labels_of, metadata_of, spec_of

Lookup = Callable[[str, str], Obj | None]
"""(kind, name) → the ConfigMap or Secret of that name in the pod's namespace."""

_REFERENCE = re.compile(r"\$(\$|\(([^()\s]+)\))")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")
_VARIABLE = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")


class ConfigProblem(Exception):
    """The manifest asks for something that is not there (yet); the text is shown in the container's status."""


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value when known and stays as it is otherwise; `$$` is a literal `$`."""

    def replacement(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return known.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replacement, text)


def container_environment(
    pod: Obj, container: Obj, lookup: Lookup, facts: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str]:
    """`facts` are status fields by path (status.podIP …); `base` is overridden by the manifest."""
    environment = dict(base)
    for source in container.get("envFrom") or []:
        environment |= _from_source(source, lookup)
    for entry in container.get("env") or []:
        name = entry["name"]
        if entry.get("valueFrom"):
            value = _from_reference(pod, container, entry["valueFrom"], lookup, facts)
            if value is not None:
                environment[name] = value
        else:
            environment[name] = expand(str(entry.get("value") or ""), environment)
    return environment


def _from_source(source: Obj, lookup: Lookup) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    if "configMapRef" in source:
        kind, reference = "ConfigMap", source["configMapRef"]
    elif "secretRef" in source:
        kind, reference = "Secret", source["secretRef"]
    else:
        return {}
    found = lookup(kind, reference["name"])
    if found is None:
        if reference.get("optional"):
            return {}
        raise ConfigProblem(f'{kind.lower()} "{reference["name"]}" not found')
    values = {key: raw.decode(errors="replace") for key, raw in data_of(found).items()}
    return {prefix + key: value for key, value in values.items() if _VARIABLE.match(prefix + key)}


def _from_reference(pod: Obj, container: Obj, source: Obj, lookup: Lookup, facts: Mapping[str, str]) -> str | None:
    if field := source.get("fieldRef"):
        return field_value(pod, field["fieldPath"], facts)
    if resource := source.get("resourceFieldRef"):
        return resource_value(pod, container, resource)
    for field_name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if reference := source.get(field_name):
            return _key_value(kind, reference, lookup)
    raise ConfigProblem(f"valueFrom {', '.join(source) or '{}'} is not supported")


def _key_value(kind: str, reference: Obj, lookup: Lookup) -> str | None:
    name, key, optional = reference["name"], reference["key"], reference.get("optional", False)
    found = lookup(kind, name)
    if found is None:
        if optional:
            return None
        raise ConfigProblem(f'{kind.lower()} "{name}" not found')
    raw = data_of(found).get(key)
    if raw is None:
        if optional:
            return None
        raise ConfigProblem(f"couldn't find key {key} in {kind} {name}")
    return raw.decode(errors="replace")


def data_of(obj: Obj) -> dict[str, bytes]:
    """The data of a ConfigMap or a Secret as bytes."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    plain = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def field_value(pod: Obj, path: str, facts: Mapping[str, str]) -> str:
    """The downward API's fieldRef."""
    if match := _SUBSCRIPT.match(path):
        chosen = labels_of(pod) if match.group(1) == "labels" else annotations_of(pod)
        return chosen.get(match.group(2), "")
    metadata, spec = metadata_of(pod), spec_of(pod)
    simple: dict[str, Any] = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
    }
    if path in simple:
        return str(simple[path] or "")
    if path in ("metadata.labels", "metadata.annotations"):
        chosen = labels_of(pod) if path.endswith("labels") else annotations_of(pod)
        # One line each, whatever is in it: a value's own line breaks and quotes are escaped.
        return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(chosen.items()))
    if path in facts:
        return facts[path]
    raise ConfigProblem(f"fieldPath {path} is not supported")


def resource_value(pod: Obj, container: Obj, reference: Obj) -> str:
    """resourceFieldRef: limits default to what the machine has, as in a pod without limits."""
    named = reference.get("containerName")
    if named:
        containers = (spec_of(pod).get("containers") or []) + (spec_of(pod).get("initContainers") or [])
        container = next((c for c in containers if c["name"] == named), container)
    kind, _, resource = str(reference["resource"]).partition(".")
    resources = container.get("resources") or {}
    quantity = (resources.get(kind) or {}).get(resource)
    if quantity is None and kind == "limits":
        quantity = quantities.machine_capacity().get(resource)
    divisor = quantities.parse(str(reference.get("divisor") or "1")) or quantities.parse("1")
    return str(quantities.divide_up(quantities.parse(str(quantity or "0")), divisor))
