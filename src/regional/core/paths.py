"""Where things live on this machine. One place, so that tests can move all of it with two variables.

`REGIONAL_HOME` holds what must last (data of regions); `REGIONAL_RUNTIME` holds what dies with the boot (sockets, the
address book). Sockets have their own short directory because a Unix socket path may have 107 bytes.
"""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    if value := os.environ.get("REGIONAL_HOME"):
        return Path(value)
    if os.geteuid() == 0:
        return Path("/var/lib/regional")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "regional"


def runtime() -> Path:
    if value := os.environ.get("REGIONAL_RUNTIME"):
        return Path(value)
    if value := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(value) / "regional"
    if os.geteuid() == 0:
        return Path("/run/regional")
    return Path(f"/tmp/regional-{os.getuid()}")


def checkout() -> Path:
    """The project's own folder (an editable install): charts, tekton/, deploy/ and .tools live there."""
    if value := os.environ.get("REGIONAL_CHECKOUT"):
        return Path(value)
    return Path(__file__).resolve().parents[3]


def tools() -> Path:
    """Unpacked third-party programs: kubectl, Helm, Mosquitto."""
    if value := os.environ.get("REGIONAL_TOOLS"):
        return Path(value)
    return checkout() / ".tools"


class RegionPaths:
    """The rooms of one region's data. Pods may only ever see `nodes/<cluster>/pods/<uid>` and `git`."""

    def __init__(self, region: str, base: Path | None = None) -> None:
        self.region = region
        self.root = (base or home()) / "regions" / region

    @property
    def supervisor(self) -> Path:
        return self.root / "supervisor"

    @property
    def service_logs(self) -> Path:
        return self.supervisor / "logs"

    @property
    def git(self) -> Path:
        """The bare repository that GitOps reads: the Git server's role."""
        return self.root / "git" / "regional.git"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def aws(self) -> Path:
        return self.root / "aws"

    @property
    def pipelines(self) -> Path:
        return self.root / "pipelines"

    def cluster(self, name: str) -> Path:
        return self.root / "clusters" / name

    def node(self, cluster: str) -> Path:
        return self.root / "nodes" / cluster
