"""Role `kube-host`: the APIs of many clusters in one process and on one port, made and removed while it runs.

Its administrators speak JSON lines over a Unix socket in the host's own folder, which only its owner can open: one
request a connection, `{"op": "create", "name": "shop"}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import msgspec

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.problems import UserError
from regional.core.settings import load
from regional.core.web import stop_event
from regional.kube.apiserver.front import answering
from regional.kube.apiserver.hosting import ClusterHost
from regional.kube.apiserver.limits import Limits

log = logging.getLogger(__name__)

_LINE_LIMIT = 1 << 20


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    data: str
    address: str = "127.0.0.1"
    port: int = 6443
    idle_seconds: float = 600.0  # after which a cluster that nobody asks is let go of until the next request
    log_level: str = "info"


class Order(msgspec.Struct):
    op: str
    name: str = ""
    limits: Limits | None = None
    snapshot: str = ""


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("kube-host", settings.log_level)
    return run(serve(settings))


async def serve(settings: Settings) -> int:
    stop = stop_event()
    host = ClusterHost(Path(settings.data), settings.address, settings.port, idle=settings.idle_seconds)
    await host.start()
    try:
        async with hosting(host, settings.address, settings.port), admitting(host, admin_socket(Path(settings.data))):
            log.info("clusters are served", extra={"address": f"https://{settings.address}:{settings.port}"})
            await stop.wait()
    finally:
        await host.stop()
    return 0


@contextlib.asynccontextmanager
async def hosting(host: ClusterHost, address: str, port: int) -> Any:
    async with answering(host, host.tls, address, port) as running:
        try:
            yield running
        finally:
            host.close_watches()  # or their open streams would hold up the listener's orderly end


def admin_socket(root: Path) -> Path:
    return root / "admin.sock"


@contextlib.asynccontextmanager
async def admitting(host: ClusterHost, socket: Path) -> Any:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError, ValueError):
            async with asyncio.timeout(10):
                line = await reader.readline()
            writer.write(msgspec.json.encode(await _carried_out(host, line)) + b"\n")
            await writer.drain()
        writer.close()

    socket.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(answer, str(socket), limit=_LINE_LIMIT)
    socket.chmod(0o600)
    try:
        yield
    finally:
        server.close()
        socket.unlink(missing_ok=True)


async def _carried_out(host: ClusterHost, line: bytes) -> dict[str, Any]:
    try:
        return await _carry_out(host, msgspec.json.decode(line, type=Order))
    except msgspec.MsgspecError as error:
        return {"error": f"this is no order: {error}"}
    except UserError as error:
        return {"error": error.message, "hint": error.hint}
    except OSError as error:
        return {"error": str(error)}


async def _carry_out(host: ClusterHost, order: Order) -> dict[str, Any]:
    match order.op:
        case "list":
            awake = host.awake
            return {"clusters": [{"name": name, "url": host.url(name), "awake": name in awake} for name in host.names]}
        case "create":
            return {"kubeconfig": await host.create(order.name, order.limits or Limits())}
        case "remove":
            await host.remove(order.name)
            return {}
        case "snapshot":
            snapshot = await host.snapshot(order.name)
            return {"snapshot": str(snapshot.path), "revision": snapshot.revision}
        case "restore":
            restored = await host.restore(order.name, Path(order.snapshot))
            return {"objects": restored.objects, "revision": restored.revision}
        case other:
            return {"error": f"there is no order {other!r}", "hint": "orders: list, create, remove, snapshot, restore"}


async def order(socket: Path, op: str, **more: Any) -> dict[str, Any]:
    """The client's side."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket), limit=_LINE_LIMIT)
    except OSError as error:
        raise UserError(
            f"no host of clusters answers at {socket}", "start one with `regionctl serve kube-host`"
        ) from error
    try:
        writer.write(msgspec.json.encode({"op": op} | more) + b"\n")
        async with asyncio.timeout(60):
            answer: dict[str, Any] = msgspec.json.decode(await reader.readline())
    finally:
        writer.close()
    if "error" in answer:
        raise UserError(answer["error"], answer.get("hint", ""))
    return answer
