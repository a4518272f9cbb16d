"""The event loop of every role: uvloop that resolves names through the pod's own hosts file.

A pod that is a process shares /etc/hosts with the machine, so `kube.node` writes one for each pod and names it in
HOSTS_FILE. uvloop resolves inside C (patching `socket` does not reach it), hence a subclass that puts the address in
place of the name. Libraries that resolve by themselves (awscrt, gRPC) get `resolve(name)` instead of a name.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from regional.core.memory import give_back_once_settled

T = TypeVar("T")

try:
    from uvloop import Loop as _BaseLoop
except ImportError:  # a platform without uvloop wheels
    from asyncio import SelectorEventLoop as _BaseLoop  # type: ignore[assignment]


class HostsFile:
    """Names of one file in the format of /etc/hosts, read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._names = parse_hosts(self._path.read_text())
            self._seen = seen
        return self._names.get(name.rstrip(".").lower())


def parse_hosts(text: str) -> dict[str, str]:
    """The first address of a name wins, as in a resolver."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        address, *aliases = line.partition("#")[0].split() or [""]
        for alias in aliases:
            names.setdefault(alias.lower(), address)
    return names


_files: dict[str, HostsFile] = {}


def lookup(name: str) -> str | None:
    """The address that the pod's hosts file gives to a name; None without such a file or name."""
    path = os.environ.get("HOSTS_FILE")
    if not path:
        return None
    if path not in _files:
        _files[path] = HostsFile(Path(path))
    return _files[path].address_of(name)


def resolve(name: str) -> str:
    """An address for libraries that resolve in C. Blocks on DNS if the hosts file does not know the name."""
    if address := lookup(name):
        return address
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


class HostsLoop(_BaseLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        if address := _known(host):
            options["flags"] = options.get("flags", 0) | socket.AI_NUMERICHOST
            return socket.getaddrinfo(address, port, **options)
        return await super().getaddrinfo(host, port, **options)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if address := _known(host):
            if options.get("ssl") and options.get("server_hostname") is None:
                options["server_hostname"] = host  # the certificate is for the name, not for the address
            host = address
        return await super().create_connection(protocol_factory, host, port, **options)


def _known(host: Any) -> str | None:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    return lookup(host) if isinstance(host, str) and host else None


def new_event_loop() -> asyncio.AbstractEventLoop:
    return HostsLoop()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """asyncio.run on our loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        give_back_once_settled(runner.get_loop())
        return runner.run(coroutine)
