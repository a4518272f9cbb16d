"""One request on its way through the server: what it names, who asks, what form the answer takes."""

from __future__ import annotations

import msgspec

from regional.kube.apiserver.errors import Cause, invalid_options
from regional.kube.apiserver.media import Wanted
from regional.kube.apiserver.routing import Target
from regional.kube.messages import Request, User
from regional.kube.schema.apply import manager_of
from regional.kube.schema.openapi_validation import shown
from regional.kube.schema.registry import Kind


class Call(msgspec.Struct):
    request: Request
    target: Target
    kind: Kind
    user: User
    wanted: Wanted
    warnings: list[str] = []

    @property
    def namespace(self) -> str:
        return self.target.namespace if self.kind.namespaced else ""

    @property
    def dry_run(self) -> bool:
        return bool(self.request.parameter("dryRun"))

    @property
    def manager(self) -> str:
        return manager_of(self.request.parameter("fieldManager"), self.request.headers.get("user-agent", ""))

    @property
    def field_validation(self) -> str:
        return self.request.parameter("fieldValidation") or "Warn"

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def check_options(self, kind: str) -> None:
        """The parameters that every write shares."""
        causes = []
        for key, value in self.request.query:
            if key == "dryRun" and value != "All":
                text = f'Unsupported value: ["{value}"]: supported values: "All"'
                causes.append(Cause("FieldValueNotSupported", text, "dryRun"))
            if key == "fieldValidation" and value not in ("", "Ignore", "Warn", "Strict"):
                text = f'Unsupported value: "{value}": supported values: "", "Ignore", "Strict", "Warn"'
                causes.append(Cause("FieldValueNotSupported", text, "fieldValidation"))
            if key == "fieldManager":
                causes += _manager_problems(value)
        if causes:
            raise invalid_options(kind, *causes)


def _manager_problems(manager: str) -> list[Cause]:
    if len(manager.encode()) > 128:
        return [Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager")]
    for position, letter in enumerate(manager):
        if not letter.isprintable():
            why = f"invalid character U+{ord(letter):04X} (at position {position})"
            return [Cause("FieldValueInvalid", f"Invalid value: {shown(manager)}: {why}", "fieldManager")]
    return []
