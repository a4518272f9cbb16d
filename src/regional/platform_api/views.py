"""CLM's resources in the words of the API: phases and conditions that a customer can act on, and a timeline.

`Synced` speaks of the present spec, `Available` of the last one that worked, `Degraded` of a controller that failed.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

ADAPTER = "hypershift"


def cluster(resource: Document, report: Document | None = None) -> Document:
    """`report` is what the adapter last said (its secrets masked); lists go without."""
    return _resource(resource, report)


def node_pool(resource: Document, report: Document | None = None) -> Document:
    owner = resource.get("owner_references") or {}
    return _resource(resource, report) | {"cluster_id": owner.get("id", "")}


def account(resource: Document) -> Document:
    return {
        "kind": "Account",
        "accountId": resource["name"],
        "privileged": resource["spec"].get("privileged") is True,
        "created_at": resource["created_time"],
    }


def consumer(found: Document, registered: Document | None) -> Document:
    """Maestro's consumer, with what CLM knows of the management cluster of that name."""
    spec = (registered or {}).get("spec") or {}
    facts = {name: spec[name] for name in ("region", "accountId", "capacity", "accepting") if name in spec}
    return found | facts


def _resource(resource: Document, report: Document | None) -> Document:
    kind = resource["kind"]
    plural = "clusters" if kind == "Cluster" else "nodepools"
    shown: Document = {
        "id": resource["id"],
        "kind": kind,
        "href": f"/api/v0/{plural}/{resource['id']}",
        "name": resource["name"],
        "target_project_id": (resource.get("tenancy") or {}).get("account", ""),
        "created_by": resource["created_by"],
        "generation": resource["generation"],
        "resource_version": str(resource["generation"]),
        "spec": resource["spec"],
        "status": status(resource, report),
        "created_at": resource["created_time"],
        "updated_at": resource["updated_time"],
    }
    if resource.get("labels"):
        shown["labels"] = resource["labels"]
    if resource.get("deleted_time"):
        shown["deleted_at"] = resource["deleted_time"]
    return shown


def status(resource: Document, report: Document | None) -> Document:
    conditions = {found["type"]: found for found in (resource.get("status") or {}).get("conditions") or []}
    phase, message = _phase(resource, conditions, report)
    reconciled = conditions.get("Reconciled", {})
    shown: Document = {
        "observedGeneration": reconciled.get("observed_generation", 0) if _true(reconciled) else _seen(report),
        "phase": phase,
        "conditions": _conditions(conditions),
        "timeline": timeline(resource, report),
        "lastUpdateTime": max(
            [resource["updated_time"], *(found["last_updated_time"] for found in conditions.values())]
        ),
    }
    if message:
        shown["message"] = message
    placement = resource.get("placement") or {}
    if placement.get("management_cluster"):
        shown["placementRef"] = {"name": resource["name"], "managementCluster": placement["management_cluster"]}
    return shown | _facts((report or {}).get("data") or {})


def timeline(resource: Document, report: Document | None) -> list[Document]:
    """When each step on the way was taken, as far as it has been; the first that is missing is what it waits for."""
    reported = {found["type"]: found for found in (report or {}).get("conditions") or []}
    conditions = {found["type"]: found for found in (resource.get("status") or {}).get("conditions") or []}
    placed = (resource.get("placement") or {}).get("reserved_time", "")
    published = (report or {}).get("created_time", "") if ((report or {}).get("data") or {}).get("bundle") else ""
    steps = {
        "accepted": resource["created_time"],
        "placed": placed,
        # The first report follows the bundle; one that came while the cluster waited for a place does not count.
        "published": max(published, placed) if published else "",
        "applied": _since(reported.get("Applied", {})),
        "control plane": _since(reported.get("Available", {})) if resource["kind"] == "Cluster" else "",
        "Ready": _since(conditions.get("Reconciled", {})) if not resource.get("deleted_time") else "",
        "deletion asked for": resource.get("deleted_time") or "",
        "finalized": _since(reported.get("Finalized", {})),
    }
    return [{"step": step, "time": moment} for step, moment in steps.items() if moment]


def _phase(resource: Document, conditions: dict[str, Document], report: Document | None) -> tuple[str, str]:
    placement = resource.get("placement")
    if resource.get("deleted_time"):
        return "Deleting", _waits(conditions, report, "the control plane to be taken down")
    if placement is not None and not placement.get("management_cluster"):
        return "WaitingForPlacement", str(placement.get("reason") or "no management cluster has room")
    if _true(conditions.get("Reconciled", {})):
        return "Ready", ""
    if not _true(conditions.get("LastKnownReconciled", {})):
        return "Provisioning", _waits(conditions, report, "the first report of its management cluster")
    phase = "Provisioning" if _failed_now(resource, conditions) else "Ready"
    return phase, _waits(conditions, report, "the change to be carried out")


def _failed_now(resource: Document, conditions: dict[str, Document]) -> bool:
    """Whether the adapter has said that the present generation does not work. What worked before it no longer counts
    then: the control plane that carried it may be the one that has died."""
    worked = conditions.get("HypershiftSuccessful")
    return worked is not None and not _true(worked) and worked.get("observed_generation") == resource["generation"]


def _waits(conditions: dict[str, Document], report: Document | None, otherwise: str) -> str:
    reported = {found["type"]: found for found in (report or {}).get("conditions") or []}
    for source in (
        reported.get("Health", {}),
        reported.get("Available", {}),
        conditions.get("HypershiftSuccessful", {}),
    ):
        if source and not _true(source) and source.get("message"):
            return str(source["message"])
    return f"waits for {otherwise}"


def _conditions(conditions: dict[str, Document]) -> list[Document]:
    synced, available = conditions.get("Reconciled"), conditions.get("LastKnownReconciled")
    worked = conditions.get("HypershiftSuccessful")
    shown = []
    if synced:
        shown.append(_condition("Synced", synced))
    if available:
        shown.append(_condition("Available", available))
        failed = worked is not None and not _true(worked) and _true(available)
        source = worked if failed and worked is not None else {}
        shown.append(
            {
                "type": "Degraded",
                "status": "True" if failed else "False",
                "lastTransitionTime": (source or available)["last_transition_time"],
                "reason": str(source.get("reason") or "AsExpected"),
                "message": str(source.get("message") or ""),
            }
        )
    return shown


def _condition(kind: str, source: Document) -> Document:
    return {
        "type": kind,
        "status": source["status"],
        "lastTransitionTime": source["last_transition_time"],
        "reason": str(source.get("reason") or ""),
        "message": str(source.get("message") or ""),
    }


def _facts(data: Document) -> Document:
    """What the management cluster reported, where it has the form that the API promises."""
    facts: Document = {}
    endpoint = data.get("endpoint")
    if isinstance(endpoint, dict) and endpoint.get("host"):
        facts["controlPlaneEndpoint"] = {"host": str(endpoint["host"]), "port": int(endpoint.get("port") or 443)}
    if isinstance(data.get("version"), str) and data["version"]:
        facts["version"] = data["version"]
    if isinstance(data.get("replicas"), int):
        facts["replicas"] = data["replicas"]
    return facts


def _seen(report: Document | None) -> int:
    return int((report or {}).get("observed_generation", 0))


def _true(condition: Document) -> bool:
    return condition.get("status") == "True"


def _since(condition: Document) -> str:
    return str(condition.get("last_transition_time", "")) if _true(condition) else ""
