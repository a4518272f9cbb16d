"""What a server serves: every resource with its verbs, for kinds that no table of ours can know (CRDs).

One conditional request per half in the aggregated format; the legacy format, a request per group version, when the
server does not offer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from regional.kube.client.errors import ApiError
from regional.kube.client.resources import Resource
from regional.kube.client.transport import Answer

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
Fetch = Callable[[str, str], Awaitable[Answer]]
"""(path, accept) -> answer"""


class Discovered(msgspec.Struct, frozen=True):
    resource: Resource
    verbs: frozenset[str]
    preferred: bool
    """This version is the one the server would have clients use for the group."""


async def discover(fetch: Fetch) -> list[Discovered]:
    found: list[Discovered] = []
    for path in ("/api", "/apis"):
        answer = await fetch(path, AGGREGATED)
        if answer.status != 200:
            raise ApiError.from_answer(answer.status, answer.body, f"GET {path}")
        document = msgspec.json.decode(answer.body)
        if document.get("kind") == "APIGroupDiscoveryList":
            found += _aggregated(document)
        else:
            found += await _legacy(fetch, document)
    return found


def _aggregated(document: dict[str, Any]) -> list[Discovered]:
    found = []
    for group in document.get("items") or []:
        name = (group.get("metadata") or {}).get("name", "")
        for position, version in enumerate(group.get("versions") or []):
            for entry in version.get("resources") or []:
                kind = (entry.get("responseKind") or {}).get("kind")
                if kind:
                    resource = Resource(
                        name, version["version"], entry["resource"], kind, entry.get("scope") == "Namespaced"
                    )
                    found.append(Discovered(resource, frozenset(entry.get("verbs") or ()), position == 0))
    return found


async def _legacy(fetch: Fetch, document: dict[str, Any]) -> list[Discovered]:
    versions: list[tuple[str, str, bool]] = [("", version, True) for version in document.get("versions") or []]
    for group in document.get("groups") or []:
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions += [(group["name"], v["version"], v["version"] == preferred) for v in group.get("versions") or []]
    found = []
    for name, version, preferred in versions:
        path = f"/apis/{name}/{version}" if name else f"/api/{version}"
        answer = await fetch(path, "application/json")
        if answer.status != 200:
            continue
        for entry in msgspec.json.decode(answer.body).get("resources") or []:
            if "/" not in entry["name"]:
                resource = Resource(name, version, entry["name"], entry["kind"], bool(entry.get("namespaced")))
                found.append(Discovered(resource, frozenset(entry.get("verbs") or ()), preferred))
    return found
