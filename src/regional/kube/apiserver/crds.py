"""The life of a CRD: names accepted at once or refused, status kept true, instances removed before it goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from regional.kube.apiserver.catalogue import CRDS, Catalogue
from regional.kube.apiserver.entries import Entry, Obj, encode
from regional.kube.apiserver.shelf import Event
from regional.kube.apiserver.store import Remove, Store
from regional.kube.messages import Request, Response
from regional.kube.objects import set_condition
from regional.kube.schema.registry import BUILTINS

log = logging.getLogger(__name__)

Handle = Callable[[Request], Awaitable[Response]]

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def accept(crd: Obj, catalogue: Catalogue, now: datetime) -> None:
    """Sets the status a moment's controller would set: conditions, accepted names, stored versions."""
    spec, status = crd["spec"], crd.setdefault("status", {})
    metadata = crd["metadata"]
    if not metadata.get("deletionTimestamp") and CLEANUP not in metadata.setdefault("finalizers", []):
        metadata["finalizers"].append(CLEANUP)
    storage = next((version["name"] for version in spec["versions"] if version.get("storage")), "")
    stored = status["storedVersions"] = status.get("storedVersions") or []
    status["conditions"] = status.get("conditions") or []
    if storage and storage not in stored:
        stored.append(storage)
    clash = _name_clash(crd, catalogue)
    if clash is None:
        status["acceptedNames"] = dict(spec["names"])
        set_condition(crd, "NamesAccepted", True, "NoConflicts", "no conflicts found", now=now)
        set_condition(crd, "Established", True, "InitialNamesAccepted", "the initial names have been accepted", now=now)
        return
    reason, message = clash
    status["acceptedNames"] = status.get("acceptedNames") or {"kind": "", "plural": ""}
    set_condition(crd, "NamesAccepted", False, reason, message, now=now)
    if not any(c["type"] == "Established" for c in status["conditions"]):
        set_condition(crd, "Established", False, "NotAccepted", "not all names are accepted", now=now)


def _name_clash(crd: Obj, catalogue: Catalogue) -> tuple[str, str] | None:
    """Two resources of a group may not share a plural, singular, short name or kind."""
    spec = crd["spec"]
    names = spec["names"]
    taken: set[str] = set()
    kinds: set[str] = set()
    for custom in catalogue.customs():
        if custom.group == spec["group"] and custom.plural != names["plural"]:
            other = custom.crd["spec"]["names"]
            taken |= {other["plural"], other.get("singular", ""), *(other.get("shortNames") or ())}
            kinds |= {other["kind"], other.get("listKind", "")}
    for kind in BUILTINS:
        if kind.group == spec["group"]:
            taken |= {kind.plural, kind.singular, *kind.short_names}
            kinds |= {kind.kind, kind.list_kind}
    checks = (
        ("PluralConflict", "plural", [names["plural"]], taken),
        ("SingularConflict", "singular", [names.get("singular", "")], taken),
        ("ShortNamesConflict", "shortNames", names.get("shortNames") or [], taken),
        ("KindConflict", "kind", [names["kind"]], kinds),
        ("ListKindConflict", "listKind", [names.get("listKind", "")], kinds),
    )
    for reason, _, wanted, present in checks:
        for name in wanted:
            if name and name in present:
                return reason, f'"{name}" is already in use'
    return None


def mark_terminating(crd: Obj, now: datetime) -> None:
    set_condition(
        crd,
        "Terminating",
        True,
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now=now,
    )


class Undertaker:
    """Removes the instances of CRDs that are marked for deletion, then lets the CRD go."""

    def __init__(self, store: Store, handle: Handle) -> None:
        self._store = store
        self._handle = handle
        self._wake = asyncio.Event()
        store.observe(self._follow)

    def _follow(self, resource: str, event: Event) -> None:
        if resource == CRDS or event.type == "DELETED":
            self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            for entry in list(self._store.shelf(CRDS).entries.values()):
                crd = entry.obj()
                if crd["metadata"].get("deletionTimestamp") and CLEANUP in crd["metadata"].get("finalizers", []):
                    await self._bury(entry, crd)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await self._wake.wait()

    async def _bury(self, entry: Entry, crd: Obj) -> None:
        spec = crd["spec"]
        plural, group = spec["names"]["plural"], spec["group"]
        shelf = self._store.shelf(f"{plural}.{group}")
        version = next((v["name"] for v in spec["versions"] if v.get("served")), "")
        for namespace in {key[0] for key in shelf.entries} if version else ():
            place = f"/namespaces/{namespace}" if namespace else ""
            await self._handle(Request("DELETE", f"/apis/{group}/{version}{place}/{plural}"))
        for key in [] if version else list(shelf.entries):  # no version is served: nobody could delete them by name
            await self._store.write(shelf.resource, *key, _take_away)
        if not len(shelf):
            finalizers = [each for each in crd["metadata"]["finalizers"] if each != CLEANUP]
            patch = encode({"metadata": {"finalizers": finalizers}})
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{entry.name}"
            headers = {"content-type": "application/merge-patch+json"}
            await self._handle(Request("PATCH", path, [], headers, patch))


def _take_away(live: Entry | None) -> Remove:
    assert live is not None
    return Remove(live.obj())
