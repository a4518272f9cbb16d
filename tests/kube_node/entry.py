"""What containers of our image run in these tests: a few real roles, small enough to read at a glance."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from regional.core.loop import run
from regional.core.mounts import mounted


def main(argv: list[str]) -> int:
    match argv:
        case ["http", port]:
            return run(serve(os.environ["POD_IP"], int(port)))
        case ["echo", port]:
            return run(echo(os.environ["POD_IP"], int(port)))
        case ["exit", code]:
            print(f"leaving with {code}", flush=True)
            return int(code)
        case ["once", path]:
            # Fails the first time, succeeds ever after.
            flag = mounted(path)
            if flag.exists():
                return 0
            flag.write_text("")
            return 1
        case ["count", path]:
            with mounted(path).open("a") as stream:
                stream.write(f"{argv[0]}\n")
            return 0
        case ["stubborn"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(60)
        case ["kubelike", *rest]:
            from regional.kube.node.main import main as node

            return node(rest)
    sys.exit(f"no such role: {argv}")


async def echo(host: str, port: int) -> int:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, host, port) as server:
        await server.serve_forever()
    return 0


async def serve(host: str, port: int) -> int:
    """GET /env/NAME, /file/PATH (mounted), /resolve/NAME, /die; anything else says who answers."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    healthy = True

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal healthy
        line = (await reader.readline()).split()
        while (await reader.readline()).strip():
            pass
        _, door, rest = (*(line[1].decode().split("/", 2)), "", "")[:3]
        status, text = "200 OK", os.environ.get("HOSTNAME", "")
        if door == "env":
            text = os.environ.get(rest, "")
        elif door == "file":
            text = mounted("/" + rest).read_text()
        elif door == "all":
            text = "\n".join(sorted(os.environ))
        elif door == "resolve":
            infos = await asyncio.get_running_loop().getaddrinfo(rest, 0)
            text = str(infos[0][4][0])
        elif door == "sick":
            healthy = False
        elif door == "health" and not healthy:
            status = "503 Service Unavailable"
        body = text.encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, port)
    print(f"serving {host}:{port}", flush=True)
    await stop.wait()
    server.close()
    print("leaving in order", flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))
