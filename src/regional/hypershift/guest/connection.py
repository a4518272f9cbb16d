"""Connections to guests: one client for each hosted cluster, kept while its address and keys stay the same."""

from __future__ import annotations

import hashlib

import msgspec

from regional.core.pki import KeyPair
from regional.kube.client import Client, HttpTransport, Resource
from regional.kube.client.config import tls_context
from regional.kube.objects import Key

CONFIG = "config.openshift.io/v1"
_CONNECTIONS = 2
"""A handshake costs a guest more than the request after it, so many requests share few connections."""
_CONFIG_KINDS = {
    (CONFIG, "ClusterVersion"): Resource("config.openshift.io", "v1", "clusterversions", "ClusterVersion", False),
    (CONFIG, "ClusterOperator"): Resource("config.openshift.io", "v1", "clusteroperators", "ClusterOperator", False),
}


class Access(msgspec.Struct, frozen=True):
    server: str
    authority: str
    client: KeyPair

    @property
    def digest(self) -> str:
        parts = (self.server, self.authority, self.client.certificate)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class GuestClient(Client):
    """Knows the kinds that we bring into the guest ourselves: asking for them by discovery would cost a round trip."""

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        return _CONFIG_KINDS.get((api_version, kind)) or await super().resource_for(api_version, kind)


class Guests:
    def __init__(self) -> None:
        self._open: dict[Key, tuple[str, GuestClient]] = {}

    async def client(self, key: Key, access: Access) -> GuestClient:
        known = self._open.get(key)
        if known is not None and known[0] == access.digest:
            return known[1]
        await self.forget(key)
        tls = tls_context(
            ca=access.authority.encode(),
            certificate=access.client.certificate.encode(),
            key=access.client.key.encode(),
        )
        transport = HttpTransport(access.server, tls=tls, connections=_CONNECTIONS)
        made = GuestClient(transport, user_agent="hosted-cluster-config-operator")
        self._open[key] = (access.digest, made)
        return made

    def known(self, key: Key) -> GuestClient | None:
        """The connection that was last made, whoever needs it now."""
        found = self._open.get(key)
        return found[1] if found is not None else None

    async def forget(self, key: Key) -> None:
        known = self._open.pop(key, None)
        if known is not None:
            await known[1].close()

    async def close(self) -> None:
        for key in list(self._open):
            await self.forget(key)
