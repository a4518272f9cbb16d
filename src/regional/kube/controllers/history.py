"""Revisions: which template a ReplicaSet stands for, and the numbers `kubectl rollout history` and `undo` show."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from regional.kube.controllers.pods import ALPHABET
from regional.kube.objects import Obj, annotations_of, spec_of

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX = "deployment.kubernetes.io/max-replicas"
_NOT_INHERITED = frozenset({REVISION, HISTORY, DESIRED, MAX, "kubectl.kubernetes.io/last-applied-configuration"})
_sorted_json = msgspec.json.Encoder(order="sorted").encode


def template_hash(template: Obj, collisions: int = 0) -> str:
    """Ten letters that stand for a template, the same in every process."""
    digest = hashlib.blake2b(_sorted_json(template), digest_size=8)
    if collisions:
        digest.update(str(collisions).encode())
    number = int.from_bytes(digest.digest(), "big")
    letters = []
    for _ in range(10):
        number, position = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[position])
    return "".join(letters)


def same_template(owner: Obj, replicaset: Obj) -> bool:
    return _plain(spec_of(owner).get("template")) == _plain(spec_of(replicaset).get("template"))


def _plain(template: Obj | None) -> Obj:
    """Without the label that the controller added, and with the same shape whether or not fields are empty."""
    template = template or {}
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if v and k != "creationTimestamp"}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != "pod-template-hash"}
    return {"metadata": metadata | {"labels": labels}, "spec": template.get("spec") or {}}


def inherited_annotations(deployment: Obj) -> dict[str, str]:
    return {name: value for name, value in annotations_of(deployment).items() if name not in _NOT_INHERITED}


def revision_of_set(replicaset: Obj) -> int:
    text = annotations_of(replicaset).get(REVISION, "")
    return int(text) if text.isdigit() else 0


def newest_revision(replicasets: Iterable[Obj]) -> int:
    return max((revision_of_set(replicaset) for replicaset in replicasets), default=0)


def with_revision(annotations: dict[str, str], revision: str) -> dict[str, str]:
    """A template that comes back (undo) takes a new number and remembers the ones it had."""
    previous = annotations.get(REVISION)
    changed = annotations | {REVISION: revision}
    if previous and previous != revision:
        earlier = annotations.get(HISTORY)
        changed[HISTORY] = f"{earlier},{previous}" if earlier else previous
    return changed
