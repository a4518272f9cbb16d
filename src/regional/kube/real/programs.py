"""Where Kubernetes' own programs are: the one that `make kube` built, or a directory named by KUBEBUILDER_ASSETS.

The latter is what `setup-envtest` fills: `etcd` and `kube-apiserver`, and with luck the controllers and the scheduler.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from regional.core.problems import UserError
from regional.kube.real.build import control_plane

ASSETS = "KUBEBUILDER_ASSETS"


class Programs(msgspec.Struct, frozen=True):
    """`one` is a program that is all of them; without it each has its own, and the last two may be missing."""

    one: str = ""
    etcd: str = ""
    apiserver: str = ""
    controller_manager: str = ""
    scheduler: str = ""

    @property
    def has_controllers(self) -> bool:
        return bool(self.one or (self.controller_manager and self.scheduler))


def find_programs(environ: Mapping[str, str] | None = None) -> Programs | None:
    """None if nobody built them and nobody named a directory with them."""
    environ = os.environ if environ is None else environ
    if directory := environ.get(ASSETS):
        return _assets(Path(directory))
    built = control_plane().built()
    return Programs(one=str(built)) if built.exists() else None


def require_programs(environ: Mapping[str, str] | None = None) -> Programs:
    found = find_programs(environ)
    if found is None:
        raise UserError(
            "Kubernetes' own control plane is not on this machine",
            f"`make kube` builds it (ten minutes, once), or set {ASSETS} to a directory with etcd and kube-apiserver",
        )
    return found


def _assets(directory: Path) -> Programs:
    def program(name: str) -> str:
        path = directory / name
        return str(path.resolve()) if os.access(path, os.X_OK) and path.is_file() else ""

    found = Programs(
        etcd=program("etcd"),
        apiserver=program("kube-apiserver"),
        controller_manager=program("kube-controller-manager"),
        scheduler=program("kube-scheduler"),
    )
    missing = [name for name, path in (("etcd", found.etcd), ("kube-apiserver", found.apiserver)) if not path]
    if missing:
        raise UserError(f"{ASSETS} is {directory}, and there is no program {' or '.join(missing)} in it", "correct it")
    return found
