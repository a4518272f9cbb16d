"""Loopback addresses, handed out in blocks so that regions and parallel tests never meet.

Linux lets any user bind any address of 127.0.0.0/8. Each cluster gets a /22 out of 127.64.0.0–127.127.255.255, written
into an address book in the user's runtime directory under a lock. A block belongs to (data directory, region, cluster);
an entry whose data directory is gone is free again. The book is the only thing that knows how addresses are chosen, so
that a cluster can later live in a network namespace with addresses of another kind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from regional.core import paths
from regional.core.files import read_json, write_json
from regional.core.problems import UserError

_FIRST = int(ipaddress.IPv4Address("127.64.0.0"))
_BLOCKS = 4096
_SIZE = 1024

API_PORT = 6443
KUBELET_PORT = 10250


class Block(msgspec.Struct, frozen=True):
    """A /22: .0.x infrastructure, .1.0/24 services, .2.0/23 pods."""

    base: str

    def infra(self, number: int) -> str:
        return str(ipaddress.IPv4Address(self.base) + number)

    @property
    def api(self) -> str:
        return self.infra(1)

    @property
    def node(self) -> str:
        return self.infra(2)

    @property
    def service_cidr(self) -> str:
        return f"{ipaddress.IPv4Address(self.base) + 256}/24"

    @property
    def pod_cidr(self) -> str:
        return f"{ipaddress.IPv4Address(self.base) + 512}/23"

    @property
    def cidr(self) -> str:
        return f"{self.base}/22"


class _Entry(msgspec.Struct):
    data: str  # the region's root directory
    cluster: str
    base: str


class Addresses:
    """The blocks of one region. `Addresses(region_paths).block("rc")` is stable for the life of the region's data."""

    def __init__(self, region: paths.RegionPaths) -> None:
        self._region = region
        self._file = region.root / "addresses.json"

    def block(self, cluster: str) -> Block:
        with _book() as book:
            mine = self._mine()
            if cluster in mine:
                base = mine[cluster]
                holder = next((e for e in book if e.base == base and e.data != str(self._region.root)), None)
                if holder is not None and Path(holder.data).exists():
                    raise UserError(
                        f"the addresses of {self._region.region}/{cluster} ({base}/22) are now held by {holder.data}",
                        "stop that region (`regionctl down`), or purge one of the two",
                    )
                if not any(e.base == base and e.data == str(self._region.root) for e in book):
                    book.append(_Entry(str(self._region.root), cluster, base))
                return Block(base)
            base = self._choose({e.base for e in book} | set(mine.values()))
            book.append(_Entry(str(self._region.root), cluster, base))
            write_json(self._file, {**mine, cluster: base})
            return Block(base)

    def release_all(self) -> None:
        with _book() as book:
            book[:] = [entry for entry in book if entry.data != str(self._region.root)]
        self._file.unlink(missing_ok=True)

    def _mine(self) -> dict[str, str]:
        try:
            return read_json(self._file, dict[str, str])
        except FileNotFoundError:
            return {}

    def _choose(self, taken: set[str]) -> str:
        # Users have books of their own: starting at different places keeps them apart without a machine-wide lock.
        start = (os.getuid() * 7919) % _BLOCKS
        for offset in range(_BLOCKS):
            base = str(ipaddress.IPv4Address(_FIRST + ((start + offset) % _BLOCKS) * _SIZE))
            if base not in taken and not _in_use(base):
                return base
        raise UserError("no free block of loopback addresses is left", "purge regions you no longer need")


def _in_use(base: str) -> bool:
    """Somebody else's listener on the block's API or infrastructure ports shows that the block is taken."""
    block = Block(base)
    infrastructure = ((1, API_PORT), (1, 5432), (2, 8883), (3, 4566), (4, 8443))
    for host, port in ((block.infra(number), port) for number, port in infrastructure):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False


@contextlib.contextmanager
def _book() -> Iterator[list[_Entry]]:
    directory = paths.own_runtime()
    with (directory / "addresses.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = directory / "addresses.json"
        try:
            entries = msgspec.json.decode(file.read_bytes(), type=list[_Entry])
        except (FileNotFoundError, msgspec.DecodeError):
            entries = []
        before = list(entries)
        entries = [e for e in entries if Path(e.data).exists()]
        yield entries
        if entries != before:
            write_json(file, entries)
