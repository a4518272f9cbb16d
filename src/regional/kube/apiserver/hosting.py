"""Many clusters in one process and on one port, each behind its own path: https://HOST:PORT/c/NAME.

A cluster has its own data file, its own authority for client certificates, its own key for tokens, and its own limits.
The handshake accepts a certificate of any of the authorities; which cluster it counts in is decided by that cluster's
authority alone, for each request. A cluster is opened when somebody asks for it and let go when nobody has for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from regional.core import pki
from regional.core.files import write_atomic
from regional.core.problems import UserError
from regional.kube.apiserver import datafile, restoring, seeding, snapshots
from regional.kube.apiserver.clients import Peer
from regional.kube.apiserver.errors import StatusError, unauthorized
from regional.kube.apiserver.front import Elsewhere, Place, tls_context
from regional.kube.apiserver.limits import DEFAULT_LIMITS, Limits, Shares, Turnstile, too_many_requests
from regional.kube.apiserver.server import DATA_FILE, ApiServer
from regional.kube.keys import API_NAMES, KeyFiles, kubeconfig
from regional.kube.messages import Response, User, text_response

log = logging.getLogger(__name__)

PREFIX = "/c/"
IDLE_SECONDS = 600.0
SERVICE_CIDR = "10.96.0.0/16"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Identity(msgspec.Struct, frozen=True):
    """What makes a cluster this one. One file holds it, so that it is there whole or not at all."""

    authority: pki.KeyPair
    token_key: str
    limits: Limits = DEFAULT_LIMITS


class Cluster:
    """One of them: known by name, served or resting."""

    def __init__(self, name: str, folder: Path, identity: Identity) -> None:
        self.name, self.folder = name, folder
        self.turnstile = Turnstile(identity.limits)
        self.authority = x509.load_pem_x509_certificate(identity.authority.certificate.encode())
        self.server: ApiServer | None = None
        self.bootstrapped = False  # by this process, so that it has everything this version brings
        self.used = 0.0
        self.opening = asyncio.Lock()
        self._verified: dict[bytes, bool] = {}

    @property
    def data(self) -> Path:
        return self.folder / DATA_FILE

    def user_of(self, peer: Peer) -> User | None:
        """Raises 401 for a certificate that another cluster's authority has signed."""
        if not peer.certificate:
            return None
        verdict = self._verified.get(peer.certificate)
        if verdict is None:
            if len(self._verified) > 1_000:
                self._verified.clear()
            verdict = self._verified[peer.certificate] = self._signed(peer.certificate)
        if not verdict:
            raise unauthorized()
        return peer.user

    def _signed(self, certificate: bytes) -> bool:
        try:
            x509.load_der_x509_certificate(certificate).verify_directly_issued_by(self.authority)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


