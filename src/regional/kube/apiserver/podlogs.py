"""`pods/log`: the API only knows where the pod runs; its node's kubelet endpoint has the lines."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import StatusError, bad_request, internal
from regional.kube.apiserver.reads import Reader
from regional.kube.apiserver.store import Store
from regional.kube.messages import Response

_PASSED_ON = ("follow", "tailLines", "previous", "timestamps", "sinceSeconds", "sinceTime", "limitBytes")
_HEADERS = {"content-type": "text/plain"}


class PodLogs:
    def __init__(self, store: Store, reader: Reader, pki: Path) -> None:
        self._store = store
        self._reader = reader
        self._pki = pki
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    def _client(self) -> tuple[aiohttp.ClientSession, ssl.SSLContext]:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
            self._tls.load_cert_chain(self._pki / "kubelet-client.crt", self._pki / "kubelet-client.key")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5), auto_decompress=False
            )
        return self._session, self._tls

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, call: Call) -> Response:
        pod = self._reader.entry(call).obj()
        name = call.target.name
        container = _container(name, pod, call.request.parameter("container"))
        node_name = (pod.get("spec") or {}).get("nodeName")
        if not node_name:
            return Response(200, _HEADERS, b"")  # not placed yet: there is nothing to read
        query = [(key, value) for key, value in call.request.query if key in _PASSED_ON]
        path = f"/containerLogs/{call.namespace}/{name}/{container}"
        url = f"https://{self._endpoint(node_name)}{path}"
        session, tls = self._client()
        try:
            answer = await session.get(f"{url}?{urlencode(query)}" if query else url, ssl=tls)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise internal(f'Get "{url}": {error}') from None
        if answer.status != 200:
            text = (await answer.text())[:2000].strip()
            answer.release()
            if answer.status >= 500:
                raise internal(text or f"the kubelet of {node_name} answered {answer.status}")
            raise StatusError(answer.status, "BadRequest" if answer.status == 400 else "NotFound", text)
        return Response(200, _HEADERS, _copied(answer))

    def _endpoint(self, node_name: str) -> str:
        entry = self._store.get("nodes", "", node_name)
        status: Obj = (entry.obj().get("status") or {}) if entry is not None else {}
        addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 10250)
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host:
            raise internal(f'no preferred addresses found; known addresses: [] (node "{node_name}")')
        return f"{host}:{port}"


async def _copied(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError):
        return  # the node went away in mid-stream; the client sees the end
    finally:
        answer.close()


def _container(pod_name: str, pod: Obj, wanted: str) -> str:
    spec = pod.get("spec") or {}
    names = [each["name"] for each in spec.get("containers") or ()]
    inits = [each["name"] for each in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in (*names, *inits):
            raise bad_request(f"container {wanted} is not valid for pod {pod_name}")
        return wanted
    if len(names) == 1:
        return str(names[0])
    text = f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(names)}]"
    if inits:
        text += f" or one of the init containers: [{' '.join(inits)}]"
    raise bad_request(text)
