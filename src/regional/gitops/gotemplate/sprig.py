"""The sprig functions that ApplicationSets use, and the five that Argo CD adds. Argument order is sprig's: the piped
value comes last."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import Any

import yaml

from regional.gitops.gotemplate.values import StringMap, TemplateError, quote, text, truth
from regional.gitops.goyaml import load_yaml

NAME_LIMIT = 253  # a DNS subdomain


def normalize(value: str) -> str:
    """A DNS name out of anything: one `-` for each rune that may not be in one."""
    return re.sub(r"[^-a-z0-9.]", "-", value.lower())[:NAME_LIMIT].strip("-.")


def slugify(*arguments: Any) -> str:
    """`slugify [limit [smart]] text`: lower-case words joined by `-`, cut at `limit` (at a word if smart)."""
    limit, smart = 50, True
    if not arguments or not isinstance(arguments[-1], str):
        raise TemplateError("wrong type for value; expected string")
    if len(arguments) > 1:
        limit = int(arguments[0])
    if len(arguments) > 2:
        smart = bool(arguments[1])
    slug = re.sub(r"[^a-z0-9_-]+", "-", arguments[-1].strip().lower())
    slug = re.sub(r"-+", "-", slug).strip("-_")
    if len(slug) <= limit:
        return slug
    cut = slug[:limit]
    if smart and slug[limit] != "-" and "-" in cut:
        cut = cut[: cut.rindex("-")]
    return cut.strip("-_")


def _text(value: Any) -> str:
    return "" if value is None else text(value, top=False)


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list | tuple):
        return [] if value is None else [_text(value)]
    return [_text(item) for item in value if item is not None]


def _number(value: Any) -> int:
    try:
        return int(value) if not isinstance(value, str) else int(value, 10)
    except (TypeError, ValueError):
        return 0


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TemplateError("expected a list")
    return list(value)


def _trunc(length: int, value: str) -> str:
    if length < 0:
        return value[length:] if len(value) + length > 0 else value
    return value[:length]


def _dig(*arguments: Any) -> Any:
    if len(arguments) < 3:
        raise TemplateError("dig needs at least three arguments")
    *path, fallback, value = arguments
    for key in path:
        if not isinstance(value, dict) or isinstance(value, StringMap):
            raise TemplateError("interface conversion: interface {} is not map[string]interface {}")
        if key not in value:
            return fallback
        value = value[key]
    return value


def _dict(*pairs: Any) -> dict[str, Any]:
    return {_text(key): value for key, value in zip(pairs[::2], [*pairs[1::2], ""], strict=False)}


def _set(target: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    target[key] = value
    return target


def _merge(target: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    for other in others:
        for key, value in other.items():
            present = target.get(key)
            if isinstance(present, dict) and isinstance(value, dict):
                _merge(present, value)
            elif not truth(present):
                target[key] = value
    return target


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=False, sort_keys=True, allow_unicode=True).removesuffix("\n")


def _from_yaml(value: str) -> dict[str, Any]:
    loaded = load_yaml(value)
    if loaded is not None and not isinstance(loaded, dict):
        raise TemplateError("error unmarshaling JSON: cannot unmarshal into map[string]interface {}")
    return loaded or {}


def _from_yaml_array(value: str) -> list[Any]:
    loaded = load_yaml(value)
    if loaded is not None and not isinstance(loaded, list):
        raise TemplateError("error unmarshaling JSON: cannot unmarshal into []interface {}")
    return loaded or []


def _fail(message: str) -> str:
    raise TemplateError(message)


def _go_regex(pattern: str) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: rf"\g<{match[1]}>", pattern)


TABLE: list[tuple[str, str, Callable[..., Any]]] = [
    # strings
    ("replace", "sss", lambda old, new, value: value.replace(old, new)),
    ("lower", "s", str.lower),
    ("upper", "s", str.upper),
    ("title", "s", lambda value: re.sub(r"(^|\s)(\S)", lambda match: match[1] + match[2].upper(), value)),
    ("trim", "s", str.strip),
    ("trimAll", "ss", lambda cutset, value: value.strip(cutset)),
    ("trimSuffix", "ss", lambda suffix, value: value.removesuffix(suffix)),
    ("trimPrefix", "ss", lambda prefix, value: value.removeprefix(prefix)),
    ("contains", "ss", lambda part, value: part in value),
    ("hasPrefix", "ss", lambda prefix, value: value.startswith(prefix)),
    ("hasSuffix", "ss", lambda suffix, value: value.endswith(suffix)),
    ("repeat", "is", lambda count, value: value * count),
    ("trunc", "is", _trunc),
    ("substr", "iis", lambda start, end, value: value[max(start, 0) : end if end >= 0 else None]),
    ("nospace", "s", lambda value: re.sub(r"\s", "", value)),
    ("indent", "is", lambda count, value: " " * count + value.replace("\n", "\n" + " " * count)),
    ("nindent", "is", lambda count, value: "\n" + " " * count + value.replace("\n", "\n" + " " * count)),
    ("cat", "a*", lambda *values: " ".join(_text(value) for value in values if value is not None)),
    ("quote", "a*", lambda *values: " ".join(quote(_text(value)) for value in values if value is not None)),
    ("squote", "a*", lambda *values: " ".join(f"'{_text(value)}'" for value in values if value is not None)),
    ("toString", "a", _text),
    ("splitList", "ss", lambda separator, value: value.split(separator) if separator else list(value)),
    (
        "split",
        "ss",
        lambda separator, value: StringMap({f"_{n}": part for n, part in enumerate(value.split(separator))}),
    ),
    ("join", "sa", lambda separator, values: separator.join(_strings(values))),
    ("regexMatch", "ss", lambda pattern, value: re.search(pattern, value) is not None),
    ("regexReplaceAll", "sss", lambda pattern, value, new: re.sub(pattern, _go_regex(new), value)),
    ("b64enc", "s", lambda value: base64.b64encode(value.encode()).decode()),
    ("b64dec", "s", lambda value: base64.b64decode(value).decode()),
    ("sha256sum", "s", lambda value: hashlib.sha256(value.encode()).hexdigest()),
    # choices
    ("default", "aa*", lambda fallback, *value: value[0] if value and truth(value[0]) else fallback),
    ("coalesce", "a*", lambda *values: next((value for value in values if truth(value)), None)),
    ("ternary", "aab", lambda yes, no, test: yes if test else no),
    ("empty", "a", lambda value: not truth(value)),
    ("fail", "s", _fail),
    # numbers
    ("int", "a", _number),
    ("int64", "a", _number),
    ("add", "a*", lambda *values: sum(map(_number, values))),
    ("add1", "a", lambda value: _number(value) + 1),
    ("sub", "aa", lambda first, second: _number(first) - _number(second)),
    ("mul", "aa*", lambda first, *rest: math.prod([_number(first), *map(_number, rest)])),
    ("max", "aa*", lambda *values: max(map(_number, values))),
    ("min", "aa*", lambda *values: min(map(_number, values))),
    # lists and maps
    ("list", "a*", lambda *values: list(values)),
    ("first", "a", lambda values: next(iter(_items(values)), None)),
    ("last", "a", lambda values: next(reversed(_items(values)), None)),
    ("rest", "a", lambda values: _items(values)[1:]),
    ("initial", "a", lambda values: _items(values)[:-1]),
    ("reverse", "a", lambda values: _items(values)[::-1]),
    ("uniq", "a", lambda values: [v for n, v in enumerate(_items(values)) if v not in values[:n]]),
    ("compact", "a", lambda values: [value for value in _items(values) if truth(value)]),
    ("has", "aa", lambda needle, values: needle in _items(values or [])),
    ("append", "aa", lambda values, value: [*_items(values), value]),
    ("sortAlpha", "a", lambda values: sorted(_strings(values))),
    ("dict", "a*", _dict),
    ("get", "ms", lambda source, key: source.get(key, "")),
    ("set", "msa", _set),
    ("hasKey", "ms", lambda source, key: key in source),
    ("keys", "m*", lambda *sources: [key for source in sources for key in sorted(source)]),
    ("pick", "ms*", lambda source, *keys: {key: source[key] for key in keys if key in source}),
    ("omit", "ms*", lambda source, *keys: {key: value for key, value in source.items() if key not in keys}),
    ("merge", "mm*", _merge),
    ("dig", "a*", _dig),
    # documents
    ("toJson", "a", lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True)),
    ("fromJson", "s", json.loads),
    ("toYaml", "a", _yaml),
    ("fromYaml", "s", _from_yaml),
    ("fromYamlArray", "s", _from_yaml_array),
    ("normalize", "s", normalize),
    ("slugify", "a*", slugify),
]
