"""Role `aws`: AWS's place on one machine."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from regional.core import loop
from regional.core.logs import setup_logging
from regional.core.problems import UserError
from regional.core.process import proportional_memory
from regional.core.settings import load

log = logging.getLogger(__name__)


class AwsSettings(msgspec.Struct):
    journal: str  # directory
    lookup_token_file: str
    address: str = "127.0.0.1"
    port: int = 4566


async def serve(settings: AwsSettings) -> int:
    began = time.perf_counter()
    # moto costs a second to import: only the process that is this host pays it.
    from regional.cloud.host.engine import MOTO_VERSION, Engine
    from regional.cloud.host.journal import Journal
    from regional.cloud.host.server import AwsApp
    from regional.core.web import serving, stop_event

    imported = time.perf_counter()
    token = _read_token(Path(settings.lookup_token_file))
    journal = Journal(Path(settings.journal), MOTO_VERSION)
    if journal.state.dropped_bytes:
        log.warning("unfinished end of the journal dropped", extra={"bytes": journal.state.dropped_bytes})
    if journal.state.header.moto_version != MOTO_VERSION:
        log.warning(
            "journal was begun with another moto: ids may differ",
            extra={"then": journal.state.header.moto_version, "now": MOTO_VERSION},
        )
    executor = ThreadPoolExecutor(1, "aws")
    running = asyncio.get_running_loop()
    try:
        engine = await running.run_in_executor(executor, Engine, journal)
        await running.run_in_executor(executor, engine.replay)
        stop = stop_event()
        app = AwsApp(engine, executor, token)
        try:
            async with serving(app, settings.address, settings.port, http="httptools", timeout_keep_alive=60):
                log.info(
                    "serving",
                    extra={
                        "address": f"{settings.address}:{settings.port}",
                        "importSeconds": round(imported - began, 2),
                        "startSeconds": round(time.perf_counter() - began, 2),
                        "memoryMB": _memory() >> 20,
                    },
                )
                await _first(stop, app.failed)
        except OSError as error:
            raise UserError(
                f"cannot listen on {settings.address}:{settings.port}: {error.strerror or error}",
                hint="another process has this port; `regionctl doctor` names it",
            ) from None
        return 1 if app.failed.is_set() else 0
    finally:
        executor.shutdown()
        journal.close()


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise UserError(f"cannot read --lookup-token-file {path}: {error.strerror}") from None
    if len(token) < 16:
        raise UserError(f"the look-up token in {path} is too short", hint="write at least 16 random characters")
    return token


def _memory() -> int:
    import os

    return proportional_memory(os.getpid())


def main(argv: list[str]) -> int:
    settings = load(AwsSettings, argv)
    setup_logging("aws")
    return loop.run(serve(settings))
