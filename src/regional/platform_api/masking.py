"""Secrets inside resource bundles are for their management cluster alone: whoever lists bundles does not see them.

A customer's kubeconfig travels as the feedback of a Secret, so feedback about Secrets is masked like their data.
"""

from __future__ import annotations

from typing import Any

MASK = "***REDACTED***"
Document = dict[str, Any]


def masked(bundle: Document) -> Document:
    shown = dict(bundle)
    if isinstance(manifests := shown.get("manifests"), list):
        shown["manifests"] = [_manifest(found) for found in manifests]
    status = shown.get("status")
    if isinstance(status, dict) and isinstance(reported := status.get("resourceStatus"), list):
        shown["status"] = status | {"resourceStatus": [_resource_status(found) for found in reported]}
    return shown


def _manifest(manifest: Any) -> Any:
    if not isinstance(manifest, dict) or manifest.get("kind") != "Secret":
        return manifest
    hidden = {
        field: dict.fromkeys(manifest[field], MASK)
        for field in ("data", "stringData")
        if isinstance(manifest.get(field), dict)
    }
    return manifest | hidden


def _resource_status(reported: Any) -> Any:
    if not isinstance(reported, dict) or "statusFeedback" not in reported:
        return reported
    about = reported.get("resourceMeta")
    if isinstance(about, dict) and about.get("kind") not in (None, "Secret") and about.get("resource") != "secrets":
        return reported
    values = (reported.get("statusFeedback") or {}).get("values") or []
    hidden = [{"name": value.get("name", ""), "fieldValue": {"type": "String", "string": MASK}} for value in values]
    return reported | {"statusFeedback": {"values": hidden}}
