"""`kubectl exec`: a command beside a container, its streams at the client's end.

A session speaks through a wire of numbered channels, whatever carries it (WebSocket frames, SPDY streams).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from pathlib import Path
from typing import Protocol

import msgspec

from regional.core.process import ProcessRef
from regional.core.spawn import SpawnError, SpawnRequest, spawn_with, wait_exit
from regional.kube.node.containers import Container, Launch
from regional.kube.node.descriptors import Descriptor
from regional.kube.objects import Obj

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_QUEUED = 64
LOOK_SECONDS = 10.0  # how often a client is looked for whose input is not taken


class Wanted(msgspec.Struct, frozen=True):
    """What the client asked to be connected."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class Wire(Protocol):
    async def receive(self) -> tuple[int, bytes] | None:
        """A channel's next data; (CLOSE, channel's number) when it ends; None when the peer is gone."""

    async def send(self, channel: int, data: bytes) -> None: ...

    async def look(self) -> None:
        """Asks the peer for a sign of life; sooner or later raises OSError if it is gone."""

    async def close(self) -> None: ...


class _Size(msgspec.Struct, rename="pascal"):
    width: int = 0
    height: int = 0


def success() -> Obj:
    return {"metadata": {}, "status": "Success"}


def failure(message: str, reason: str = "InternalError", code: int = 500) -> Obj:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def exit_status(code: int) -> Obj:
    """What a client reads its own exit code from."""
    if code == 0:
        return success()
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class ExecSession:
    def __init__(self, wire: Wire, wanted: Wanted) -> None:
        self._wire = wire
        self._wanted = wanted
        self._input: Descriptor | None = None
        self._outputs: dict[int, Descriptor] = {}
        self._typed: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)

    async def run(self, container: Container, launch: Launch, spawner: Path, argv: list[str]) -> None:
        ended = container.directory.path / f"exec-{secrets.token_hex(4)}.end"
        env = launch.env | ({"TERM": "xterm"} if self._wanted.tty else {})
        request = SpawnRequest(argv, env, launch.cwd, exit_file=str(ended), title=argv[0], terminal=self._wanted.tty)
        try:
            process = await self._start(spawner, request)
            status = await self._converse(process, ended)
        except (OSError, SpawnError) as error:
            status = failure(f"cannot run {argv[0]!r}: {error}")
        finally:
            for descriptor in (self._input, *self._outputs.values()):
                if descriptor is not None:
                    descriptor.close()
            ended.unlink(missing_ok=True)
        if status is not None:
            await self._wire.send(ERROR, msgspec.json.encode(status))
        await self._wire.close()

    async def _start(self, spawner: Path, request: SpawnRequest) -> ProcessRef:
        theirs = self._terminal() if self._wanted.tty else self._pipes()
        try:
            return await spawn_with(spawner, request, theirs)
        finally:
            for number in set(theirs):
                os.close(number)

    def _terminal(self) -> tuple[int, int, int]:
        master, slave = os.openpty()
        self._input = self._outputs[STDOUT] = Descriptor(master)
        return slave, slave, slave

    def _pipes(self) -> tuple[int, int, int]:
        if self._wanted.stdin:
            their_input, ours = os.pipe2(os.O_CLOEXEC)
            self._input = Descriptor(ours)
        else:
            their_input = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        theirs = [their_input]
        for channel, asked in ((STDOUT, self._wanted.stdout), (STDERR, self._wanted.stderr)):
            if asked:
                ours, their_end = os.pipe2(os.O_CLOEXEC)
                self._outputs[channel] = Descriptor(ours)
            else:
                their_end = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            theirs.append(their_end)
        return theirs[0], theirs[1], theirs[2]

    async def _converse(self, process: ProcessRef, ended: Path) -> Obj | None:
        """How it ended; None if the client left first, which ends the command."""
        showing = [asyncio.create_task(self._show(*output)) for output in self._outputs.items()]
        listening, typing = asyncio.create_task(self._listen()), asyncio.create_task(self._type())
        leaving = asyncio.create_task(wait_exit(process, ended))
        try:
            await asyncio.wait([leaving, listening], return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                return None
            for descriptor in self._outputs.values():
                descriptor.finish()
            await asyncio.gather(*showing)
            return exit_status(leaving.result().code)
        except OSError:
            return None
        finally:
            for task in (*showing, listening, typing, leaving):
                task.cancel()
            await asyncio.gather(*showing, listening, typing, leaving, return_exceptions=True)
            if leaving.cancelled() and process.alive():
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)

    async def _show(self, channel: int, descriptor: Descriptor) -> None:
        while data := await descriptor.read():
            await self._wire.send(channel, data)

    async def _listen(self) -> None:
        while (message := await self._wire.receive()) is not None:
            channel, data = message
            if channel == STDIN and data:
                await self._hand_in(data)
            elif channel == CLOSE and data[:1] == bytes([STDIN]):
                await self._hand_in(b"")
            elif channel == RESIZE and self._wanted.tty and self._input is not None:
                with contextlib.suppress(msgspec.MsgspecError, OSError):
                    size = msgspec.json.decode(data, type=_Size)
                    self._input.resize(size.width & 0xFFFF, size.height & 0xFFFF)

    async def _hand_in(self, data: bytes) -> None:
        """While the command does not read, neither do we: that its client left shows only when we speak to it."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    return await self._typed.put(data)
            except TimeoutError:
                await self._wire.look()

    async def _type(self) -> None:
        """A terminal has no end of input: it lives until its process does."""
        while data := await self._typed.get():
            if self._input is not None:
                with contextlib.suppress(OSError):  # it reads no more; what it says is still of interest
                    await self._input.write(data)
        if self._input is not None and not self._wanted.tty:
            self._input.close()
