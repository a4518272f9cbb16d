"""Making one control plane: its namespace, keys, Service and pod, and the Secrets that customers are given.

In the order of need: what the pod waits for comes first, so that it starts while the rest is written. Every step finds
what an earlier attempt left and goes on from there.
"""

from __future__ import annotations

import asyncio

import msgspec

from regional.hypershift import manifests
from regional.hypershift.certificates import KeyRing, Keys, secret
from regional.hypershift.names import KUBE_APISERVER, admin_kubeconfig, control_plane_namespace, kubeadmin_password
from regional.hypershift.world import World
from regional.hypershift.writing import Writer, mark
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, name_of, namespace_of, spec_of, status_of


class Plane(msgspec.Struct, frozen=True):
    address: str
    keys: Keys
    stateful_set: Obj
    control_plane: Obj


class PlaneMaker:
    def __init__(self, client: Client, world: World, writer: Writer, ring: KeyRing, image: str) -> None:
        self._client, self._world, self._writer, self._ring, self._image = client, world, writer, ring, image

    async def make(self, hosted: Obj, pull_secret: Obj) -> Plane:
        write, world = self._writer, self._world
        await write.ensure(world.namespaces, manifests.namespace(hosted))
        service, authorities, control_plane, _ = await asyncio.gather(
            self._service(hosted),
            self._ring.authorities(hosted),
            write.ensure(world.control_planes, manifests.hosted_control_plane(hosted), optional=manifests.COPIED),
            write.ensure(world.accounts, manifests.service_account(hosted)),
        )
        address = str(spec_of(service)["clusterIP"])
        keys = await self._ring.keys(hosted, authorities, address)
        stateful_set, *_ = await asyncio.gather(
            write.ensure(
                world.stateful_sets, manifests.stateful_set(hosted, self._image, address, keys.serving_digest)
            ),
            self._bundle(hosted, "total-client-ca", keys.signer.certificate),
            self._bundle(hosted, "root-ca", keys.root.certificate),
        )
        admin, _ = await asyncio.gather(
            self._ring.kubeconfigs(hosted, keys, address), self._copy_pull_secret(hosted, pull_secret)
        )
        await asyncio.gather(
            self._give(hosted, admin_kubeconfig(hosted), admin["data"]["kubeconfig"], "kubeconfig"),
            self._give_password(hosted, keys.password),
        )
        return Plane(address, keys, stateful_set, control_plane)

    async def _service(self, hosted: Obj) -> Obj:
        """Customers hold kubeconfigs with its address: a Service that was lost comes back where it was, if it can."""
        live = self._world.services.get(control_plane_namespace(hosted), KUBE_APISERVER)
        before = str((status_of(hosted).get("controlPlaneEndpoint") or {}).get("host") or "") if live is None else ""
        try:
            return await self._writer.ensure(self._world.services, manifests.service(hosted, before))
        except ApiError as error:
            if not before or error.status != 422:
                raise
        return await self._writer.ensure(self._world.services, manifests.service(hosted))

    async def _bundle(self, hosted: Obj, name: str, certificate: str) -> Obj:
        wanted = manifests.config_map(hosted, name, {"ca.crt": certificate})
        return await self._writer.ensure(self._world.config_maps, wanted)

    async def _copy_pull_secret(self, hosted: Obj, pull_secret: Obj) -> None:
        copy: Obj = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": control_plane_namespace(hosted), "name": "pull-secret"},
            "type": pull_secret.get("type", "Opaque"),
            "data": pull_secret.get("data") or {},
        }
        await self._writer.ensure(self._world.secrets, mark(copy, hosted))

    # -- what the customer gets --------------------------------------------------------------------------------------

    async def _give(self, hosted: Obj, name: str, encoded: str, key: str) -> None:
        wanted = secret(namespace_of(hosted), name, {}) | {"data": {key: encoded}}
        await self._writer.ensure(self._world.secrets, mark(wanted, hosted, owned=True))

    async def _give_password(self, hosted: Obj, password: str) -> None:
        """A cluster with identity providers of its own has no kubeadmin."""
        if has_kubeadmin(hosted):
            wanted = secret(namespace_of(hosted), kubeadmin_password(hosted), {"password": password})
            await self._writer.ensure(self._world.secrets, mark(wanted, hosted, owned=True))
            return
        if self._world.secrets.get(namespace_of(hosted), kubeadmin_password(hosted)) is not None:
            await self.take_back(hosted, kubeadmin_password(hosted))

    async def take_back(self, hosted: Obj, name: str) -> None:
        """Only what is ours: a customer's Secret of that name is left alone."""
        live = self._world.secrets.get(namespace_of(hosted), name)
        if live is not None:
            await self._client.delete("v1", "Secret", name_of(live), namespace_of(live), missing_ok=True)
            self._world.secrets.observe_deleted(live)


def has_kubeadmin(hosted: Obj) -> bool:
    return "oauth" not in (spec_of(hosted).get("configuration") or {})
