"""A container's mount paths, laid out below its POD_ROOT as links to the pod's volumes (see core.mounts)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from regional.kube.node.environment import ConfigProblem, expand
from regional.kube.node.layout import replace_link
from regional.kube.node.volume_files import BadPath, check_relative
from regional.kube.objects import Obj


def lay_out(rootfs: Path, container: Obj, volumes: Path, environment: Mapping[str, str]) -> None:
    """Shallow paths first, so that a volume mounted inside another one lands in it, as a mount would."""
    rootfs.mkdir(parents=True, exist_ok=True)
    (rootfs / "tmp").mkdir(exist_ok=True)
    mounts = container.get("volumeMounts") or []
    for mount in sorted(mounts, key=lambda m: len(PurePosixPath(m["mountPath"]).parts)):
        target = _source(mount, volumes, environment)
        point = rootfs / _inside(mount["mountPath"])
        point.parent.mkdir(parents=True, exist_ok=True)
        if point.is_symlink() and point.readlink() == target:
            continue
        if point.is_dir() and not point.is_symlink():
            if any(point.iterdir()):
                raise ConfigProblem(f"mountPath {mount['mountPath']} holds files already")
            point.rmdir()
        replace_link(point, target)


def _source(mount: Obj, volumes: Path, environment: Mapping[str, str]) -> Path:
    volume = volumes / str(mount["name"])
    below = str(mount.get("subPath") or "") or expand(mount.get("subPathExpr") or "", environment)
    if not below:
        return volume
    try:
        check_relative(below)
    except BadPath as error:
        raise ConfigProblem(f"subPath of {mount['mountPath']}: {error}") from error
    target = volume / below
    if not os.path.lexists(target) and not (volume / "..data").is_symlink():
        target.mkdir(parents=True)  # an emptyDir's subPath comes into being when it is mounted
    return target


def _inside(mount_path: str) -> PurePosixPath:
    parts = [part for part in PurePosixPath(mount_path).parts if part != "/"]
    if not parts or ".." in parts:
        raise ConfigProblem(f"mountPath {mount_path!r} must be an absolute path without '..' and not /")
    return PurePosixPath(*parts)
