"""Every test has data directories of its own; addresses come from the user's address book, so that nothing collides."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from asyncio import selector_events, sslproto
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine makes an example slow; that says nothing about what it shows. What lands is judged by the same examples
# each time; people's own runs look for new ones.
settings.register_profile(
    "steady",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    database=None if os.environ.get("CI") else settings.default.database,
)
settings.load_profile("steady")


def _end_goodbyes(loop: asyncio.AbstractEventLoop) -> None:
    """Close what waits for its peer's TLS goodbye.

    A loop that ends earlier forgets such a connection, and the garbage collector then calls it unclosed in whichever
    test happens to run by then. A connection that nobody asked to close stays, and is found.
    """
    for transport in list(getattr(loop, "_transports", {}).values()):
        protocol = transport.get_protocol()
        if isinstance(protocol, sslproto.SSLProtocol) and protocol._state is not sslproto.SSLProtocolState.WRAPPED:  # type: ignore[attr-defined]
            transport._call_connection_lost(None)


_close_loop = selector_events.BaseSelectorEventLoop.close


def _close_after_goodbyes(loop: asyncio.BaseEventLoop) -> None:
    if not loop.is_closed():
        _end_goodbyes(loop)
    _close_loop(loop)


selector_events.BaseSelectorEventLoop.close = _close_after_goodbyes  # type: ignore[method-assign]


@pytest.fixture
def regional_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that PostgreSQL's unprivileged user can reach (pytest's own tmp_path is private)."""
    directory = Path(tempfile.mkdtemp(prefix="regional-test-"))
    directory.chmod(0o711)
    monkeypatch.setenv("REGIONAL_HOME", str(directory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
