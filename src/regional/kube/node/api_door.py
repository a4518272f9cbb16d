"""Where pods find the API: its Service, or the API itself where nobody may listen on the Service's port.

The embedded API's Service has the API's own port; the one that kube-apiserver makes has 443, which takes root.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from regional.kube.node.endpoints import Backend
from regional.kube.objects import Obj, spec_of


def api_address(kubeconfig: str) -> Backend:
    """Where the API listens: what answers behind default/kubernetes."""
    document = yaml.safe_load(Path(kubeconfig).read_text())
    server = urlsplit(document["clusters"][0]["cluster"]["server"])
    return (server.hostname or "127.0.0.1", server.port or 443)


def may_listen(port: int) -> bool:
    if os.geteuid() == 0:
        return True
    try:
        return port >= int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return port >= 1024


def api_for_pods(service: Obj, kubeconfig: str, may: Callable[[int], bool] = may_listen) -> Backend:
    """`service` is default/kubernetes. The API's certificate names both addresses."""
    spec = spec_of(service)
    port = int(spec["ports"][0]["port"])
    return (str(spec["clusterIP"]), port) if may(port) else api_address(kubeconfig)
