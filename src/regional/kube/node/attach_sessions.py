"""`kubectl attach`: what a container prints from now on.

A container's process writes its log by itself and reads nothing: there is no input to attach to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec

from regional.core.clock import Clock
from regional.kube.node.container_logs import LogOptions, read_log
from regional.kube.node.containers import Container
from regional.kube.node.exec_sessions import ERROR, STDOUT, Wire, exit_status


async def attach(opened: Awaitable[Wire], container: Container, clock: Clock) -> None:
    attempt = container.attempts
    log = container.directory.log(attempt)
    # Measured before the client learns that it is connected: nothing that it may cause is missed.
    options = LogOptions(follow=True, offset=log.stat().st_size if log.exists() else 0)
    wire = await opened
    watching = asyncio.create_task(_until_gone(wire))

    def running() -> bool:
        return container.running and container.attempts == attempt and not watching.done()

    try:
        async for chunk in read_log(log, options, "", running, clock):
            await wire.send(STDOUT, chunk)
        ended = container.ended if container.attempts == attempt else None
        await wire.send(ERROR, msgspec.json.encode(exit_status(ended.code if ended else 0)))
        await wire.close()
    finally:
        watching.cancel()


async def _until_gone(wire: Wire) -> None:
    while await wire.receive() is not None:
        pass
