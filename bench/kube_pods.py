"""A pod is created; how long until its process serves, and until the API says Ready. Nothing is polled.

Our API with its controllers and our node, forked from the same warm parent. The pod comes without a node's name, so the
scheduler is on the way, as it is for users.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from kube_client import Connection, request
from kube_servers import Machine, Server, until

PORT = 8000
PODS = "/api/v1/namespaces/default/pods"
IMAGE = "regional/regional"
PATIENCE = 60.0


@contextlib.contextmanager
def node(machine: Machine, server: Server) -> Iterator[None]:
    """A node of the server's cluster, once it is Ready."""
    directory = machine.directory(server.name)
    block = directory.block
    process = machine.fork(
        f"{server.name}-node",
        *("serve", "kube-node", "--cluster", server.name, "--node-name", directory.node_name),
        *("--kubeconfig", str(directory.node_kubeconfig), "--pki", str(directory.certificates)),
        *("--root", str(machine.region.node(server.name)), "--address", block.node, "--pod-cidr", block.pod_cidr),
        *("--spawner", str(machine.socket), "--tools-path", "/usr/bin:/bin", "--image", IMAGE),
    )
    connection = Connection(server.endpoint)
    try:

        def ready() -> bool:
            found = msgspec.json.decode(connection.must(request("GET", "/api/v1/nodes")))["items"]
            account = connection.ask(request("GET", "/api/v1/namespaces/default/serviceaccounts/default"))[0]
            return account == 200 and any(_is_true(each, "Ready") for each in found)

        until(ready, "the node to be Ready")
        yield
    finally:
        connection.close()
        process.signal(15)
        until(lambda: not process.alive(), "the node to leave")


def start_pods(server: Server, rounds: int) -> tuple[list[float], list[float]]:
    """(created → serving, created → Ready) in seconds"""
    connection, serving, ready = Connection(server.endpoint), [], []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(PATIENCE)
        host, port = ear.getsockname()
        for number in range(rounds):
            data = request("POST", PODS, _pod(f"bench-{number}", f"{host}:{port}"))
            began = time.perf_counter()
            revision = msgspec.json.decode(connection.must(data))["metadata"]["resourceVersion"]
            name, address = ear.recv(512).decode().split()
            serving.append(time.perf_counter() - began)
            assert name == f"bench-{number}", f"{name} spoke, and not bench-{number}"
            with socket.create_connection((address, PORT), timeout=PATIENCE) as probe:
                probe.sendall(b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n")
                assert probe.recv(64).startswith(b"HTTP/1.1 200")
            ready.append(_ready_at(server, name, revision) - began)
            connection.must(request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1"))
            until(lambda name=name: connection.ask(request("GET", f"{PODS}/{name}"))[0] == 404, "the pod to be gone")
    connection.close()
    return serving, ready


def _pod(name: str, bench: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["regionctl", "bench-pod", str(PORT), bench],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    metadata = {"name": name, "namespace": "default"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _ready_at(server: Server, name: str, revision: str) -> float:
    """The moment at which a watch shows the pod Ready."""
    path = f"{PODS}?watch=1&fieldSelector=metadata.name={name}&resourceVersion={revision}"
    with server.endpoint.dial() as watch:
        watch.sendall(request("GET", path))
        with watch.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"{") and _is_true(msgspec.json.decode(line)["object"], "Ready"):
                    return time.perf_counter()
    raise SystemExit("the watch ended before the pod was Ready")


def _is_true(obj: dict[str, Any], condition: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)
