"""What one look into a guest brought back."""

from __future__ import annotations

import msgspec

from regional.kube.objects import Obj


class GuestReport(msgspec.Struct, frozen=True):
    cluster_version: Obj | None
    nodes: int = 0
    ready_nodes: int = 0
