"""What adapters say about a resource: the shape of a report, its checks, and the table that keeps the last of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from regional.clm.api.aggregation import MANDATORY, Observation
from regional.clm.api.problems import Invalid, Malformed
from regional.clm.specs import Fault

FUTURE, PAST = timedelta(minutes=5), timedelta(minutes=30)
REDACTED = "***REDACTED***"
_SECRET_WORDS = ("kubeconfig", "password", "secret", "token", "credential", "private")
_YEAR_ZERO = "0001-01-01T00:00:00Z"


class ReportedCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    status: Literal["True", "False", "Unknown"]
    last_transition_time: datetime
    reason: str | None = None
    message: str | None = None


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last report of one adapter, as it is kept and shown."""

    adapter: str
    observed_generation: int
    conditions: list[ReportedCondition]
    created_time: datetime
    last_report_time: datetime
    data: dict[str, Any] = msgspec.UNSET  # type: ignore[assignment]
    metadata: dict[str, Any] | None = None

    def status_of(self, condition: str) -> str:
        return next((found.status for found in self.conditions if found.type == condition), "")

    def observation(self) -> Observation:
        available = next((found for found in self.conditions if found.type == "Available"), None)
        return Observation(
            self.adapter,
            self.observed_generation,
            self.last_report_time,
            available.status if available is not None else "",
            self.status_of("Finalized") == "True",
            available.reason if available is not None else None,
            available.message if available is not None else None,
        )

    def missing_mandatory(self) -> str | None:
        present = {found.type for found in self.conditions}
        return next((name for name in MANDATORY if name not in present), None)

    def is_older_than(self, other: Report) -> bool:
        """By what was seen first, by when it was seen second."""
        return self._order() < other._order()

    def is_as_old_as(self, other: Report) -> bool:
        return self._order() == other._order()

    def _order(self) -> tuple[int, datetime]:
        return self.observed_generation, self.last_report_time

    def masked(self) -> Report:
        """For lists: without what only the owner may read."""
        return msgspec.structs.replace(self, data=_masked(self.data))


def report_of(document: dict[str, Any], now: datetime) -> Report:
    """From the body of a PUT. Raises Invalid with every fault."""
    faults: list[Fault] = []
    adapter = document.get("adapter")
    if not isinstance(adapter, str) or not adapter:
        faults.append(Fault("adapter", "adapter is required", None, "required"))
    elif len(adapter) > 100:
        faults.append(Fault("adapter", "adapter must be at most 100 characters", None, "max_length"))
    generation = document.get("observed_generation")
    if not isinstance(generation, int) or isinstance(generation, bool):
        faults.append(Fault("observed_generation", "field 'observed_generation' must be a number", None, "format"))
    elif generation < 1:
        faults.append(Fault("observed_generation", "observed_generation must be at least 1", generation, "min"))
    observed = _observed_time(document.get("observed_time"), now, faults)
    conditions = _conditions(document.get("conditions"), observed, faults)
    faults += [
        Fault(field, f"field '{field}' must be an object", None, "format")
        for field in ("data", "metadata")
        if not isinstance(document.get(field), dict | None)
    ]
    if faults:
        raise Invalid.because(faults)
    return Report(
        str(adapter), int(generation or 0), conditions, observed, observed, document.get("data") or {},
        document.get("metadata"),
    )  # fmt: skip


def _observed_time(given: Any, now: datetime, faults: list[Fault]) -> datetime:
    if given is None or given == _YEAR_ZERO:
        return now
    try:
        if not isinstance(given, str):
            raise ValueError
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            raise ValueError
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Malformed("observed_time is not an RFC 3339 time") from None
    if moment > now + FUTURE:
        faults.append(Fault("observed_time", "observed_time is more than 5 minutes in the future", given[:40], "max"))
    if moment < now - PAST:
        faults.append(Fault("observed_time", "observed_time is more than 30 minutes in the past", given[:40], "min"))
    return moment


