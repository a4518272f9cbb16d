"""The server under test, chosen by the environment: KUBE=embedded (ours, the default), KUBE=real (kube-apiserver, etcd
and kube-controller-manager in one process), or KUBE=kubeconfig with KUBECONFIG (whatever runs there).

Each runs as a process of its own, with its controllers, behind TLS.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import os
import shutil
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml
from cryptography.hazmat.primitives import serialization

from regional.core import pki
from regional.kube.client.config import tls_context
from regional.kube.real.flags import ControlPlane, processes
from regional.kube.real.programs import find_programs

START_SECONDS = 180
SERVICES = "10.96.0.0/16"
_SERIAL = itertools.count(1)


class Missing(Exception):
    """The wanted server is not to be had on this machine."""


class Credentials(msgspec.Struct, frozen=True):
    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""


class Cluster:
    """Where a server is, and who may speak to it. `users` holds at least `admin`; "" is nobody."""

    def __init__(self, url: str, ca: bytes, users: dict[str, Credentials], *, flavour: str) -> None:
        self.url, self.ca, self.flavour = url, ca, flavour
        self.users = {"": Credentials()} | users
        self._contexts: dict[str, ssl.SSLContext] = {}

    def tls(self, user: str) -> ssl.SSLContext:
        if user not in self._contexts:
            who = self.users[user]
            self._contexts[user] = tls_context(ca=self.ca, certificate=who.certificate, key=who.key)
        return self._contexts[user]

    def kubeconfig(self, *, namespace: str = "default", user: str = "admin", url: str = "") -> str:
        """The text of a kubeconfig that ends at this server (or at `url`, something in front of it)."""
        who = self.users[user]
        entry: dict[str, Any] = {"token": who.token} if who.token else {}
        if who.certificate and who.key:
            entry = {"client-certificate-data": _text(who.certificate), "client-key-data": _text(who.key)}
        server = {"server": url or self.url}
        if server["server"].startswith("https:"):
            server["certificate-authority-data"] = _text(self.ca)
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": namespace}}],
                "clusters": [{"name": "it", "cluster": server}],
                "users": [{"name": "it", "user": entry}],
            }
        )

    def start(self) -> None:
        """Start, or start again after `kill`."""

    def kill(self) -> None:
        """End it at once, without any notice; what it acknowledged must be there after the next `start`."""

    def close(self) -> None:
        """End it for good and remove what it left."""


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


class ProcessCluster(Cluster):
    """A server that these tests start: `command` says how."""

    def __init__(self, folder: Path, flavour: str) -> None:
        self.folder, self.address = folder, _own_address()
        keys = make_pki(folder / "pki", self.address)
        users = {
            name: Credentials((keys / f"{name}.crt").read_bytes(), (keys / f"{name}.key").read_bytes())
            for name in ("admin", "joe")
        }
        super().__init__(f"https://{self.address}:6443", (keys / "ca.crt").read_bytes(), users, flavour=flavour)
        self.pki = keys
        self._running: list[subprocess.Popen[bytes]] = []

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        self._launch(self.command())
        self._await_ready()

    def _launch(self, command: list[str], env: dict[str, str] | None = None) -> None:
        with (self.folder / "log").open("ab") as log:
            self._running.append(
                subprocess.Popen(command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            died = any(process.poll() is not None for process in self._running)
            if died or time.monotonic() > deadline:
                tail = (self.folder / "log").read_text(errors="replace")[-4000:]
                raise RuntimeError(f"the {self.flavour} server {'died' if died else 'is not ready'}:\n{tail}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        connection = http.client.HTTPSConnection(self.address, 6443, timeout=30, context=self.tls("admin"))
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class EmbeddedCluster(ProcessCluster):
    def __init__(self, folder: Path, *, controllers: bool) -> None:
        super().__init__(folder, "embedded")
        self._controllers = "all" if controllers else "none"
        (folder / "data").mkdir()

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "regional.cli.main", "serve", "kube-api", "--cluster=conformance"),
            *(f"--data={self.folder / 'data'}", f"--pki={self.pki}", f"--address={self.address}", "--port=6443"),
            *(f"--service-cidr={SERVICES}", f"--controllers={self._controllers}", "--log-level=warning"),
        ]


class RealCluster(ProcessCluster):
    """Kubernetes' own programs, as `make kube` built them or as KUBEBUILDER_ASSETS has them."""

    def __init__(self, folder: Path, *, controllers: bool) -> None:
        programs = find_programs()
        if programs is None:
            raise Missing("Kubernetes' own control plane is not on this machine: `make kube` builds it")
        super().__init__(folder, "real")
        plane = ControlPlane(
            name="conformance",
            directory=folder,
            address=self.address,
            service_cidr=SERVICES,
            fsync=False,
            controllers=controllers,
            issuer="https://kubernetes.default.svc",
        )
        plane.ensure_keys()
        self._processes = processes(plane, programs)

    def start(self) -> None:
        for process in self._processes:
            self._launch(process.argv, process.env)
            if process.name == "api":
                self._await_ready()


