"""`make kube`: Go programs of ours, built once and kept in the user's cache.

A program is known by the hash of its sources, the versions of its modules and the version of Go, so a checkout that
changes any of them builds anew, and all checkouts of a user share the rest. It is built beside and renamed, under a
lock: there is either none or a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from regional.core import paths
from regional.core.problems import UserError
from regional.kube.real.toolchain import ensure_go, go_version

Report = Callable[[str], None]
_TOLD_EVERY_SECONDS = 15.0
_NEEDS = "a first build downloads 90 MB and takes 4 GB of disk, 2.5 GB of memory and about ten minutes on two cores"


class GoProgram(msgspec.Struct, frozen=True):
    name: str
    directory: Path  # go.mod, go.sum and the sources
    variables: tuple[str, ...] = ()  # set by the linker: path.name=value

    def sources(self) -> list[Path]:
        return sorted(path for path in self.directory.iterdir() if path.name in ("go.mod", "go.sum") or _is_go(path))

    def built(self) -> Path:
        """Where it is, once it is built."""
        digest = hashlib.sha256(f"{go_version()} {platform.machine()}\n".encode())
        for path in self.sources():
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
        return cache() / digest.hexdigest()[:16] / self.name


def _is_go(path: Path) -> bool:
    return path.suffix == ".go" and not path.name.endswith("_test.go")


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regional" / "kube"


def control_plane() -> GoProgram:
    """kube-apiserver, kube-controller-manager, kube-scheduler and etcd in one."""
    directory = paths.checkout() / "scripts" / "kube"
    version = kubernetes_version(directory)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    names = (f"gitVersion={version}", f"gitMajor={major}", f"gitMinor={minor}")
    return GoProgram("kube", directory, tuple(f"{package}.{name}" for name in names))


def gardener() -> GoProgram:
    """The controller that our tests run against both APIs."""
    return GoProgram("gardener", paths.checkout() / "tests" / "conformance" / "controller")


def kubernetes_version(directory: Path) -> str:
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (directory / "go.mod").read_text(), re.M)
    assert found is not None, "go.mod names k8s.io/kubernetes"
    return found[1]


def build(program: GoProgram, report: Report) -> Path:
    """The built program; raises UserError with the reason why there is none."""
    target = program.built()
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot keep {program.name} in {target.parent}: {error.strerror}", "set XDG_CACHE_HOME"
        ) from None
    with (target.parent / ".lock").open("w") as handle:
        _take(handle.fileno(), program.name, report)
        if target.exists():
            return target
        report(f"Go {go_version()}")
        go = ensure_go()
        report(f"building {program.name} ({_NEEDS})")
        beside = target.with_name(f".{program.name}.{os.getpid()}")
        try:
            _compile(go, program, beside, report)
            beside.rename(target)
        finally:
            beside.unlink(missing_ok=True)
    return target


def _take(descriptor: int, name: str, report: Report) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report(f"another process builds {name}; waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _compile(go: Path, program: GoProgram, output: Path, report: Report) -> None:
    flags = "-s -w " + " ".join(f"-X {variable}" for variable in program.variables)
    command = [
        str(go),
        "build",
        "-v",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        flags.strip(),
        "-o",
        str(output),
        ".",
    ]
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=program.directory,
        env=_environment(go),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stderr is not None
        try:
            said = _follow(process.stderr, report, started)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if code != 0:
        raise _explained(program, code, said)
    report(f"built {program.name} in {time.monotonic() - started:.0f} s")


def _environment(go: Path) -> dict[str, str]:
    """The user's settings of Go (proxy, caches) hold; what decides the result does not depend on them."""
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOROOT": str(go.parents[1]),
        "GOWORK": "off",
    }


def _follow(lines: Iterable[str], report: Report, started: float) -> list[str]:
    """Tells how far it is; returns what was said that is neither a download nor a package's name."""
    downloads, packages, told, said = 0, 0, started, []
    for line in lines:
        line = line.rstrip()
        if line.startswith("go: downloading "):
            downloads += 1
        elif re.fullmatch(r"[A-Za-z0-9_.~/+-]+", line):
            packages += 1
        elif line:
            said.append(line)
        if time.monotonic() - told > _TOLD_EVERY_SECONDS:
            told = time.monotonic()
            report(f"{told - started:4.0f} s: {downloads} modules downloaded, {packages} packages compiled")
    return said


_REASONS = (
    (
        r"no space left on device|disk quota exceeded",
        "no disk space is left",
        "make room, or set GOCACHE and GOMODCACHE",
    ),
    (
        r"signal: killed|cannot allocate memory|out of memory",
        "there is not enough memory",
        "linking takes 2.5 GB: close something, or set GOMAXPROCS=1 so that less is compiled at once",
    ),
    (
        r"dial tcp|no such host|i/o timeout|proxyconnect|connection refused|Temporary failure|TLS handshake",
        "a Go module could not be downloaded",
        "check that this machine reaches its Go module proxy (GOPROXY)",
    ),
    (r"checksum mismatch|SECURITY ERROR", "a Go module is not the one that go.sum names", "do not use that proxy"),
)


def _explained(program: GoProgram, code: int, said: list[str]) -> UserError:
    text = "\n".join(said)
    if code == -signal.SIGKILL:
        text += "\nsignal: killed"
    last = said[-1].strip() if said else f"go ended with {code}"
    for pattern, reason, hint in _REASONS:
        if re.search(pattern, text):
            return UserError(f"{program.name} was not built: {reason}: {last}", f"{hint}; {_NEEDS}")
    return UserError(f"{program.name} was not built: {last}", "the lines before it:\n" + "\n".join(said[-10:-1]))
