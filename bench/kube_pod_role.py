"""What the bench's warm parent runs: `regionctl` itself, and one role more, the smallest HTTP server that a pod can be.

The role tells the bench by a datagram that it listens, so that nobody has to poll for it.
"""

from __future__ import annotations

import os
import socket


def main(argv: list[str]) -> int:
    if argv[:1] == ["bench-pod"]:
        return serve(os.environ["POD_IP"], int(argv[1]), argv[2])
    from regional.cli.main import main as regionctl

    return int(regionctl(argv) or 0)


def serve(address: str, port: int, bench: str) -> int:
    listener = socket.create_server((address, port))
    host, _, number = bench.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as voice:
        voice.sendto(f"{os.environ['HOSTNAME']} {address}".encode(), (host, int(number)))
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