class ClusterHost:
    """A switchboard (`front.answering`). `root` belongs to one process at a time."""

    def __init__(self, root: Path, address: str, port: int, *, idle: float = IDLE_SECONDS) -> None:
        self._root, self._address, self._port, self._idle = root, address, port, idle
        self._clusters: dict[str, Cluster] = {}
        self._seeds: tuple[seeding.Seed, ...] = ()
        self._resting: asyncio.Task[None] | None = None
        self.shares: Shares | None = Shares()

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for folder in (self._root, self._root / "clusters"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = datafile.lock(self._root / "host")
        try:
            keys = KeyFiles(self._root / "pki", "host")
            self._authority = keys.authority("ca", "kube-host")
            keys.server("apiserver", self._authority, "kube-apiserver", names=API_NAMES, addresses=[self._address])
            self.tls = tls_context(self._root / "pki")
            for leftover in self._root.glob("clusters/.*"):
                shutil.rmtree(leftover, ignore_errors=True)
            for folder in sorted(self._root.glob("clusters/*")):
                try:
                    identity = msgspec.json.decode((folder / "identity.json").read_bytes(), type=Identity)
                    self._adopt(folder.name, identity)
                except (OSError, ValueError) as error:  # one that cannot be served takes nobody else along
                    log.error("a cluster's identity cannot be read: %s", error, extra={"cluster": folder.name})
            self._seeds = await self._make_seeds()
        except BaseException:
            os.close(self._lock)
            raise
        self._resting = asyncio.create_task(self._let_rest(), name="resting clusters")

    async def stop(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        for cluster in self._clusters.values():
            await self._close(cluster)
        os.close(self._lock)

    def close_watches(self) -> None:
        for cluster in self._clusters.values():
            if cluster.server is not None:
                cluster.server.store.close_watches()

    def _adopt(self, name: str, identity: Identity) -> Cluster:
        cluster = Cluster(name, self._root / "clusters" / name, identity)
        self.tls.load_verify_locations(cadata=identity.authority.certificate)
        self._clusters[name] = cluster
        return cluster

    async def _make_seeds(self) -> tuple[seeding.Seed, ...]:
        """Bootstraps a cluster that nobody will ever see."""
        with tempfile.TemporaryDirectory(dir=self._root / "clusters", prefix=".template-") as folder:
            write_atomic(Path(folder) / "sa.key", pki.new_key()[1])
            server = self._server(Path(folder))
            await server.start()
            seeds = seeding.seeds_of(server.store)
            await server.stop()
        return seeds

    def _server(self, folder: Path) -> ApiServer:
        return ApiServer(
            folder, folder, service_cidr=SERVICE_CIDR, address=self._address, port=self._port, exclusive=False
        )

    # --- clusters ------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        return sorted(self._clusters)

    @property
    def awake(self) -> list[str]:
        return sorted(name for name, cluster in self._clusters.items() if cluster.server is not None)

    def url(self, name: str) -> str:
        return f"https://{self._address}:{self._port}{PREFIX}{name}"

    async def create(self, name: str, limits: Limits = DEFAULT_LIMITS) -> str:
        """Returns the kubeconfig of its administrator: the only copy, for the keys in it are kept nowhere."""
        if _NAME.fullmatch(name) is None:
            raise UserError(f"{name!r} is no name for a cluster", "a DNS label: lower case letters, digits, hyphens")
        if name in self._clusters:
            raise UserError(f"there is a cluster {name} already")
        identity = Identity(pki.create_authority(f"{name}-ca"), pki.new_key()[1], limits)
        await asyncio.to_thread(self._found, name, identity)
        cluster = self._adopt(name, identity)
        cluster.bootstrapped = True
        log.info("cluster created", extra={"cluster": name})
        return self.kubeconfig(name, identity, "admin", ("system:masters",))

    def kubeconfig(self, name: str, identity: Identity, user: str, organizations: tuple[str, ...] = ()) -> str:
        pair = pki.issue(identity.authority, user, organizations=organizations)
        return kubeconfig(name, self.url(name), self._authority.certificate, user, pair)

    def identity(self, name: str) -> Identity:
        return msgspec.json.decode((self._known(name).folder / "identity.json").read_bytes(), type=Identity)

    def _found(self, name: str, identity: Identity) -> None:
        folder = Path(tempfile.mkdtemp(dir=self._root / "clusters", prefix=f".new-{name}-"))
        try:
            seeding.sow(folder / DATA_FILE, self._seeds)
            write_atomic(folder / "identity.json", msgspec.json.encode(identity))
            folder.rename(self._root / "clusters" / name)  # refused if somebody else was quicker
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        datafile.sync_folder(self._root / "clusters" / name)
        datafile.sync_folder(self._root / "clusters")

    async def remove(self, name: str) -> None:
        """With all its data and snapshots. Its clients are disconnected."""
        async with self._held(name) as cluster:
            del self._clusters[name]
            await self._close(cluster)
            gone = cluster.folder.with_name(f".gone-{name}-{os.urandom(4).hex()}")
            cluster.folder.rename(gone)
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)
        log.info("cluster removed", extra={"cluster": name})

    async def snapshot(self, name: str) -> snapshots.Snapshot:
        return await asyncio.to_thread(snapshots.take, self._known(name).data)

    async def restore(self, name: str, snapshot: Path) -> restoring.Restored:
        """Its watchers are disconnected and find that they must list again; other clusters do not notice."""
        async with self._held(name) as cluster:
            await self._close(cluster)
            return await asyncio.to_thread(restoring.restore, cluster.data, snapshot, None, locked=True)

    @contextlib.asynccontextmanager
    async def _held(self, name: str) -> AsyncIterator[Cluster]:
        """With nobody else opening, restoring or removing it."""
        cluster = self._known(name)
        async with cluster.opening:
            if self._known(name) is not cluster:
                raise UserError(f"cluster {name} was removed meanwhile")
            yield cluster

    def _known(self, name: str) -> Cluster:
        cluster = self._clusters.get(name)
        if cluster is None:
            raise UserError(f"there is no cluster {name}", "clusters: " + (", ".join(self.names) or "none"))
        return cluster

    # --- requests ------------------------------------------------------------------------------------------------

    async def place(self, peer: Peer, path: str) -> Place:
        if not path.startswith(PREFIX):
            raise Elsewhere(text_response(200, "ok") if path == "/healthz" else _not_found())
        name, _, rest = path[len(PREFIX) :].partition("/")
        cluster = self._clusters.get(name)
        if cluster is None:
            raise Elsewhere(_not_found())
        user = cluster.user_of(peer)
        self._count(cluster, peer)
        server = cluster.server or await self._open(cluster)
        cluster.used = asyncio.get_running_loop().time()
        return Place(server, "/" + rest, user, cluster.turnstile, name)

    def _count(self, cluster: Cluster, peer: Peer) -> None:
        """A connection counts in the first cluster that it asks for; one that may have no more is closed."""
        if peer.leaving:
            return
        if cluster.turnstile.connections >= cluster.turnstile.limits.connections:
            refusal = too_many_requests()
            refusal.headers["connection"] = "close"
            raise Elsewhere(refusal)
        cluster.turnstile.connections += 1

        def leave() -> None:
            cluster.turnstile.connections -= 1

        peer.leaving.append(leave)

    async def _open(self, cluster: Cluster) -> ApiServer:
        async with cluster.opening:
            if cluster.server is not None:
                return cluster.server
            if self._clusters.get(cluster.name) is not cluster:
                raise Elsewhere(_not_found())
            self._lay_out(cluster)
            try:
                server = self._server(cluster.folder)
            except UserError as error:
                log.error("%s: %s", error.message, error.hint, extra={"cluster": cluster.name})
                raise StatusError(
                    503, "ServiceUnavailable", f"the data of cluster {cluster.name} cannot be read; its host knows more"
                ) from error
            await server.start(bootstrapped=cluster.bootstrapped)
            cluster.bootstrapped = True
            cluster.server = server
            return server

    def _lay_out(self, cluster: Cluster) -> None:
        """The parts of its identity, in the files that an API reads; made again whenever they are not there."""
        identity, token_key = self.identity(cluster.name), cluster.folder / "sa.key"
        if token_key.exists() and token_key.read_text() == identity.token_key:
            return
        client = pki.issue(identity.authority, "kube-apiserver-kubelet-client", organizations=["system:masters"])
        _put(cluster.folder / "ca.crt", identity.authority.certificate)
        _put(cluster.folder / "kubelet-client.crt", client.certificate)
        _put(cluster.folder / "kubelet-client.key", client.key)
        _put(token_key, identity.token_key)

    async def _close(self, cluster: Cluster) -> None:
        server, cluster.server = cluster.server, None
        if server is not None:
            await server.stop()

    async def _let_rest(self) -> None:
        """Clusters that nobody asks or watches are let go of; the next request opens them again."""
        while True:
            await asyncio.sleep(self._idle / 4)
            before = asyncio.get_running_loop().time() - self._idle
            for cluster in tuple(self._clusters.values()):
                if cluster.server is None or cluster.used > before or not cluster.turnstile.empty:
                    continue
                async with cluster.opening:
                    with contextlib.suppress(OSError):
                        await self._close(cluster)


def _put(file: Path, text: str) -> None:
    with open(file, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        stream.write(text)


def _not_found() -> Response:
    return text_response(404, "404 page not found\n")
