"""Cluster addresses of Services: handed out from the cluster's service range, remembered in the Services themselves."""

from __future__ import annotations

import ipaddress

from regional.kube.apiserver.entries import Key, Obj
from regional.kube.apiserver.errors import Cause, StatusError, internal, invalid
from regional.kube.apiserver.shelf import Event
from regional.kube.apiserver.store import Store
from regional.kube.schema.registry import Kind


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class ServiceAddresses:
    def __init__(self, store: Store, cidr: str) -> None:
        self._network = ipaddress.ip_network(cidr)
        hosts = self._network.hosts()
        self.first = str(next(hosts))  # the API's own Service
        self._store = store
        self._taken: dict[str, Key] = {}  # by the Services that are stored
        self._promised: dict[str, Key] = {}  # holds while a write of that Service is on its way, and no longer
        self._cursor = int(self._network.network_address) + 1
        for entry in store.shelf("services").entries.values():
            self._learn(entry.key, entry.fields.get("spec.clusterIP", ""))
        store.observe(self._follow)

    def _learn(self, key: Key, address: str) -> None:
        if address not in ("", "None"):
            self._taken[address] = key

    def _follow(self, resource: str, event: Event) -> None:
        if resource != "services":
            return
        if event.previous is not None:
            before = event.previous.fields.get("spec.clusterIP", "")
            if event.type == "DELETED" or before != event.entry.fields.get("spec.clusterIP", ""):
                self._taken.pop(before, None)
        if event.type != "DELETED":
            address = event.entry.fields.get("spec.clusterIP", "")
            self._promised.pop(address, None)
            self._learn(event.entry.key, address)

    def _holder(self, address: str) -> Key | None:
        """Who has it. A write may end without a word to us (a dry run, a full disk): the store knows which go on."""
        holder = self._taken.get(address)
        if holder is None and (promised := self._promised.get(address)) is not None:
            holder = promised if self._store.writing("services", promised) else None
        return holder

    def assign(self, kind: Kind, service: Obj, old: Obj | None) -> None:
        """Fills in clusterIP and what goes with it. Call it last, once nothing else can refuse the object."""
        spec = service.setdefault("spec", {})
        if spec.get("type") == "ExternalName":
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                spec.pop(field, None)
            return
        key = (service["metadata"]["namespace"], service["metadata"]["name"])
        before = ((old or {}).get("spec") or {}).get("clusterIP", "")
        wanted = spec.get("clusterIP") or (spec.get("clusterIPs") or [""])[0] or before
        if before and wanted != before:
            text = f'Invalid value: ["{wanted}"]: may not change once set'
            raise invalid(kind, key[1], [Cause("FieldValueInvalid", text, "spec.clusterIPs[0]")])
        if wanted and wanted != "None" and not _is_address(wanted):
            text = f'Invalid value: "{wanted}": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'
            raise invalid(kind, key[1], [Cause("FieldValueInvalid", text, "spec.clusterIPs[0]")])
        if not wanted:
            wanted = self._free(key)
        elif wanted != "None" and self._holder(wanted) not in (None, key):
            raise self._refused(kind, key[1], wanted, "provided IP is already allocated")
        elif wanted != "None" and not self._inside(wanted):
            raise self._refused(kind, key[1], wanted, "the provided network does not match the current range")
        if wanted != "None":
            self._promised[wanted] = key
        spec["clusterIP"] = wanted
        spec["clusterIPs"] = [wanted]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def _inside(self, address: str) -> bool:
        try:
            return ipaddress.ip_address(address) in self._network
        except ValueError:
            return False

    @staticmethod
    def _refused(kind: Kind, name: str, address: str, why: str) -> StatusError:
        text = f'Invalid value: ["{address}"]: failed to allocate IP {address}: {why}'
        return invalid(kind, name, [Cause("FieldValueInvalid", text, "spec.clusterIPs")])

    def _free(self, key: Key) -> str:
        """The next free one after the last given out, so that a removed Service's address rests for a while."""
        low, high = int(self._network.network_address) + 2, int(self._network.broadcast_address) - 1
        for _ in range(high - low + 1):
            self._cursor = self._cursor + 1 if low <= self._cursor < high else low
            address = str(ipaddress.ip_address(self._cursor))
            if self._holder(address) is None:
                return address
        raise internal(f"failed to allocate a serviceIP for {key[0]}/{key[1]}: range is full")
