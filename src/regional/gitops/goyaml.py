"""YAML as Go reads it (yaml.v2 behind sigs.k8s.io/yaml), because manifests are written for Kubernetes' reader.

PyYAML differs where it hurts: `y`/`n` are booleans in Go, `1e3` is a number, dates stay text, `1:30` is no number.
A file whose anchors unfold without end is refused, because what is shared here is copied as soon as it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

NODE_LIMIT = 1_000_000
_TAG = "tag:yaml.org,2002:"
_FLATTENED = (f"{_TAG}merge", f"{_TAG}value")
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


def _bool(text: str) -> bool:
    return _BOOLEANS[text]


def _int(written: str) -> int:
    text = written.replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits[:2] in ("0b", "0x", "0o"):
        return sign * int(digits, 0)
    if len(digits) > 1 and digits[0] == "0":
        return sign * int(digits, 8)
    return sign * int(digits)


def _float(written: str) -> float:
    text = written.replace("_", "").lower()
    if text.endswith((".inf", ".nan")):
        return float(text.replace(".", ""))
    return float(text)


def _json_key(key: Any) -> str:
    """Kubernetes' YAML is JSON in other clothes: keys become text."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise YamlError(f"unsupported map key of type {type(key).__name__}")


_SCALARS: dict[str, Callable[[str], Any]] = {
    f"{_TAG}str": lambda text: text,
    f"{_TAG}null": lambda text: None,
    f"{_TAG}bool": _bool,
    f"{_TAG}int": _int,
    f"{_TAG}float": _float,
}


class _Builder:
    """Values of one document's nodes. PyYAML's own way is three times as slow, and manifests are read all the time."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._built: dict[int, Any] = {}

    def value(self, node: Any) -> Any:
        if isinstance(node, yaml.ScalarNode):
            read = _SCALARS.get(node.tag)
            return read(node.value) if read else self._loader.construct_object(node, deep=True)
        # What an alias names again is the same value: an unfolded copy of each could be without end.
        known = self._built.get(id(node))
        if known is not None:
            return known
        if node.tag == f"{_TAG}map" and isinstance(node, yaml.MappingNode):
            found: Any = self._mapping(node)
        elif node.tag == f"{_TAG}seq" and isinstance(node, yaml.SequenceNode):
            found = [self.value(child) for child in node.value]
        else:
            found = self._loader.construct_object(node, deep=True)
        self._built[id(node)] = found
        return found

    def _mapping(self, node: Any) -> dict[str, Any]:
        if any(key.tag in _FLATTENED for key, _ in node.value):
            self._loader.flatten_mapping(node)
        return {
            key.value if key.tag == f"{_TAG}str" else _json_key(self.value(key)): self.value(value)
            for key, value in node.value
        }


def load_yaml_all(text: str | bytes) -> Iterator[Any]:
    loader: Any = _Loader(text)
    try:
        while loader.check_node():
            document = _Builder(loader).value(loader.get_node())
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
