"""What may be sent to the API and what comes back, as JSON Schema with names; `schema` enforces it, `openapi` shows it.

Specs are strict: a misspelt field would otherwise be a cluster that is not what its owner wrote.
"""

from __future__ import annotations

from regional.platform_api.schema import Schema

_DNS_WORDS = "lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
_DNS = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def text(longest: int, shortest: int = 0, **more: object) -> Schema:
    return {"type": "string", "minLength": shortest, "maxLength": longest, **more}


def record(properties: dict[str, Schema], required: tuple[str, ...] = (), *, strict: bool = True) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if strict:
        schema["additionalProperties"] = False
    return schema


def texts(entries: int, longest: int) -> Schema:
    return {"type": "object", "maxProperties": entries, "additionalProperties": text(longest)}


def many(item: Schema, most: int, fewest: int = 0) -> Schema:
    return {"type": "array", "minItems": fewest, "maxItems": most, "items": item}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


# The control plane's namespace, with the cluster's id in it, may have 63 characters: hence 18.
CLUSTER_NAME = text(18, 3, pattern=_DNS, **{"x-words": _DNS_WORDS})
NODE_POOL_NAME = text(15, 3, pattern=_DNS, **{"x-words": _DNS_WORDS})
CONSUMER_NAME = text(63, 1, pattern=_DNS, **{"x-words": _DNS_WORDS})
ACCOUNT_ID: Schema = {"type": "string", "pattern": "^[0-9]{12}$", "x-words": "an account id: 12 digits"}
LABELS: Schema = {
    "type": "object",
    "maxProperties": 50,
    "propertyNames": {
        "type": "string",
        "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "maxLength": 253,
        "x-words": "a label's key, such as team or example.com/team",
    },
    "additionalProperties": text(
        63,
        0,
        pattern="^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$",
        **{"x-words": "a label's value: letters, digits, '.', '_' and '-'"},
    ),
}

