"""`pods/exec`, `pods/attach`, `pods/portforward`: connections that the API hands on to the pod's node, unread.

The API decides who may, and finds the node; what is spoken on the connection (WebSocket or SPDY) is between the client
and the kubelet, whose own answer to the upgrade goes back as it is. Until that answer is yes, nothing of the client's
is handed on: a kubelet that did not upgrade would take it for the API's own next request.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlencode

import msgspec

from regional.core.upgrades import copy, join
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.errors import bad_request, internal
from regional.kube.apiserver.kubelets import Kubelets, container_of
from regional.kube.apiserver.reads import Reader
from regional.kube.messages import Response

_CONNECT_SECONDS = 5.0
_FLAGS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}  # the kubelet has names of its own
_PASSED_ON = ("x-stream-protocol-version", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol")


class PodStreams:
    def __init__(self, kubelets: Kubelets, reader: Reader) -> None:
        self._kubelets = kubelets
        self._reader = reader

    async def open(self, call: Call) -> Response:
        pod = self._reader.entry(call).obj()
        name, part = call.target.name, call.target.subresource
        path = self._path(call, pod, part)
        node_name = (pod.get("spec") or {}).get("nodeName")
        if not node_name:
            raise bad_request(f"pod {name} does not have a host assigned")
        if not call.request.upgradable:
            raise bad_request("Upgrade request required")
        host, port = self._kubelets.endpoint(node_name)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                kubelet = await asyncio.open_connection(host, port, ssl=self._kubelets.tls)
        except (OSError, TimeoutError) as error:
            text = str(error) or "no answer"
            raise internal(f"error dialing backend: dial tcp {host}:{port}: {text}") from None
        kubelet[1].write(_head(call, path, f"{host}:{port}"))

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                answer = await kubelet[0].readuntil(b"\r\n\r\n")
                writer.write(answer)
                if answer.startswith(b"HTTP/1.1 101 "):
                    await join((reader, writer), kubelet)
                else:
                    await copy(kubelet[0], writer)
            finally:
                kubelet[1].close()

        return Response(101, {}, tunnel=tunnel)

    @staticmethod
    def _path(call: Call, pod: dict[str, object], part: str) -> str:
        name = call.target.name
        where = f"{quote(call.namespace)}/{quote(name)}"
        if part == "portforward":
            ports = [port for key, value in call.request.query if key == "ports" for port in value.split(",")]
            return f"/portForward/{where}" + (f"?port={','.join(map(_port, ports))}" if ports else "")
        container = container_of(name, pod, call.request.parameter("container"))
        query = [(short, "1") for long, short in _FLAGS.items() if call.request.flag(long)]
        if part == "exec":
            query += [(key, value) for key, value in call.request.query if key == "command"]
        return f"/{part}/{where}/{quote(container)}?{urlencode(query)}"


def _port(text: str) -> str:
    """Numbers only: it is written into a request that we vouch for."""
    number = text.isascii() and text.isdigit()
    if not number or int(text) >= 1 << 16:
        why = "value out of range" if number else "invalid syntax"
        shown = msgspec.json.encode(text[:100]).decode()
        raise bad_request(f"cannot convert to []int32: strconv.ParseUint: parsing {shown}: {why}")
    return text


def _head(call: Call, path: str, host: str) -> bytes:
    given = call.request.headers
    kind = given["upgrade"].rpartition("\n")[2]
    lines = [f"{call.request.method} {path} HTTP/1.1", f"host: {host}", "connection: Upgrade", f"upgrade: {kind}"]
    for name in _PASSED_ON:
        lines += [f"{name}: {value}" for value in given.get(name, "").split("\n") if value]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
