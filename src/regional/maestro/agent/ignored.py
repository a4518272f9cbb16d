"""Fields of a manifest that the cluster's own controllers may own: an autoscaler's replicas, an injected certificate.

The object carries the hash of what was applied last. As long as the manifest hashes to the same, nothing is applied,
so that nobody's changes are undone; what is ignored once present is left out of everything but the first apply.
"""

from __future__ import annotations

import copy
import hashlib
import re

import msgspec

from regional.kube.objects import Obj, metadata_of
from regional.maestro.agent.jsonpath import BadPath, find
from regional.maestro.protocol.bundles import IgnoreFields

HASH = "open-cluster-management.io/config-spec-hash"
PRESENT = "OnSpokePresent"
_NAME = re.compile(r"[\w$-]+")


def reduced(manifest: Obj, fields: list[IgnoreFields]) -> Obj:
    """Without what is ignored once present. Raises BadPath."""
    rest = copy.deepcopy(manifest)
    for path in (path for found in fields if found.condition == PRESENT for path in found.json_paths):
        parent, name = _parted(path)
        for holder in find(rest, parent):
            if isinstance(holder, dict):
                holder.pop(name, None)
    return rest


def _parted(path: str) -> tuple[str, str]:
    text = path.strip().removeprefix("{").removesuffix("}")
    parent, dot, name = text.rpartition(".")
    if not dot or not _NAME.fullmatch(name):
        raise BadPath(f"{path!r} does not end with the name of a field")
    return parent or ".", name


def digest_of(manifest: Obj) -> str:
    encoded = msgspec.json.encode(manifest, order="sorted")
    return hashlib.md5(encoded, usedforsecurity=False).hexdigest()


def marked(manifest: Obj, digest: str) -> Obj:
    metadata = manifest.get("metadata") or {}
    return manifest | {"metadata": metadata | {"annotations": (metadata.get("annotations") or {}) | {HASH: digest}}}


def unchanged(live: Obj, digest: str) -> bool:
    return bool((metadata_of(live).get("annotations") or {}).get(HASH) == digest)
