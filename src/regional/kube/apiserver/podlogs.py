"""`pods/log`: the API only knows where the pod runs; its node's kubelet endpoint has the lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import aiohttp
import msgspec

from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.errors import Cause, StatusError, bad_request, internal, invalid
from regional.kube.apiserver.kubelets import Kubelets, container_of
from regional.kube.apiserver.listoptions import whole_number
from regional.kube.apiserver.reads import Reader
from regional.kube.messages import Request, Response
from regional.kube.schema.times import time_problem

_PASSED_ON = ("follow", "tailLines", "previous", "timestamps", "sinceSeconds", "sinceTime", "limitBytes")
_HEADERS = {"content-type": "text/plain"}


class PodLogs:
    def __init__(self, kubelets: Kubelets, reader: Reader) -> None:
        self._kubelets = kubelets
        self._reader = reader
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5), auto_decompress=False
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, call: Call) -> Response:
        name = call.target.name
        _check_options(call.request, name)
        pod = self._reader.entry(call).obj()
        container = container_of(name, pod, call.request.parameter("container"))
        node_name = (pod.get("spec") or {}).get("nodeName")
        if not node_name:
            return Response(204, {}, b"")  # not placed yet: there is nothing to read
        query = [(key, value) for key, value in call.request.query if key in _PASSED_ON]
        path = f"/containerLogs/{call.namespace}/{name}/{container}"
        host, port = self._kubelets.endpoint(node_name)
        url = f"https://{host}:{port}{path}"
        try:
            answer = await self._client().get(f"{url}?{urlencode(query)}" if query else url, ssl=self._kubelets.tls)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise internal(f'Get "{url}": {error}') from None
        if answer.status != 200:
            text = (await answer.text())[:2000].strip()
            answer.release()
            if answer.status >= 500:
                raise internal(text or f"the kubelet of {node_name} answered {answer.status}")
            raise StatusError(answer.status, "BadRequest" if answer.status == 400 else "NotFound", text)
        return Response(200, _HEADERS, _copied(answer))


class _LogOptions(msgspec.Struct, frozen=True):
    kind: str = "PodLogOptions"
    group: str = ""
    plural: str = ""


def _check_options(request: Request, name: str) -> None:
    numbers = {field: whole_number(request, field) for field in ("tailLines", "limitBytes", "sinceSeconds")}
    if why := time_problem(request.parameter("sinceTime")):
        raise bad_request(why)
    causes = []
    for field, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        number = numbers[field]
        if number is not None and number < least:
            limit = "greater than or equal to 0" if least == 0 else "greater than 0"
            causes.append(Cause("FieldValueInvalid", f"Invalid value: {number}: must be {limit}", field))
    if request.parameter("sinceTime") and numbers["sinceSeconds"] is not None:
        text = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(Cause("FieldValueForbidden", text, "[]"))
    if request.parameter("stream"):
        causes.append(Cause("FieldValueForbidden", "Forbidden: may not be specified", "stream"))
    if causes:
        raise invalid(_LogOptions(), name, causes)


async def _copied(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError):
        return  # the node went away in mid-stream; the client sees the end
    finally:
        answer.close()
