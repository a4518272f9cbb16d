"""Objects as table rows, the form in which `kubectl get` asks for them.

Each kind has its columns and a function for its cells, in the same order. Custom kinds print what their CRD says.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.cells import BUILTIN_CELLS
from regional.kube.schema.columns import COLUMNS
from regional.kube.schema.durations import age
from regional.kube.schema.jsonpath import first_match
from regional.kube.schema.registry import Kind

_NAME = "Name must be unique within a namespace."
_CREATED = "CreationTimestamp is a timestamp representing the server time when this object was created."
_KINDS_BY_TYPE: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def columns(kind: Kind) -> list[Obj]:
    """The column definitions of a Table of this kind."""
    if kind.custom is not None:
        return [_column("Name"), *(_custom_column(column) for column in _printer_columns(kind))]
    listed = COLUMNS.get((kind.group, kind.kind)) or ("Name", "Created At")
    return [_column(name) for name in listed]


def cells(kind: Kind, obj: Obj, now: datetime) -> list[Any]:
    """One row's cells, one per column."""
    metadata = obj.get("metadata") or {}
    if kind.custom is not None:
        return [metadata.get("name"), *(_custom_cell(column, obj, now) for column in _printer_columns(kind))]
    fill = BUILTIN_CELLS.get((kind.group, kind.kind))
    if fill is None:
        return [metadata.get("name"), metadata.get("creationTimestamp")]
    return fill(obj, now)


def table(
    kind: Kind,
    items: Iterable[Obj],
    now: datetime,
    *,
    list_meta: Obj | None = None,
    include: str = "Metadata",
    with_columns: bool = True,
    version: str = "v1",
) -> Obj:
    """A whole Table; `include` is the includeObject parameter (None, Metadata, Object)."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": list_meta or {},
        "columnDefinitions": columns(kind) if with_columns else None,
        "rows": [{"cells": cells(kind, obj, now), "object": _row_object(obj, include, version)} for obj in items],
    }


def _row_object(obj: Obj, include: str, version: str) -> Obj | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj.get("metadata") or {},
    }


def _column(name: str) -> Obj:
    """`*` marks the wide columns, `#` the whole numbers, `?` what is true or false, `~` a name in no format."""
    priority = 1 if "*" in name else 0
    kind = "integer" if "#" in name else "boolean" if "?" in name else "string"
    title = name.rstrip("*#?~")
    described = {"Name": _NAME, "Age": _CREATED, "Created At": _CREATED}.get(title, title)
    return {
        "name": title,
        "type": "date" if title == "Created At" else kind,
        "format": "name" if title == "Name" and "~" not in name else "",
        "description": described,
        "priority": priority,
    }


def _printer_columns(kind: Kind) -> list[Obj]:
    declared = (kind.custom or {}).get("additionalPrinterColumns")
    return declared or [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]


def _custom_column(column: Obj) -> Obj:
    described = column.get("description") or (
        _CREATED
        if column.get("jsonPath") == ".metadata.creationTimestamp"
        else f"Custom resource definition column (in JSONPath format): {column.get('jsonPath')}"
    )
    return {
        "name": column.get("name") or "",
        "type": column.get("type") or "string",
        "format": column.get("format") or "",
        "description": described,
        "priority": column.get("priority") or 0,
    }


def _custom_cell(column: Obj, obj: Obj, now: datetime) -> Any:
    value = first_match(obj, column.get("jsonPath") or "")
    wanted = column.get("type") or "string"
    if value is None:
        return None
    if wanted == "date":
        return age(value, now) if isinstance(value, str) else None
    if wanted == "string" and isinstance(value, (int, float, bool)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    types = _KINDS_BY_TYPE.get(wanted)
    if types is None or not isinstance(value, types) or (isinstance(value, bool) and wanted != "boolean"):
        return None
    return value
