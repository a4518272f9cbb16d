"""One loopback address for each pod, out of the cluster's pod block, never given to two pods at once.

Held addresses are written in the pods' own directories, so a restarted node finds them all before it gives out a new
one. Going round the block, rather than taking the lowest, keeps a dead pod's address unused for as long as possible.
"""

from __future__ import annotations

import ipaddress

from regional.kube.node.layout import NodeDirectory, PodRecord


class NoAddressLeft(Exception):
    pass


class PodAddresses:
    def __init__(self, cidr: str, directory: NodeDirectory) -> None:
        network = ipaddress.ip_network(cidr)
        self._first = int(network.network_address) + 1
        self._size = max(1, network.num_addresses - 2)
        self._directory = directory
        self._held: dict[str, str] = {}
        for pod in directory.pods():
            if record := pod.load():
                self._held[record.address] = record.uid
        numbers = [int(ipaddress.ip_address(held)) - self._first for held in self._held]
        self._next = (max(numbers) + 1) % self._size if numbers else 0

    def hold(self, uid: str, namespace: str, name: str) -> str:
        """The pod's address: the one it has, or a new one that is on disk before it is used."""
        pod = self._directory.pod(uid)
        if record := pod.load():
            self._held[record.address] = uid
            return record.address
        for step in range(self._size):
            number = (self._next + step) % self._size
            address = str(ipaddress.ip_address(self._first + number))
            if address not in self._held:
                pod.save(PodRecord(uid, namespace, name, address))
                self._held[address] = uid
                self._next = (number + 1) % self._size
                return address
        raise NoAddressLeft(f"all {self._size} pod addresses of this node are in use")

    def release(self, uid: str) -> None:
        self._held = {address: holder for address, holder in self._held.items() if holder != uid}
