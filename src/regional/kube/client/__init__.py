"""A client of Kubernetes APIs: ours in process, ours over TLS, or a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regional.kube.client.api import Client
from regional.kube.client.config import pod_namespace
from regional.kube.client.discovery import Discovered
from regional.kube.client.errors import ApiError, ApiUnreachable
from regional.kube.client.informer import Informer, without_managed_fields
from regional.kube.client.resources import Resource
from regional.kube.client.transport import Answer, HttpTransport, Stream, TokenFile, Transport

if TYPE_CHECKING:
    from regional.kube.client.local import LocalTransport

__all__ = [
    "Answer",
    "ApiError",
    "ApiUnreachable",
    "Client",
    "Discovered",
    "HttpTransport",
    "Informer",
    "LocalTransport",
    "Resource",
    "Stream",
    "TokenFile",
    "Transport",
    "pod_namespace",
    "without_managed_fields",
]


def __getattr__(name: str) -> Any:
    # Only a process that holds an API server needs LocalTransport; a pod that is a client must not load the server.
    if name == "LocalTransport":
        from regional.kube.client.local import LocalTransport

        return LocalTransport
    raise AttributeError(name)
