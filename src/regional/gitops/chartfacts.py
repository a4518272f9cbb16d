"""What a chart's own files say about it before Helm is run: which values it reads, which of its files are constant.

Only certainties are told. A chart that hands its values on as a whole, evaluates text from them (`tpl`) or has charts
inside is taken to read everything.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from regional.gitops.goyaml import YamlError, load_yaml

_VALUES = re.compile(rb"\.Values\b(?:\.([A-Za-z_]\w*))?(?:\.([A-Za-z_]\w*))?")
_TPL = re.compile(rb"\btpl\b")
_NOTES = "templates/NOTES.txt"
_ACTION = re.compile(rb"\{\{.*?\}\}", re.DOTALL)
_NO_WORD = re.compile(rb"\"[^\"]*\"|[.$][\w.]*")
_HARMLESS = {b"if", b"else", b"end", b"and", b"or", b"not", b"eq", b"ne", b"default", b"quote"}
"""They say something of every text: what the text is does not decide whether they fail."""
_PLAIN_TEXT = {"type", "description", "title", "default"}
_TRANSPARENT = _PLAIN_TEXT | {
    "properties",
    "required",
    "$schema",
    "$id",
    "$comment",
    "examples",
    "definitions",
    "$defs",
}
"""What a schema may say of a map without making one property's validity depend on another's."""


class ChartFacts(msgspec.Struct, frozen=True):
    name: str
    asks_capabilities: bool
    """Templates look at `.Capabilities.APIVersions`."""
    reads: dict[str, frozenset[str] | None] | None
    """Top-level value -> the keys of it that templates name; None for all."""
    noted: dict[str, frozenset[str] | None]
    """The same of the notes: what they say is no part of a rendering, that they can be said is."""
    schema: dict[str, Any]
    constant: tuple[str, ...]
    """Files that come out as they are."""
    plain: bool
    """No charts inside, no ignored files, no demands on the cluster's version: it renders alike wherever it stands."""

    def read(self, values: dict[str, Any]) -> dict[str, Any]:
        """The part of the values that the rendering depends on, the refusals of the schema included."""
        if self.reads is None:
            return values
        kept = {}
        for key, value in values.items():
            names = self.reads.get(key, frozenset())
            rules = _below(self.schema, key)
            noted = self.noted.get(key, frozenset())
            if names is None or not isinstance(value, dict):
                if names or names is None or not _any_text(rules, value):
                    kept[key] = value
                elif key in self.noted:
                    kept[key] = _shape(value)
                continue
            kept[key] = {
                inner: held if inner in names or not _any_text(_below(rules, inner), held) else _shape(held)
                for inner, held in value.items()
                if inner in names or noted is None or inner in noted or not _any_text(_below(rules, inner), held)
            }
        return kept


def _shape(value: Any) -> Any:
    """What decides whether `{{ .a.b }}` can be said, without the words themselves."""
    if isinstance(value, dict):
        return {key: _shape(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_shape(held) for held in value]
    return "" if isinstance(value, str) else value


def _below(rules: Any, key: str) -> Any:
    """The schema of a property: {} for one that may be anything, False where this cannot be told."""
    if rules == {}:
        return {}
    if not isinstance(rules, dict) or not set(rules) <= _TRANSPARENT:
        return False
    return (rules.get("properties") or {}).get(key, {})


def _any_text(rules: Any, value: Any) -> bool:
    """Whether the schema takes every value of this kind, so that which one it is does not matter."""
    if rules == {}:
        return True
    known = isinstance(rules, dict) and set(rules) <= _PLAIN_TEXT
    return known and rules.get("type") == "string" and isinstance(value, str)


@lru_cache(maxsize=256)
def chart_facts(directory: Path) -> ChartFacts:
    """`directory` is an exported tree, named by its content: what is read once stays true."""
    templates = sorted(file for file in directory.glob("templates/**/*") if file.is_file())
    contents = {file.relative_to(directory).as_posix(): file.read_bytes() for file in templates}
    about = _loaded(directory / "Chart.yaml") or {}
    kind = about.get("type", "application")
    demanding = about.get("kubeVersion") or (directory / ".helmignore").exists()
    nested = (directory / "charts").is_dir() or bool(about.get("dependencies"))
    text = b"\n".join(contents.values())
    notes = contents.get(_NOTES, b"")
    others = b"\n".join(held for name, held in contents.items() if name != _NOTES)
    noted = _reads(notes) if _harmless(notes) and b"NOTES" not in others else None
    read = text if noted is None else others
    constant = tuple(
        name
        for name, content in contents.items()
        if b"{{" not in content
        and name.endswith((".yaml", ".yml"))
        and name[: len("templates/_")] != "templates/_"
        and name.count("/") == 1
    )
    return ChartFacts(
        name=str(about.get("name", directory.name)),
        asks_capabilities=b"APIVersions" in text,
        reads=None if nested or _TPL.search(text) else _reads(read),
        noted=noted or {},
        schema=_loaded(directory / "values.schema.json") or {},
        constant=constant,
        plain=not nested and not demanding and kind == "application",
    )


def _harmless(notes: bytes) -> bool:
    words = (re.findall(rb"[A-Za-z]\w*", _NO_WORD.sub(b"", action)) for action in _ACTION.findall(notes))
    return all(set(found) <= _HARMLESS for found in words)


def _reads(text: bytes) -> dict[str, frozenset[str] | None] | None:
    found: dict[str, set[str] | None] = {}
    for first, second in _VALUES.findall(text):
        if not first:
            return None
        key, inner = first.decode(), second.decode()
        known = found.setdefault(key, set())
        if not inner or known is None:
            found[key] = None
        else:
            known.add(inner)
    return {key: None if names is None else frozenset(names) for key, names in found.items()}


def _loaded(file: Path) -> Any:
    try:
        return load_yaml(file.read_bytes())
    except (OSError, YamlError):
        return None
