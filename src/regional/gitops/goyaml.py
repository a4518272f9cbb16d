"""YAML as Go reads it (yaml.v2 behind sigs.k8s.io/yaml), because manifests are written for Kubernetes' reader.

PyYAML differs where it hurts: `y`/`n` are booleans in Go, `1e3` is a number, dates stay text, `1:30` is no number.
A file whose anchors unfold without end is refused, because what is shared here is copied as soon as it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

NODE_LIMIT = 1_000_000
_BOOLEANS = {
    word: value
    for value, words in ((True, "y yes true on"), (False, "n no false off"))
    for plain in words.split()
    for word in (plain, plain.capitalize(), plain.upper())
}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?$")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")


class YamlError(Exception):
    pass


class _Loader(yaml.CSafeLoader):
    """PyYAML's, with Go's idea of plain scalars."""


_Loader.yaml_implicit_resolvers = {
    first: [
        pair
        for pair in resolvers
        if pair[0] in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
    ]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("(?:" + "|".join(_BOOLEANS) + ")$"), list("yYnNtTfFoO")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _SPECIAL, list("-+."))


def _construct_bool(loader: Any, node: Any) -> bool:
    return _BOOLEANS[node.value]


def _construct_int(loader: Any, node: Any) -> int:
    text = node.value.replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits[:2] in ("0b", "0x", "0o"):
        return sign * int(digits, 0)
    if len(digits) > 1 and digits[0] == "0":
        return sign * int(digits, 8)
    return sign * int(digits)


def _construct_float(loader: Any, node: Any) -> float | int:
    text = node.value.replace("_", "").lower()
    if text.endswith((".inf", ".nan")):
        return float(text.replace(".", ""))
    return float(text)


def _construct_mapping(loader: Any, node: Any) -> dict[str, Any]:
    loader.flatten_mapping(node)
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        mapping[_json_key(key)] = loader.construct_object(value_node, deep=True)
    return mapping


def _json_key(key: Any) -> str:
    """Kubernetes' YAML is JSON in other clothes: keys become text."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise YamlError(f"unsupported map key of type {type(key).__name__}")


_Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def load_yaml_all(text: str | bytes) -> Iterator[Any]:
    loader: Any = _Loader(text)
    try:
        while loader.check_data():
            document = loader.get_data()
            _bounded(document)
            yield document
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    except RecursionError:
        raise YamlError("nested too deeply") from None
    finally:
        loader.dispose()


def _bounded(document: Any) -> None:
    count, rest = 0, [document]
    while rest:
        value = rest.pop()
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        rest.extend(children)
        count += 1
        if count > NODE_LIMIT:
            raise YamlError("document contains excessive aliasing, or more than a million values")


def load_yaml(text: str | bytes) -> Any:
    documents = list(load_yaml_all(text))
    return documents[0] if documents else None


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)
