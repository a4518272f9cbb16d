"""Conditions before they are written: what is the case, why, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from regional.kube.objects import Obj, condition_of, set_condition

Status = Literal["True", "False", "Unknown"]
_MESSAGE_LENGTH = 32_000


class Finding(msgspec.Struct, frozen=True):
    status: Status
    reason: str
    message: str = ""

    @property
    def holds(self) -> bool:
        return self.status == "True"


Findings = Mapping[str, Finding]


def true(reason: str = "AsExpected", message: str = "All is well") -> Finding:
    return Finding("True", reason, message)


def false(reason: str, message: str) -> Finding:
    return Finding("False", reason, message)


def unknown(reason: str = "StatusUnknown", message: str = "Not known yet") -> Finding:
    return Finding("Unknown", reason, message)


def well(message: str = "All is well") -> Finding:
    """False is the good state of conditions that name a trouble."""
    return Finding("False", "AsExpected", message)


def write(obj: Obj, findings: Findings, generation: int, now: datetime) -> None:
    """Into `obj.status.conditions`; the transition time moves only with the status."""
    for kind, finding in findings.items():
        message = finding.message[:_MESSAGE_LENGTH]
        set_condition(obj, kind, finding.status, finding.reason, message, now=now, generation=generation)


def keep_only(obj: Obj, kinds: set[str]) -> None:
    conditions = (obj.get("status") or {}).get("conditions")
    if conditions:
        obj["status"]["conditions"] = [condition for condition in conditions if condition["type"] in kinds]


def read(obj: Obj, kind: str) -> Finding | None:
    found = condition_of(obj, kind)
    if found is None:
        return None
    return Finding(found["status"], found.get("reason") or "", found.get("message") or "")
