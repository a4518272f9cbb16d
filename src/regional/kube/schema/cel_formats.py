"""`format.dns1123Label().validate(text)` in CEL: the formats by name, and what they have against a text.

Functions of ours cannot give the engine an optional value, so they give a list (or a name) that may be empty, and
`cel_text.adapted` puts each call into one that makes an optional of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cel_expr_python import cel

from regional.kube.schema import names
from regional.kube.schema.cel_declaring import STRINGS, function, method
from regional.kube.schema.formats import matches_format

_T = cel.Type


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A generated name's beginning may end in a dash."""
    return lambda text: check(f"{text[:-1]}a" if text.endswith("-") else text)


def _known(name: str, otherwise: str) -> Callable[[str], list[str]]:
    return lambda text: [] if matches_format(text, name) else [otherwise]


def _uri(text: str) -> list[str]:
    return [] if matches_format(text, "uri") else [f'parse "{text}": invalid URI for request']


_FORMATS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": names.dns_label,
    "dns1123Subdomain": names.dns_subdomain,
    "dns1035Label": names.dns_1035_label,
    "qualifiedName": names.qualified_name,
    "dns1123LabelPrefix": _prefix(names.dns_label),
    "dns1123SubdomainPrefix": _prefix(names.dns_subdomain),
    "dns1035LabelPrefix": _prefix(names.dns_1035_label),
    "labelValue": names.label_value,
    "uri": _uri,
    "uuid": _known("uuid", "does not match the UUID format"),
    "byte": _known("byte", "invalid base64"),
    "date": _known("date", "invalid date"),
    "datetime": _known("datetime", "invalid datetime"),
}


def _named(name: str) -> Callable[[], str]:
    return lambda: name


def _validate(name: str, text: str) -> list[str]:
    if name not in _FORMATS:
        raise ValueError("no such overload")
    return _FORMATS[name](text)


def declarations() -> list[Any]:
    text = _T.STRING
    return [
        *(function(f"format.{name}", text, [], _named(name)) for name in _FORMATS),
        function("format.named", text, [text], lambda name: name if name in _FORMATS else ""),
        method("validate", STRINGS, [text, text], _validate),
    ]