class ForeignCluster(Cluster):
    """Somebody's running cluster, reached by a kubeconfig with a certificate or a token."""

    def __init__(self, path: Path) -> None:
        document = yaml.safe_load(path.read_text())
        name = document["current-context"]
        context = next(each["context"] for each in document["contexts"] if each["name"] == name)
        cluster = next(each["cluster"] for each in document["clusters"] if each["name"] == context["cluster"])
        user = next(each["user"] for each in document["users"] if each["name"] == context["user"])

        def content(section: dict[str, Any], field: str) -> bytes | None:
            if f"{field}-data" in section:
                return base64.b64decode(section[f"{field}-data"])
            return (path.parent / section[field]).read_bytes() if field in section else None

        ca = content(cluster, "certificate-authority")
        if ca is None:
            raise Missing("the kubeconfig names no certificate authority")
        who = Credentials(content(user, "client-certificate"), content(user, "client-key"), user.get("token", ""))
        super().__init__(cluster["server"].rstrip("/"), ca, {"admin": who}, flavour="kubeconfig")


def flavour() -> str:
    return os.environ.get("KUBE") or "embedded"


def make_cluster(folder: Path, kind: str = "", *, controllers: bool = True) -> Cluster:
    """A server in `folder`, not yet started."""
    kind = kind or flavour()
    if kind == "embedded":
        return EmbeddedCluster(folder, controllers=controllers)
    if kind == "real":
        return RealCluster(folder, controllers=controllers)
    if kind == "kubeconfig":
        return ForeignCluster(Path(os.environ["KUBECONFIG"]))
    raise Missing(f"KUBE={kind}: embedded, real or kubeconfig")


def _own_address() -> str:
    """A loopback address of this process's own, so that every server can use the API's port."""
    number, serial = os.getpid(), next(_SERIAL)
    return f"127.{140 + serial % 40}.{number // 250 % 250}.{1 + number % 250}"


def make_pki(folder: Path, address: str) -> Path:
    authority = pki.create_authority("kubernetes")
    folder.mkdir(parents=True)

    def put(name: str, pair: pki.KeyPair) -> None:
        (folder / f"{name}.crt").write_text(pair.certificate)
        (folder / f"{name}.key").write_text(pair.key)

    put("ca", authority)
    put("apiserver", pki.issue(authority, "kube-apiserver", server=True, addresses=[address], names=["kubernetes"]))
    put("kubelet-client", pki.issue(authority, "kube-apiserver-kubelet-client", organizations=["system:masters"]))
    put("admin", pki.issue(authority, "admin", organizations=["system:masters"]))
    put("joe", pki.issue(authority, "joe", organizations=["devs"]))
    key, private = pki.new_key()
    (folder / "sa.key").write_text(private)
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "sa.pub").write_bytes(key.public_key().public_bytes(encoding, form))
    return folder