def _conditions(given: Any, observed: datetime, faults: list[Fault]) -> list[ReportedCondition]:
    if not isinstance(given, list):
        faults.append(Fault("conditions", "field 'conditions' must be an array", None, "format"))
        return []
    if len(given) > 100:
        faults.append(Fault("conditions", "there may be at most 100 conditions", None, "max"))
        return []
    made: list[ReportedCondition] = []
    for index, item in enumerate(given):
        path = f"conditions[{index}]"
        if not isinstance(item, dict):
            faults.append(Fault(path, f"field '{path}' must be an object", None, "format"))
            continue
        kind, status = item.get("type"), item.get("status")
        texts = [item.get("reason"), item.get("message")]
        if not isinstance(kind, str) or not kind:
            faults.append(Fault(f"{path}.type", "a condition's type must not be empty", None, "required"))
        elif kind in {condition.type for condition in made}:
            faults.append(Fault(f"{path}.type", f"condition '{kind[:100]}' is there twice", None, "unique"))
        elif status not in ("True", "False", "Unknown"):
            faults.append(Fault(f"{path}.status", "status must be one of: True, False, Unknown", None, "enum"))
        elif not all(text is None or isinstance(text, str) for text in texts):
            faults.append(Fault(path, f"reason and message of '{path}' must be strings", None, "format"))
        else:
            made.append(ReportedCondition(kind, status, observed, *texts))
    return made


def _masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {
            key: REDACTED if value and any(word in key.lower() for word in _SECRET_WORDS) else _masked(value)
            for key, value in data.items()
        }
    return [_masked(item) for item in data] if isinstance(data, list) else data


# --- the table -----------------------------------------------------------------------------------------------------

_COLUMNS = "adapter, observed_generation, conditions, created_time, last_report_time, data, metadata"


def _from_row(row: Any) -> Report:
    return Report(
        row["adapter"],
        row["observed_generation"],
        msgspec.json.decode(row["conditions"], type=list[ReportedCondition]),
        row["created_time"],
        row["last_report_time"],
        msgspec.json.decode(row["data"]),
        msgspec.json.decode(row["metadata"]) if row["metadata"] is not None else None,
    )


async def reports_on(connection: Any, resource_id: UUID) -> list[Report]:
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM adapter_statuses WHERE resource_id = $1 ORDER BY adapter", resource_id
    )
    return [_from_row(row) for row in rows]


async def page_of_reports(connection: Any, resource_id: UUID, size: int, page: int) -> tuple[list[Report], int]:
    total = await connection.fetchval("SELECT count(*) FROM adapter_statuses WHERE resource_id = $1", resource_id)
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM adapter_statuses WHERE resource_id = $1 ORDER BY adapter LIMIT $2 OFFSET $3",
        resource_id,
        size,
        (page - 1) * size,
    )
    return [_from_row(row) for row in rows], total


async def one_report(connection: Any, resource_id: UUID, adapter: str) -> Report | None:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM adapter_statuses WHERE resource_id = $1 AND adapter = $2", resource_id, adapter
    )
    return None if row is None else _from_row(row)


def succeeding(before: Report | None, report: Report) -> Report:
    """The report as it is kept: what did not change keeps the time of its last change."""
    if before is None:
        return report
    earlier = {found.type: found for found in before.conditions}
    conditions = [
        msgspec.structs.replace(found, last_transition_time=earlier[found.type].last_transition_time)
        if found.type in earlier and earlier[found.type].status == found.status
        else found
        for found in report.conditions
    ]
    return msgspec.structs.replace(report, conditions=conditions, created_time=before.created_time)


def news(before: Report | None, report: Report) -> dict[str, Any] | None:
    """For the record: conditions that are not as they were. None if all are."""
    earlier = {found.type: found for found in before.conditions} if before is not None else {}
    changed = [
        found
        for found in report.conditions
        if found.type not in earlier
        or (found.status, found.reason, found.message)
        != (earlier[found.type].status, earlier[found.type].reason, earlier[found.type].message)
    ]
    if not changed:
        return None
    return {"adapter": report.adapter, "observed_generation": report.observed_generation, "conditions": changed}


async def keep(connection: Any, resource_id: UUID, report: Report) -> None:
    """Under the lock of the resource's row."""
    await connection.execute(
        "INSERT INTO adapter_statuses"
        " (resource_id, adapter, observed_generation, conditions, data, metadata, created_time, last_report_time)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (resource_id, adapter) DO UPDATE SET"
        " observed_generation = EXCLUDED.observed_generation, conditions = EXCLUDED.conditions,"
        " data = EXCLUDED.data, metadata = EXCLUDED.metadata, last_report_time = EXCLUDED.last_report_time",
        resource_id,
        report.adapter,
        report.observed_generation,
        msgspec.json.encode(report.conditions).decode(),
        msgspec.json.encode(report.data).decode(),
        None if report.metadata is None else msgspec.json.encode(report.metadata).decode(),
        report.created_time,
        report.last_report_time,
    )
