"""Programs that must not run as root, when we are root: which user they become, and whether that user can get there.

As an ordinary user nothing changes hands. As root, PostgreSQL refuses to start at all and Mosquitto drops its rights
after reading its files. Both then need directories they own, below directories they may pass through; we never open up
somebody's parent directories to make that true, we say which one is closed.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Any

from regional.core.problems import UserError


def user_for(*preferred: str) -> str:
    """The first of these users that exists, else nobody; "" when we are not root and stay who we are."""
    if os.geteuid() != 0:
        return ""
    for name in (*preferred, "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise UserError(f"as root this needs one of the users {', '.join(preferred)} or nobody", "add one with `adduser`")


def closed_directory(path: Path, user: str) -> Path | None:
    """The outermost directory on the way to `path` that `user` may not pass through."""
    if not user:
        return None
    entry = pwd.getpwnam(user)
    for directory in [*reversed(path.resolve().parents), path.resolve()]:
        try:
            status = directory.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        if status.st_uid == entry.pw_uid:
            needed = stat.S_IXUSR
        elif status.st_gid == entry.pw_gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return directory
    return None


def require_passage(path: Path, user: str, program: str) -> None:
    if (closed := closed_directory(path, user)) is not None:
        raise UserError(
            f"{program} runs as user {user}, who may not pass through {closed} to {path}",
            "set REGIONAL_HOME to a directory below ones that everybody may pass through (chmod o+x)",
        )


def own_directory(path: Path, user: str, mode: int = 0o700) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    give(path, user, mode)
    return path


def give(path: Path, user: str, mode: int) -> None:
    if user:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)
    path.chmod(mode)


def subprocess_identity(user: str) -> dict[str, Any]:
    """Keyword arguments for subprocess: become `user` and only that."""
    if not user:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
