"""Reading the live process tree of a region: who runs, who holds what."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path


def parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                raw = (entry / "stat").read_text()
            except OSError:
                continue
            if raw.rsplit(")", 1)[1].split()[0] not in ("Z", "X"):
                found[int(entry.name)] = int(raw.rsplit(")", 1)[1].split()[1])
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def of_home(home: Path) -> set[int]:
    """All processes of the regions under a home: those whose start environment or command names it, and what descends
    from them."""
    marker = str(home).encode()
    tree = parents()
    members = set()
    for pid in tree:
        try:
            seen = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if marker in seen:
            members.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in tree.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return members


def files(directory: Path) -> Iterator[tuple[Path, str]]:
    """All plain ones below it; some may go while others are read, for nothing stands still in a region."""
    for place, _, names in os.walk(directory):
        for path in (Path(place) / name for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    yield path, path.read_text(errors="replace")


def open_files(pid: int) -> set[str]:
    """None of a process that has ended meanwhile."""
    found = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found


def environment(pid: int) -> str:
    """What the process was started with. A fork shows what its parent had, so manifests are read beside this. Empty
    if the process has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().replace(b"\0", b"\n").decode(errors="replace")
    except OSError:
        return ""


def peers(pid: int) -> set[str]:
    """Addresses at the other end of the process's TCP sockets."""
    return {address for _, (address, port) in _sockets(pid) if port}


def opened(pid: int) -> set[tuple[str, int]]:
    """Where the TCP connections go that the process has opened itself, and not those that came to a port of its own."""
    sockets = _sockets(pid)
    doors = {near[1] for near, far in sockets if not far[1]}
    return {far for near, far in sockets if far[1] and near[1] not in doors}


def _sockets(pid: int) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """Both ends of each TCP socket; one that listens has port 0 at the far end."""
    inodes = {m.group(1) for f in open_files(pid) if (m := re.match(r"socket:\[(\d+)\]", f))}
    try:
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return []  # it has ended meanwhile
    return [(_end(fields[1]), _end(fields[2])) for fields in rows if fields[9] in inodes]


def _end(text: str) -> tuple[str, int]:
    address, port = text.split(":")
    return ".".join(str(byte) for byte in bytes.fromhex(address)[::-1]), int(port, 16)
