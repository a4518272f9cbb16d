"""Volumes that are directories on a node: what the controller that binds them and the node that keeps them agree on."""

from __future__ import annotations

from regional.kube.objects import Obj, spec_of

DRIVER = "directory.regional.io"
HOLDS_FILES = "external-provisioner.volume.kubernetes.io/finalizer"


def is_ours(volume: Obj) -> bool:
    return bool((spec_of(volume).get("csi") or {}).get("driver") == DRIVER)
