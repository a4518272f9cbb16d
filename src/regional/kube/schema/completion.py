"""What reading an object into its Go type and writing it again does to its content.

Quantities come out in one form (`0.5Gi` is `512Mi`), and fields that Go writes even when they are empty are there
(`lastProbeTime: null`). Each type has a plan of the fields beneath it that matter; a kind without any is not walked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.quantity import canonical
from regional.kube.schema.types import LIST, MAP, OBJECT_META, SCALAR, Schema, Type

_META_NAME = OBJECT_META.rpartition(".")[2]


class Plan:
    """`zero`: what the type itself writes when unset. `inside`: the fields, or else the elements, to look into."""

    __slots__ = ("element", "inside", "quantity", "zero")

    def __init__(self) -> None:
        self.zero: list[tuple[str, Any]] = []
        self.inside: dict[str, Plan] = {}
        self.element: Plan | None = None
        self.quantity = False

    def __bool__(self) -> bool:
        return bool(self.zero or self.inside or self.element or self.quantity)


def complete(obj: Obj, schema: Schema) -> None:
    """In place; built-in kinds only. To be called when defaults are filled in."""
    plan = _PLANS.get(id(schema.root))
    if plan is None:
        plan = _PLANS[id(schema.root)] = _plan(schema.root, {})
    for name, below in plan.inside.items():
        item = obj.get(name)
        if item:
            obj[name] = _completed(item, below)
        elif name in ("spec", "status") and item is None and below.zero:
            obj[name] = _completed({}, below)
    for name, value in plan.zero:
        if name not in _TOP and obj.get(name) in (None, []):
            obj[name] = {} if value == {} else value


# Handled above, and metadata is the server's to complete.
_TOP = ("metadata", "spec", "status")
_PLANS: dict[int, Plan] = {}


def _plan(node: Type, known: dict[int, Plan]) -> Plan:
    found = known.get(id(node))
    if found is not None:
        return found
    plan = known[id(node)] = Plan()
    if node.name == _META_NAME:
        return plan
    if node.shape == SCALAR:
        plan.quantity = node.scalar == "quantity"
    elif node.shape == LIST or (node.shape == MAP and not node.fields):
        below = _plan(node.element, known) if node.element is not None else None
        plan.element = below or None
    elif node.shape == MAP:
        plan.zero = [(name, value) for name, value in node.zero.items() if name in node.fields]
        below_fields = {name: _plan(child, known) for name, child in node.fields.items()}
        plan.inside = {name: below for name, below in below_fields.items() if below}
    return plan


def _completed(value: Any, plan: Plan) -> Any:
    if isinstance(value, dict):
        for name, zero in plan.zero:
            item = value.get(name)
            if item is None or item == []:  # an empty list of such a field is written as null
                value[name] = {} if zero == {} else zero
        for name, below in plan.inside.items():
            item = value.get(name)
            if item is not None:
                value[name] = _completed(item, below)
        if plan.element is not None:
            for name, item in value.items():
                value[name] = _completed(item, plan.element)
    elif isinstance(value, list):
        if plan.element is not None:
            for index, item in enumerate(value):
                value[index] = _completed(item, plan.element)
    elif plan.quantity:
        return _quantity(str(value)) if value is not None and not isinstance(value, bool) else value
    return value


@lru_cache(maxsize=4096)
def _quantity(text: str) -> str:
    try:
        return canonical(text)
    except ValueError:
        return text
