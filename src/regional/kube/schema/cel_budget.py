"""What a CRD's rules must satisfy before it is accepted: they are CEL, and stay within a budget, each and together."""

from __future__ import annotations

import json
from collections.abc import Iterator

from regional.kube.objects import Obj
from regional.kube.schema.cel import compiled
from regional.kube.schema.cel_cost import estimate
from regional.kube.schema.cel_sizes import Shape, most_elements, most_in_a_request, shape_of
from regional.kube.schema.errors import FieldError

RULE_COST_LIMIT = 10_000_000
SCHEMA_COST_LIMIT = 100_000_000
_ADVICE = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared"
)


def rule_problems(structural: Obj, path: str) -> list[FieldError]:
    """The rules of a CRD's schema that are no valid CEL, or could run too long."""
    budget = _Budget()
    found = list(_problems(structural, path, budget, 1, root=True))
    return found + budget.problems(path)


class _Budget:
    """What all rules of a schema cost together, and the few that cost most."""

    def __init__(self) -> None:
        self._total = 0
        self._dear: list[tuple[int, str]] = []

    def spend(self, path: str, cost: int) -> None:
        self._total += cost
        if cost >= SCHEMA_COST_LIMIT // 100:  # what costs less does not matter to the total
            self._dear = sorted([*self._dear, (cost, path)], key=lambda spent: -spent[0])[:4]

    def problems(self, path: str) -> list[FieldError]:
        if self._total <= SCHEMA_COST_LIMIT:
            return []
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        found = [FieldError(where, "FieldValueForbidden", f"Forbidden: {text}") for _, where in self._dear]
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        return [*found, _too_dear(path, name, self._total, SCHEMA_COST_LIMIT)]


def _too_dear(path: str, name: str, cost: int, limit: int) -> FieldError:
    factor = min(cost, (1 << 64) - 1) / limit
    shown_factor = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    text = f"Forbidden: {name} exceeds budget by factor of {shown_factor} ({_ADVICE})"
    return FieldError(path, "FieldValueForbidden", text)


def _problems(
    schema: Obj, path: str, budget: _Budget, times: int | None, *, root: bool = False
) -> Iterator[FieldError]:
    """`times` is how often this part of the schema can occur in one object; None if without limit."""
    rules = schema.get("x-kubernetes-validations") or ()
    shape = shape_of(schema, root=root) if rules else None
    for index, rule in enumerate(rules):
        for key in ("rule", "messageExpression"):
            text = rule.get(key)
            where = f"{path}.x-kubernetes-validations[{index}].{key}"
            if text:
                occurrences = 1 if key == "messageExpression" else times
                yield from _expression_problems(text, rule, where, shape, budget, occurrences)
    more = most_elements(schema)
    below = times * more if times is not None and more is not None else None
    for name, child in (schema.get("properties") or {}).items():
        if isinstance(child, dict):
            yield from _problems(child, f"{path}.properties[{name}]", budget, below)
    for key in ("items", "additionalProperties"):
        child = schema.get(key)
        if isinstance(child, dict):
            yield from _problems(child, f"{path}.{key}", budget, below)


def _as_printed(rule: Obj) -> str:
    """The rule as Go prints its struct."""
    fields = {"Rule": "rule", "Message": "message", "MessageExpression": "messageExpression"}
    printed = {name: rule.get(key) or "" for name, key in fields.items()}
    printed |= {"Reason": rule.get("reason"), "FieldPath": rule.get("fieldPath") or ""}
    return json.dumps(
        printed | {"OptionalOldSelf": rule.get("optionalOldSelf")}, ensure_ascii=False, separators=(",", ":")
    )


def _expression_problems(
    text: str, rule: Obj, where: str, shape: Shape | None, budget: _Budget, times: int | None
) -> Iterator[FieldError]:
    try:
        program = compiled(text, optional_old=bool(rule.get("optionalOldSelf")))
    except RuntimeError as error:
        problem = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        message = f"Invalid value: {_as_printed(rule)}: compilation failed: {problem}"
        yield FieldError(where, "FieldValueInvalid", message)
        return
    if shape is None or rule.get("optionalOldSelf"):
        return
    cost = estimate(program.serialize(), shape) * (times if times is not None else most_in_a_request(shape))
    name = "estimated rule cost" if where.endswith(".rule") else "estimated messageExpression cost"
    if cost > RULE_COST_LIMIT:
        yield _too_dear(where, name, cost, RULE_COST_LIMIT)
    budget.spend(where, cost)
