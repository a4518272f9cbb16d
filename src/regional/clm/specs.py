"""What the spec of each kind may say, in JSON Schema, and what no schema can say of it.

The schemas are part of the served OpenAPI document. Fields that are not listed are kept as they are: a newer client
may know more than this server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from regional.core.schema import Fault, Schema, check

# A spec travels inside YAML, which has neither control characters nor keys of more than 1024 characters, counted with
# their quotes and escapes: a spec with such could be stored and never be rendered. Tabs and ends of lines are fine.
KEY_LENGTH = 500
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_SHOWN_FAULTS = 20
SPEC_BYTES = 64 * 1024  # what is wanted must fit into one message to a management cluster, with room to spare

_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
_TAGS: Schema = {
    "type": "object",
    "maxProperties": 50,
    "additionalProperties": {"type": "string", "maxLength": 256},
}
_LABELS: Schema = {"type": "object", "maxProperties": 50, "additionalProperties": {"type": "string", "maxLength": 63}}
_RELEASE: Schema = {
    "type": "object",
    "properties": {
        "image": _TEXT,
        "version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$", "maxLength": 64},
    },
}
_NETWORKS: Schema = {
    "type": "array",
    "minItems": 1,
    "maxItems": 2,
    "items": {
        "type": "object",
        "required": ["cidr"],
        "properties": {
            "cidr": {"type": "string", "format": "cidr", "maxLength": 43},
            "hostPrefix": {"type": "integer", "minimum": 1, "maximum": 128},
        },
    },
}

CLUSTER: Schema = {
    "type": "object",
    "properties": {
        "displayName": {"type": "string", "maxLength": 256},
        "release": _RELEASE,
        "channel": {"type": "string", "minLength": 1, "maxLength": 100},
        "platform": {
            "type": "object",
            "properties": {"type": {"type": "string", "enum": ["AWS", "None"]}, "aws": {"type": "object"}},
        },
        "networking": {
            "type": "object",
            "properties": {
                "networkType": {"type": "string", "enum": ["OVNKubernetes", "Calico", "Other"]},
                "clusterNetwork": _NETWORKS,
                "serviceNetwork": _NETWORKS,
                "machineNetwork": _NETWORKS,
            },
        },
        "controllerAvailabilityPolicy": {"type": "string", "enum": ["HighlyAvailable", "SingleReplica"]},
        "properties": _TAGS,
        "tags": _TAGS,
    },
}
NODE_POOL: Schema = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "maximum": 500},
        "autoScaling": {
            "type": "object",
            "required": ["min", "max"],
            "properties": {
                "min": {"type": "integer", "minimum": 1, "maximum": 500},
                "max": {"type": "integer", "minimum": 1, "maximum": 500},
            },
        },
        "release": _RELEASE,
        "platform": {
            "type": "object",
            "properties": {"type": {"type": "string", "enum": ["AWS", "None"]}, "aws": {"type": "object"}},
        },
        "nodeLabels": _LABELS,
        "taints": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "type": "object",
                "required": ["key", "effect"],
                "properties": {
                    "key": {"type": "string", "minLength": 1, "maxLength": 253},
                    "value": {"type": "string", "maxLength": 63},
                    "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                },
            },
        },
        "tags": _TAGS,
    },
}
MANAGEMENT_CLUSTER: Schema = {
    "type": "object",
    "properties": {
        "capacity": {"type": "integer", "minimum": 0, "maximum": 10000},
        "consumer": {
            "type": "string",
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "minLength": 1,
            "maxLength": 63,
        },
        "accepting": {"type": "boolean"},
        "region": {"type": "string", "maxLength": 63},
        "accountId": {"type": "string", "maxLength": 63},
    },
}
ACCOUNT: Schema = {
    "type": "object",
    "properties": {"privileged": {"type": "boolean"}, "accountId": {"type": "string", "maxLength": 63}},
}


def check_spec(spec: dict[str, Any], schema: Schema) -> list[Fault]:
    size = len(msgspec.json.encode(spec))
    if size > SPEC_BYTES:
        return [Fault("spec", f"spec must have at most {SPEC_BYTES} bytes, it has {size}", None, "max_length")]
    faults = [
        *islice(_check_renderable(spec, "spec"), _SHOWN_FAULTS),
        *check(spec, schema, "spec", null_is_absent=True),
    ]
    if schema is NODE_POOL and spec.get("replicas") is not None and spec.get("autoScaling") is not None:
        faults.append(Fault("spec.replicas", "spec.replicas and spec.autoScaling exclude each other"))
    scaling = spec.get("autoScaling")
    if not faults and schema is NODE_POOL and scaling and scaling["min"] > scaling["max"]:
        faults.append(Fault("spec.autoScaling.min", "spec.autoScaling.min is greater than max", scaling["min"], "max"))
    return faults


def _check_renderable(value: Any, path: str) -> Iterator[Fault]:
    """What no manifest can say, in any text of the value, whether the schema knows it or not."""
    if isinstance(value, str):
        if found := _UNPRINTABLE.search(value):
            yield Fault(path, f"{path} has the unprintable character U+{ord(found[0]):04X}", None, "pattern")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_renderable(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            below = f"{path}.{_UNPRINTABLE.sub('?', name[:100])}"
            if len(name) > KEY_LENGTH:
                yield Fault(below, f"a key of {path} may have at most {KEY_LENGTH} characters", None, "max_length")
            elif found := _UNPRINTABLE.search(name):
                message = f"a key of {path} has the unprintable character U+{ord(found[0]):04X}"
                yield Fault(below, message, None, "pattern")
            yield from _check_renderable(item, below)


def without_nulls(value: Any, schema: Schema) -> Any:
    """Null means absent, as it does in Kubernetes: so it is taken away where the schema knows the field."""
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    known: dict[str, Schema] = schema.get("properties", {})
    return {
        name: without_nulls(item, known.get(name, {}))
        for name, item in value.items()
        if item is not None or name not in known
    }


__all__ = ["ACCOUNT", "CLUSTER", "MANAGEMENT_CLUSTER", "NODE_POOL", "Fault", "check_spec", "without_nulls"]
