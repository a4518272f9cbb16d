"""Validation of a value against the JSON schema of a CRD, with the messages clients compare.

The schema is interpreted, not compiled: a rule about one field is rarely run twice in a row, and the texts quote the
schema. Unchanged parts of an update are skipped, which is both the protocol's ratcheting and most of the speed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from regional.kube.objects import Obj
from regional.kube.schema.cel_functions import matches_pattern
from regional.kube.schema.errors import FieldError
from regional.kube.schema.formats import matches_format


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


# There is no old value to compare with.
NOTHING: Final = _Nothing()

_BLOCKING = {
    "FieldValueRequired",
    "FieldValueTypeInvalid",
    "FieldValueNotSupported",
    "FieldValueTooLong",
    "FieldValueTooMany",
}


def blocks_rules(error: FieldError) -> bool:
    """CEL rules may assume the basic shape; after such errors they are not run."""
    return error.reason in _BLOCKING


def shown(value: Any) -> str:
    """A value as error bodies print it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer" if -(1 << 63) <= value < 1 << 63 else "number"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "array" if isinstance(value, list) else "object"


def _has_type(value: Any, wanted: str) -> bool:
    found = json_type(value)
    return found == wanted or (wanted == "number" and found == "integer")


def _invalid(path: str, value: Any, text: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {path} in body {text}")


def _mistyped(path: str, value: Any, wanted: str) -> FieldError:
    found = json_type(value)
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return FieldError(path, "FieldValueTypeInvalid", message)


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _embedded(schema: Obj) -> tuple[str, ...]:
    """What a whole object inside another must say of itself."""
    return ("apiVersion", "kind") if schema.get("x-kubernetes-embedded-resource") else ()


class SchemaValidator:
    """One validation run. `root` leaves apiVersion, kind and metadata of the top object to others."""

    def __init__(self, *, root: bool = False) -> None:
        self._root = root

    def validate(self, value: Any, old: Any, schema: Obj, path: str) -> list[FieldError]:
        if old is not NOTHING and value == old:
            return []
        if value is None and schema.get("nullable"):
            return []
        errors = self._type(value, schema, path)
        if errors:
            return [*errors, *self._enum(value, schema, path)]
        if isinstance(value, str):
            errors = self._string(value, schema, path)
        elif isinstance(value, dict):
            errors = self._object(value, old, schema, path)
        elif isinstance(value, list):
            errors = self._array(value, old, schema, path)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            errors = self._number(value, schema, path)
        errors.extend(self._enum(value, schema, path))
        errors.extend(self._combinations(value, schema, path))
        return errors

    @staticmethod
    def _enum(value: Any, schema: Obj, path: str) -> list[FieldError]:
        if "enum" not in schema or value in schema["enum"]:
            return []
        supported = ", ".join(shown(item if isinstance(item, str) else shown(item)) for item in schema["enum"])
        message = f"Unsupported value: {shown(value)}: supported values: {supported}"
        return [FieldError(path, "FieldValueNotSupported", message)]

    def _type(self, value: Any, schema: Obj, path: str) -> list[FieldError]:
        if schema.get("x-kubernetes-int-or-string"):
            if isinstance(value, str) or _has_type(value, "integer"):
                return []
            return [_mistyped(path, value, "integer,string")]
        wanted = schema.get("type")
        return [] if not wanted or _has_type(value, wanted) else [_mistyped(path, value, wanted)]

    def _string(self, value: str, schema: Obj, path: str) -> list[FieldError]:
        errors = []
        longest, shortest = schema.get("maxLength"), schema.get("minLength")
        pattern = schema.get("pattern")
        # Only the first of these three is told.
        if longest is not None and len(value) > longest:
            message = f"Too long: may not be more than {longest} bytes"
            errors.append(FieldError(path, "FieldValueTooLong", message))
        elif shortest is not None and len(value) < shortest:
            errors.append(_invalid(path, value, f"should be at least {shortest} chars long"))
        elif pattern and not matches_pattern(pattern, value):
            errors.append(_invalid(path, value, f"should match '{pattern}'"))
        wanted = schema.get("format")
        if wanted and not matches_format(value, wanted):
            message = f"Invalid value: {shown(value)}: {path} in body must be of type {wanted}: {shown(value)}"
            errors.append(FieldError(path, "FieldValueTypeInvalid", message))
        return errors

    def _number(self, value: float, schema: Obj, path: str) -> list[FieldError]:
        errors = []
        lowest, highest, factor = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
        if factor and value % factor:
            errors.append(_invalid(path, value, f"should be a multiple of {_number_text(factor)}"))
        if highest is not None:
            if schema.get("exclusiveMaximum"):
                if value >= highest:
                    errors.append(_invalid(path, value, f"should be less than {_number_text(highest)}"))
            elif value > highest:
                errors.append(_invalid(path, value, f"should be less than or equal to {_number_text(highest)}"))
        if lowest is not None:
            if schema.get("exclusiveMinimum"):
                if value <= lowest:
                    errors.append(_invalid(path, value, f"should be greater than {_number_text(lowest)}"))
            elif value < lowest:
                errors.append(_invalid(path, value, f"should be greater than or equal to {_number_text(lowest)}"))
        return errors

    def _object(self, value: Obj, old: Any, schema: Obj, path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        top, self._root = self._root, False
        properties: dict[str, Obj] = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        earlier = old if isinstance(old, dict) else {}
        most, fewest = schema.get("maxProperties"), schema.get("minProperties")
        if most is not None and len(value) > most:
            message = f"Too many: {len(value)}: must have at most {_items(most)}"
            errors.append(FieldError(path, "FieldValueTooMany", message))
        if fewest is not None and len(value) < fewest:
            errors.append(_invalid(path, len(value), f"should have at least {fewest} properties"))
        errors.extend(
            FieldError(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")
            for name in (*(schema.get("required") or ()), *_embedded(schema))
            if name not in value
        )
        found: dict[str, list[FieldError]] = {}
        for name, item in value.items():
            if top and name in ("apiVersion", "kind", "metadata"):
                continue
            child = properties.get(name)
            if child is None:
                child = extra if isinstance(extra, dict) else None
            if child is not None:
                below = f"{path}.{name}" if path else name
                if problems := self.validate(item, earlier.get(name, NOTHING), child, below):
                    found[name] = problems
        for name in sorted(found):
            errors.extend(found[name])
        return errors

    def _array(self, value: list[Any], old: Any, schema: Obj, path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        items = schema.get("items")
        if isinstance(items, dict):
            partner = correlated_items(old, schema)
            for index, item in enumerate(value):
                errors.extend(self.validate(item, partner(item), items, f"{path}[{index}]"))
        most, fewest = schema.get("maxItems"), schema.get("minItems")
        if most is not None and len(value) > most:
            message = f"Too many: {len(value)}: must have at most {_items(most)}"
            errors.append(FieldError(path, "FieldValueTooMany", message))
        if fewest is not None and len(value) < fewest:
            errors.append(_invalid(path, len(value), f"should have at least {fewest} items"))
        if schema.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)):
            errors.append(_invalid(path, value, "shouldn't contain duplicates"))
        return errors

    def _combinations(self, value: Any, schema: Obj, path: str) -> list[FieldError]:
        """allOf, anyOf, oneOf and not, whose members carry value rules only."""
        errors: list[FieldError] = []
        if "allOf" in schema:
            results = [self.validate(value, NOTHING, part, path) for part in schema["allOf"]]
            failed = sum(bool(result) for result in results)
            errors.extend(error for result in results for error in result)
            if failed:
                none = "" if failed < len(results) else ". None validated"
                errors.append(_combination(path, f"must validate all the schemas (allOf){none}"))
        if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
            results = [self.validate(value, NOTHING, part, path) for part in schema["anyOf"]]
            if all(results):
                errors.append(_combination(path, "must validate at least one schema (anyOf)"))
                errors.extend(results[0])
        if "oneOf" in schema:
            results = [self.validate(value, NOTHING, part, path) for part in schema["oneOf"]]
            valid = sum(not result for result in results)
            if valid != 1:
                found = f"Found {valid} valid alternatives" if valid else "Found none valid"
                errors.append(_combination(path, f"must validate one and only one schema (oneOf). {found}"))
                if not valid:
                    errors.extend(results[0])
        if "not" in schema and not self.validate(value, NOTHING, schema["not"], path):
            errors.append(_combination(path, "must not validate the schema (not)"))
        return errors


def _combination(path: str, text: str) -> FieldError:
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": "{path}" {text}')


def _number_text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def correlated_items(old: Any, schema: Obj) -> Any:
    """A function from a list item to its earlier self; only keyed lists say which that is."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") != "map" or not keys or not isinstance(old, list):
        return lambda item: NOTHING

    def identity(item: Any) -> str:
        return shown([item.get(key) for key in keys]) if isinstance(item, dict) else ""

    earlier = {identity(item): item for item in old}
    return lambda item: earlier.get(identity(item), NOTHING)
