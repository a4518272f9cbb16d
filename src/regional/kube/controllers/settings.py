"""What the controllers of one cluster need to know, each with a default that suits one machine."""

from __future__ import annotations

import msgspec

from regional.core.pki import KeyPair


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    root_ca: str = ""
    """PEM of the cluster's CA, published to every namespace as ConfigMap kube-root-ca.crt."""
    authority: KeyPair | None = None
    """What approved requests for client certificates are signed with; without it they stay unsigned."""
    node_grace_seconds: float = 50.0
    """A node whose Lease was not renewed for this long is Unknown."""
    event_ttl_seconds: float = 3600.0
    resync_seconds: float = 120.0
    """The scan behind all notifications."""
    scheduler_name: str = "default-scheduler"
    controllers: tuple[str, ...] = ()
    """Names of those to run; empty means all."""
    housekeeping: bool = True
    """Garbage, namespaces and the age of events, whichever others run: where nobody else looks after them."""
