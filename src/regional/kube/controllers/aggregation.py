"""ClusterRoles made of other ClusterRoles: `admin`, `edit` and `view` grow with every role labelled to join them."""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.controllers.context import Context, Controller
from regional.kube.objects import Key, Obj, copied, is_deleting, key_of, labels_of, matches, name_of


class AggregationController(Controller):
    name = "aggregation"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.roles = context.informers.of("rbac.authorization.k8s.io/v1", "ClusterRole")
        self.roles.add_listener(self._role_changed)

    def keys(self) -> Iterable[Key]:
        return [key_of(role) for role in self.roles if role.get("aggregationRule")]

    def _role_changed(self, kind: str, role: Obj, old: Obj | None) -> None:
        if kind != "DELETED" and role.get("aggregationRule"):
            self.queue.add(key_of(role))
        for candidate in self.roles:
            selectors = (candidate.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
            versions = [version for version in (role, old) if version is not None]
            if any(matches(selector, labels_of(version)) for selector in selectors for version in versions):
                self.queue.add(key_of(candidate))

    async def reconcile(self, key: Key) -> float | None:
        role = self.roles.get(*key)
        if role is None or is_deleting(role) or not role.get("aggregationRule"):
            return None
        selectors = role["aggregationRule"].get("clusterRoleSelectors") or []
        rules: list[Obj] = []
        for part in sorted(self.roles, key=name_of):
            if part is not role and any(matches(selector, labels_of(part)) for selector in selectors):
                rules += [rule for rule in part.get("rules") or [] if rule not in rules]
        if rules != (role.get("rules") or []):
            changed = copied(role)
            changed["rules"] = rules
            self.roles.observe(await self.client.update(changed))
        return None
