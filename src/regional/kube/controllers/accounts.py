"""What every namespace is born with: ServiceAccount `default` and the cluster's CA. Pods and clients wait for both."""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.client import ApiError
from regional.kube.controllers.context import Context, Controller
from regional.kube.objects import Key, Obj, copied, is_deleting, key_of, name_of, namespace_of

ROOT_CA = "kube-root-ca.crt"


class AccountsController(Controller):
    name = "accounts"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.namespaces = context.informers.of("v1", "Namespace")
        self.accounts = context.informers.of("v1", "ServiceAccount")
        self.roots = context.informers.of_name("v1", "ConfigMap", ROOT_CA)
        self.namespaces.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.accounts.add_handler(self._account_changed)
        self.roots.add_handler(lambda _, obj: self.queue.add(("", namespace_of(obj))))

    def keys(self) -> Iterable[Key]:
        return list(self.namespaces.objects)

    def _account_changed(self, kind: str, account: Obj) -> None:
        if kind == "DELETED" and name_of(account) == "default":
            self.queue.add(("", namespace_of(account)))

    async def reconcile(self, key: Key) -> float | None:
        name = key[1]
        namespace = self.namespaces.get("", name)
        if namespace is None or is_deleting(namespace):
            return None
        if self.accounts.get(name, "default") is None:
            account: Obj = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": name},
            }
            try:
                self.accounts.observe(await self.client.create(account))
            except ApiError as error:
                if not error.exists:
                    raise
        if self.context.settings.root_ca:
            await self._publish_root(name)
        return None

    async def _publish_root(self, namespace: str) -> None:
        present = self.roots.get(namespace, ROOT_CA)
        data = {"ca.crt": self.context.settings.root_ca}
        if present is None:
            document: Obj = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": ROOT_CA, "namespace": namespace},
                "data": data,
            }
            self.roots.observe(await self.client.create(document))
        elif present.get("data") != data:
            changed = copied(present)
            changed["data"] = data
            self.roots.observe(await self.client.update(changed))
