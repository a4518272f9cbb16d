"""Custom resources and their structural schemas: what is kept, what is filled in, what is refused.

`prune` also serves the built-in kinds, whose unknown fields vanish in the same way.
"""

from __future__ import annotations

from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.cel import check_rules
from regional.kube.schema.errors import FieldError
from regional.kube.schema.openapi_validation import NOTHING, SchemaValidator, blocks_rules, shown
from regional.kube.schema.strict import type_error
from regional.kube.schema.typed import clone
from regional.kube.schema.types import ANY, LIST, MAP, SCALAR, UNTYPED, Schema, Type

__all__ = ["default", "prune", "type_error", "validate"]

_SKIPPED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


# --- pruning -------------------------------------------------------------------------------------------------------


def prune(obj: Obj, schema: Schema) -> list[str]:
    """Remove undeclared fields in place and return their paths, e.g. `spec.junk`, `spec.containers[0].junk`."""
    unknown: list[str] = []
    _prune(obj, schema.root, "", unknown, drop_nulls=schema.structural is None)
    return unknown


def _prune(value: Any, node: Type, path: str, unknown: list[str], *, drop_nulls: bool) -> None:
    if node.shape in (ANY, SCALAR) or value is None:
        return
    if node.shape == LIST:
        if isinstance(value, list) and node.element is not None and node.element.shape not in (ANY, SCALAR):
            for index, item in enumerate(value):
                _prune(item, node.element, f"{path}[{index}]", unknown, drop_nulls=drop_nulls)
        return
    if not isinstance(value, dict):
        return
    gone: list[str] = []
    fields, element = node.fields, node.element
    for name, item in value.items():
        child = fields.get(name, element)
        if child is None:
            gone.append(name)
            unknown.append(f"{path}.{name}" if path else name)
        elif isinstance(item, (dict, list)):
            if item:
                _prune(item, child, f"{path}.{name}" if path else name, unknown, drop_nulls=drop_nulls)
            elif drop_nulls and _omitted(node, name, child):
                gone.append(name)
        elif item is None and drop_nulls and child.shape != ANY:
            # A typed decoder reads null as "not set"; in a map of strings that is the empty string.
            if name in node.fields or child.scalar != "string":
                gone.append(name)
            else:
                value[name] = ""
    for name in gone:
        del value[name]


def _omitted(node: Type, name: str, child: Type) -> bool:
    """Whether a built-in kind's field is left out when empty: lists and maps of any keys are, structs are not."""
    if name not in node.fields or name in node.zero:
        return False
    return child.shape == LIST or (child.shape == MAP and not child.fields and child.element is not UNTYPED)


# --- defaulting ----------------------------------------------------------------------------------------------------


def default(obj: Obj, schema: Schema) -> None:
    """Fill in the defaults of a custom resource, in place; a null where none is allowed becomes the default or goes."""
    if schema.structural is not None:
        _default(obj, schema.structural, root=True)


def _default(value: Any, node: Obj, *, root: bool = False) -> None:
    if isinstance(value, list):
        items = node.get("items")
        if isinstance(items, dict):
            for item in value:
                if isinstance(item, (dict, list)):
                    _default(item, items)
        return
    if not isinstance(value, dict):
        return
    properties: dict[str, Obj] = node.get("properties") or {}
    for name, child in properties.items():
        if root and name in ("metadata", "apiVersion", "kind"):
            continue
        if name in value and value[name] is None and not child.get("nullable"):
            del value[name]
        if name not in value and "default" in child:
            value[name] = clone(child["default"])
        item = value.get(name)
        if isinstance(item, (dict, list)):
            _default(item, child)
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        for name, item in list(value.items()):
            if name not in properties:
                if item is None and not extra.get("nullable") and "default" in extra:
                    value[name] = item = clone(extra["default"])
                if isinstance(item, (dict, list)):
                    _default(item, extra)


# --- validation ----------------------------------------------------------------------------------------------------


def validate(obj: Obj, old: Obj | None, schema: Schema) -> list[FieldError]:
    """Everything the CRD's schema and its rules have against a custom resource.

    With an old object, values that were already there and did not change are not held against it (ratcheting).
    """
    if schema.structural is None:
        return []
    before: Any = NOTHING if old is None else old
    errors = SchemaValidator(root=True).validate(obj, before, schema.structural, "")
    errors.extend(_duplicates(obj, before, schema.root, ""))
    if any(blocks_rules(error) for error in errors):
        if _has_rules(schema.structural):
            errors.append(_SKIPPED)
        return errors
    errors.extend(check_rules(obj, old, schema))
    return errors


def _has_rules(node: Any) -> bool:
    if isinstance(node, dict):
        return "x-kubernetes-validations" in node or any(_has_rules(value) for value in node.values())
    return isinstance(node, list) and any(_has_rules(item) for item in node)


def _duplicates(value: Any, old: Any, node: Type, path: str) -> list[FieldError]:
    """Items of sets and keyed lists that come twice."""
    if node.shape in (ANY, SCALAR) or (old is not NOTHING and old == value):
        return []
    found: list[FieldError] = []
    if node.shape == MAP and isinstance(value, dict):
        for name, item in value.items():
            child = node.child(name)
            if child is not None and child.shape in (MAP, LIST):
                earlier = old.get(name, NOTHING) if isinstance(old, dict) else NOTHING
                found.extend(_duplicates(item, earlier, child, f"{path}.{name}" if path else name))
    elif node.shape == LIST and isinstance(value, list):
        if not node.atomic:
            found.extend(_repeated_items(value, node, path))
        element = node.element or UNTYPED
        if element.shape in (MAP, LIST):
            for index, item in enumerate(value):
                found.extend(_duplicates(item, NOTHING, element, f"{path}[{index}]"))
    return found


def _repeated_items(items: list[Any], node: Type, path: str) -> list[FieldError]:
    found = []
    seen: list[Any] = []
    for index, item in enumerate(items):
        identity = item
        if node.keys and isinstance(item, dict):
            identity = {key: item.get(key, node.key_defaults.get(key)) for key in node.keys}
            identity = {key: value for key, value in identity.items() if value is not None}
        if identity in seen:
            found.append(FieldError(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown(identity)}"))
        else:
            seen.append(identity)
    return found
