"""How the API reaches the kubelet of a pod's node: its address, and the certificate that we show there."""

from __future__ import annotations

import ssl
from pathlib import Path

from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import bad_request, internal
from regional.kube.apiserver.store import Store


class Kubelets:
    def __init__(self, store: Store, pki: Path) -> None:
        self._store = store
        self._pki = pki
        self._tls: ssl.SSLContext | None = None

    @property
    def tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
            self._tls.load_cert_chain(self._pki / "kubelet-client.crt", self._pki / "kubelet-client.key")
        return self._tls

    def endpoint(self, node_name: str) -> tuple[str, int]:
        entry = self._store.get("nodes", "", node_name)
        status: Obj = (entry.obj().get("status") or {}) if entry is not None else {}
        addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 10250)
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host:
            raise internal(f'no preferred addresses found; known addresses: [] (node "{node_name}")')
        return str(host), int(port)


def container_of(pod_name: str, pod: Obj, wanted: str) -> str:
    """The container that a request means: the one it names, or the only one."""
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
