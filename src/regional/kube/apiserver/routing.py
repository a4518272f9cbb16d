"""From a URL to what it names: group, version, namespace, resource, name, subresource, and the verb to authorise."""

from __future__ import annotations

import msgspec

from regional.kube.messages import Request

_NAMESPACE_PARTS = frozenset(("status", "finalize"))
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Target(msgspec.Struct, frozen=True):
    verb: str  # empty if the method is none of the API's
    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str
    rest: str = ""  # what follows the subresource: a proxied path


def resource_target(request: Request) -> Target | None:
    """None if the path is not that of a resource (discovery, health, anything else)."""
    parts = [part for part in request.path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, parts = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        return None
    watching = request.flag("watch")
    if parts[0] == "watch" and len(parts) > 1:  # the path form of watches, older than the parameter
        watching, parts = True, parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_PARTS:
            parts = parts[2:]
    plural, name, subresource, rest = _pad(parts)
    return Target(
        _verb(request.method, bool(name), watching), group, version, namespace, plural, name, subresource, rest
    )


def _pad(parts: list[str]) -> tuple[str, str, str, str]:
    padded = [*parts, "", "", ""]
    return padded[0], padded[1], padded[2], "/".join(parts[3:])


def _verb(method: str, named: bool, watching: bool) -> str:
    if method in ("GET", "HEAD"):
        if watching:
            return "watch"
        return "get" if named else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _VERBS.get(method, "")


def path_verb(method: str) -> str:
    """Non-resource rules know the methods in lower case."""
    return method.lower()
