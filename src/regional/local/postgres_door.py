"""Does PostgreSQL let anybody in? Its port answers long before that, and may go on answering when it never will.

A server that restarts after a crash of one of its processes runs a startup process. If that one is killed before it has
begun to replay, the postmaster waits for ever (it takes no action on a second crash while it handles the first) and
tells every client that it is "in recovery mode". Only a restart helps. A server that was just started says "starting
up" instead, however long its recovery takes, so it is never mistaken for a stuck one.
"""

from __future__ import annotations

import asyncio
import struct

_TIMEOUT_SECONDS = 3.0
_PROTOCOL = 3 << 16
_REQUEST = b"user\0probe\0database\0probe\0application_name\0supervisor\0\0"
_LARGEST_ANSWER = 16 * 1024
CANNOT_CONNECT_NOW = "57P03"


async def refusal(host: str, port: int) -> tuple[str, str]:
    """SQLSTATE and message of an error at the door; both empty if the server asks for a password instead."""
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            body = struct.pack("!I", _PROTOCOL) + _REQUEST
            writer.write(struct.pack("!I", len(body) + 4) + body)
            await writer.drain()
            kind, length = struct.unpack("!cI", await reader.readexactly(5))
            if kind != b"E":
                return "", ""
            fields = (await reader.readexactly(min(length - 4, _LARGEST_ANSWER))).split(b"\0")
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the server closed the connection") from error
        finally:
            writer.close()
    found = {field[:1]: field[1:].decode(errors="replace") for field in fields if field}
    return found.get(b"C", ""), found.get(b"M", "")


async def lets_in(host: str, port: int) -> bool:
    """It asks for a password, or has another reason than itself to refuse."""
    code, _ = await refusal(host, port)
    return code != CANNOT_CONNECT_NOW


async def is_stuck(host: str, port: int) -> bool:
    """For a moment after a crash this is true of a healthy server too: who asks must ask for a while."""
    code, message = await refusal(host, port)
    return code == CANNOT_CONNECT_NOW and "recovery mode" in message