_RELEASE = record(
    {
        "image": text(253, 1),
        "version": text(64, 1, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$", **{"x-words": "like 4.20.1"}),
    }
)
_NETWORKS = many(record({"cidr": text(43, format="cidr"), "hostPrefix": whole(1, 128)}, ("cidr",)), 2, 1)
_PLATFORM = record({"type": {"type": "string", "enum": ["AWS", "None"]}, "aws": {"type": "object"}})

CLUSTER_SPEC = record(
    {
        "displayName": text(256),
        "deleteProtection": {"type": "boolean"},
        "release": _RELEASE,
        "channel": text(100, 1),
        "platform": _PLATFORM,
        "networking": record(
            {
                "networkType": {"type": "string", "enum": ["OVNKubernetes", "Calico", "Other"]},
                "clusterNetwork": _NETWORKS,
                "serviceNetwork": _NETWORKS,
                "machineNetwork": _NETWORKS,
            }
        ),
        "controllerAvailabilityPolicy": {"type": "string", "enum": ["HighlyAvailable", "SingleReplica"]},
        "properties": texts(50, 256),
        "tags": texts(50, 256),
    }
)
NODE_POOL_SPEC = record(
    {
        "replicas": whole(0, 500),
        "autoScaling": record({"min": whole(1, 500), "max": whole(1, 500)}, ("min", "max")),
        "release": _RELEASE,
        "platform": _PLATFORM,
        "nodeLabels": LABELS,
        "taints": many(
            record(
                {
                    "key": text(253, 1),
                    "value": text(63),
                    "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                },
                ("key", "effect"),
            ),
            50,
        ),
        "tags": texts(50, 256),
    }
)

CREATE_CLUSTER = record({"name": CLUSTER_NAME, "spec": CLUSTER_SPEC, "labels": LABELS}, ("name",))
CREATE_NODE_POOL = record(
    {"cluster_id": text(36, 1), "name": NODE_POOL_NAME, "spec": NODE_POOL_SPEC, "labels": LABELS},
    ("cluster_id", "name"),
)
# The spec is merged first (RFC 7396) and checked then: null takes a field away.
PATCH = record({"spec": {"type": "object"}}, ("spec",))
CREATE_ACCOUNT = record({"accountId": ACCOUNT_ID, "privileged": {"type": "boolean"}}, ("accountId",))
CREATE_MANAGEMENT_CLUSTER = record(
    {
        "id": CONSUMER_NAME,
        "name": CONSUMER_NAME,
        "labels": LABELS,
        "region": text(63, 1),
        "accountId": ACCOUNT_ID,
        "capacity": whole(0, 10_000),
    }
)
CREATE_WORK = record({"cluster_id": text(63), "data": {"type": "object"}}, ("cluster_id", "data"), strict=False)

# -- answers ------------------------------------------------------------------------------------------------------

ERROR = record(
    {
        "kind": {"type": "string", "enum": ["Error"]},
        "code": {"type": "string"},
        "reason": {"type": "string"},
        "errors": many(record({"field": {"type": "string"}, "message": {"type": "string"}}, ("field", "message")), 50),
    },
    ("kind", "code", "reason"),
)
_ANY: Schema = {"type": "object"}
_STRING: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_NUMBER: Schema = {"type": "integer"}
_CONDITION = record(
    {
        "type": _STRING,
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "lastTransitionTime": _TIME,
        "reason": _STRING,
        "message": _STRING,
    },
    ("type", "status"),
)
_STEP = record({"step": _STRING, "time": _TIME}, ("step", "time"))
PHASES = ("WaitingForPlacement", "Provisioning", "Ready", "Deleting")
STATUS = record(
    {
        "observedGeneration": _NUMBER,
        "phase": {"type": "string", "enum": list(PHASES)},
        "message": _STRING,
        "conditions": many(_CONDITION, 100),
        "controlPlaneEndpoint": record({"host": _STRING, "port": _NUMBER}),
        "version": _STRING,
        "replicas": _NUMBER,
        "placementRef": record({"name": _STRING, "managementCluster": _STRING}),
        "timeline": many(_STEP, 20),
        "lastUpdateTime": _TIME,
    },
    ("observedGeneration", "phase", "conditions"),
)
_COMMON = {
    "id": _STRING,
    "kind": _STRING,
    "href": _STRING,
    "name": _STRING,
    "target_project_id": _STRING,
    "created_by": _STRING,
    "generation": _NUMBER,
    "resource_version": _STRING,
    "labels": _ANY,
    "spec": _ANY,
    "status": STATUS,
    "created_at": _TIME,
    "updated_at": _TIME,
    "deleted_at": _TIME,
}
_ALWAYS = ("id", "kind", "name", "target_project_id", "generation", "spec", "status", "created_at", "updated_at")
CLUSTER = record(_COMMON, _ALWAYS)
NODE_POOL = record({**_COMMON, "cluster_id": _STRING}, (*_ALWAYS, "cluster_id"))
ACCOUNT = record(
    {"kind": _STRING, "accountId": _STRING, "privileged": {"type": "boolean"}, "created_at": _TIME},
    ("kind", "accountId", "privileged"),
)
CONSUMER = record(
    {
        "id": _STRING,
        "kind": _STRING,
        "href": _STRING,
        "name": _STRING,
        "labels": _ANY,
        "created_at": _TIME,
        "updated_at": _TIME,
        "region": _STRING,
        "accountId": _STRING,
        "capacity": _NUMBER,
        "accepting": {"type": "boolean"},
        "agent_certificate": _STRING,
    },
    ("id", "kind", "href", "name"),
    strict=False,
)


def listing(kind: str, item: Schema, *counters: str) -> Schema:
    properties: dict[str, Schema] = dict.fromkeys(counters, _NUMBER)
    properties["kind"] = {"type": "string", "enum": [kind]}
    properties["items"] = {"type": "array", "items": item}
    return record(properties, ("kind", "items", *counters))
