"""The door to everything about built-in kinds that a write goes through, in the order it goes.

    default_builtin → settle → prepare_for_create | prepare_for_update → validate_metadata, validate_builtin
    → to_storage

`prepare_*` and `validate_metadata` serve custom kinds too.
"""

from __future__ import annotations

from regional.kube.schema.crd_rules import version_priority
from regional.kube.schema.defaults import default_builtin, default_pod_spec
from regional.kube.schema.events import core_kind, from_storage, to_storage
from regional.kube.schema.metadata_rules import validate_metadata
from regional.kube.schema.object_rules import validate_builtin
from regional.kube.schema.strategy import identify_job, prepare_for_create, prepare_for_update, settle
from regional.kube.schema.workload_rules import selects

__all__ = [
    "core_kind",
    "default_builtin",
    "default_pod_spec",
    "from_storage",
    "identify_job",
    "prepare_for_create",
    "prepare_for_update",
    "selects",
    "settle",
    "to_storage",
    "validate_builtin",
    "validate_metadata",
    "version_priority",
]
