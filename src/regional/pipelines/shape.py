"""Says everything that is wrong with the shape of a document at once, each with its place in the file.

msgspec alone stops at the first wrong field; a person who edits a pipeline wants the whole list.
"""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec


def problems_of(value: Any, kind: Any, path: str = "") -> list[str]:
    """Empty if `msgspec.convert(value, kind)` will work."""
    origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _of_struct(value, kind, path)
    if origin is list:
        if not isinstance(value, list):
            return [f"{path}: a list is expected"]
        item = get_args(kind)[0]
        return [problem for index, one in enumerate(value) for problem in problems_of(one, item, f"{path}[{index}]")]
    if origin in (Union, types.UnionType):
        return _of_union(value, get_args(kind), path)
    if origin is Literal and value not in get_args(kind):
        return [f"{path}: {value!r} is not supported, only {', '.join(map(repr, get_args(kind)))}"]
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return [f"{path}: {str(error)[0].lower()}{str(error)[1:]}"]
    return []


def _of_union(value: Any, kinds: tuple[Any, ...], path: str) -> list[str]:
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    if structs and isinstance(value, dict):
        return problems_of(value, structs[0], path)
    try:
        msgspec.convert(value, Union[kinds])  # noqa: UP007 - made at run time
    except msgspec.ValidationError as error:
        return [f"{path}: {str(error)[0].lower()}{str(error)[1:]}"]
    return []


def _of_struct(value: Any, kind: type[msgspec.Struct], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path or 'document'}: an object is expected"]
    hints = get_type_hints(kind)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    prefix = f"{path}." if path else ""
    found = [f"{prefix}{name}: this field is not supported here" for name in value if name not in fields]
    found += [f"{prefix}{name}: is required" for name, field in fields.items() if field.required and name not in value]
    for name, field in fields.items():
        if name in value:
            found += problems_of(value[name], hints[field.name], prefix + name)
    return found
