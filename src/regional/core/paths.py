"""Where things live on this machine. One place, so that tests can move all of it with two variables.

`REGIONAL_HOME` holds what must last (data of regions); `REGIONAL_RUNTIME` holds what dies with the boot (sockets, the
address book). Sockets have their own short directory because a Unix socket path may have 107 bytes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from regional.core.problems import UserError

_REGION_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


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


def own_runtime() -> Path:
    """The runtime directory, made if need be. Nobody else may write there: whoever could would hold our sockets."""
    directory = runtime()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UserError(
            f"others may write to {directory}", "set REGIONAL_RUNTIME to a directory that only you may change"
        )
    return directory


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
        """Raises UserError for a name that could lead anywhere else: `down --purge` removes what is found here."""
        if not _REGION_NAME.fullmatch(region):
            raise UserError(
                f"{region!r} is not a name of a region", "a name has lower-case letters, digits and dashes, at most 63"
            )
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
