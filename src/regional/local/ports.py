"""Who holds an address: so that "address already in use" can name the program that has to go."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
from collections.abc import Iterator
from pathlib import Path


def holder(address: str) -> str:
    """ "" if `host:port` is free (or not of that form); else who has it, as well as we may see."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not _is_address(host):
        return ""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
            return ""
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return ""
    for pid in _listeners(host, int(port)):
        return f"pid {pid} ({_command(pid)})"
    return "another program"


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _listeners(host: str, port: int) -> list[int]:
    wanted = {f"{int.from_bytes(ipaddress.IPv4Address(h).packed, 'little'):08X}:{port:04X}" for h in (host, "0.0.0.0")}
    wanted.add(f"{'0' * 32}:{port:04X}")  # [::], which takes IPv4 too
    inodes = {
        fields[9]
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
        if (fields := line.split()) and fields[1] in wanted and fields[3] == "0A"
    }
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(process.name) for process in processes if not inodes.isdisjoint(_sockets(process))]


def _sockets(process: Path) -> Iterator[str]:
    """Inodes of those that it has open. Others that it closes meanwhile do not matter."""
    with contextlib.suppress(OSError):  # gone, or not ours to look into
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if match := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                    yield match.group(1)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return b" ".join(words[:3]).decode(errors="replace").strip() or "?"
