"""RBAC: who may do what. Roles and bindings are kept decoded and indexed by subject, and follow the store's events at
once, so that a check costs a few dictionary look-ups and never sees yesterday's rules."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.kube.apiserver.entries import Key, Obj
from regional.kube.apiserver.shelf import Event
from regional.kube.apiserver.store import Store
from regional.kube.messages import MASTERS, User

RBAC_GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{RBAC_GROUP}", f"clusterroles.{RBAC_GROUP}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{RBAC_GROUP}", f"clusterrolebindings.{RBAC_GROUP}"

Subject = tuple[str, str, str]  # kind, namespace (service accounts only), name


class Attributes(msgspec.Struct, frozen=True):
    """One question. `path` is set for non-resource requests, the others for resources."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True):
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]

    def allows(self, asked: Attributes) -> bool:
        if not (asked.verb in self.verbs or "*" in self.verbs):
            return False
        if asked.path:
            return any(
                asked.path == path or (path.endswith("*") and asked.path.startswith(path[:-1])) for path in self.paths
            )
        if not (asked.group in self.groups or "*" in self.groups):
            return False
        return self._covers(asked) and (not self.names or asked.name in self.names)

    def _covers(self, asked: Attributes) -> bool:
        if "*" in self.resources:
            return True
        if not asked.subresource:
            return asked.resource in self.resources
        whole = f"{asked.resource}/{asked.subresource}"
        return whole in self.resources or f"*/{asked.subresource}" in self.resources


class Binding(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    role_kind: str
    role: str
    subjects: tuple[Subject, ...]


class Verdict(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


def rules_of(role: Obj) -> tuple[Rule, ...]:
    return tuple(rule_of(rule) for rule in role.get("rules") or ())


def rule_of(rule: dict[str, Any]) -> Rule:
    def words(key: str) -> frozenset[str]:
        return frozenset(rule.get(key) or ())

    return Rule(
        words("verbs"),
        words("apiGroups"),
        words("resources"),
        words("resourceNames"),
        tuple(rule.get("nonResourceURLs") or ()),
    )


class Authorizer:
    def __init__(self, store: Store) -> None:
        self._roles: dict[str, dict[Key, tuple[Rule, ...]]] = {ROLES: {}, CLUSTER_ROLES: {}}
        self._bindings: dict[str, dict[Key, Binding]] = {BINDINGS: {}, CLUSTER_BINDINGS: {}}
        self._by_subject: dict[tuple[str, Subject], list[Binding]] | None = None  # (namespace or "", subject)
        for resource in (*self._roles, *self._bindings):
            for entry in store.shelf(resource).entries.values():
                self._learn(resource, entry.key, entry.obj())
        store.observe(self._follow)

    def _follow(self, resource: str, event: Event) -> None:
        if resource in self._roles or resource in self._bindings:
            gone = event.type == "DELETED"
            self._learn(resource, event.entry.key, None if gone else event.entry.obj())

    def _learn(self, resource: str, key: Key, obj: Obj | None) -> None:
        if resource in self._roles:
            if obj is None:
                self._roles[resource].pop(key, None)
            else:
                self._roles[resource][key] = rules_of(obj)
            return
        self._by_subject = None
        if obj is None:
            self._bindings[resource].pop(key, None)
        else:
            self._bindings[resource][key] = _binding_of(key, obj)

    def _subjects(self) -> dict[tuple[str, Subject], list[Binding]]:
        if self._by_subject is None:
            self._by_subject = {}
            for table in self._bindings.values():
                for binding in table.values():
                    for subject in binding.subjects:
                        self._by_subject.setdefault((binding.namespace, subject), []).append(binding)
        return self._by_subject

    def role_rules(self, binding: Binding) -> tuple[Rule, ...]:
        if binding.role_kind == "ClusterRole":
            return self._roles[CLUSTER_ROLES].get(("", binding.role), ())
        return self._roles[ROLES].get((binding.namespace, binding.role), ())

    def has_role(self, namespace: str, kind: str, name: str) -> bool:
        resource, place = (CLUSTER_ROLES, "") if kind == "ClusterRole" else (ROLES, namespace)
        return (place, name) in self._roles[resource]

    def bindings_of(self, user: User, namespace: str) -> list[tuple[Binding, Subject]]:
        """Bindings that reach this user in the cluster and in the namespace."""
        index = self._subjects()
        found: list[tuple[Binding, Subject]] = []
        for place in ("", namespace) if namespace else ("",):
            for subject in _subjects_of(user):
                found += [(binding, subject) for binding in index.get((place, subject), ())]
        return found

    def check(self, asked: Attributes) -> Verdict:
        if MASTERS in asked.user.groups:
            return Verdict(True)
        for binding, subject in self.bindings_of(asked.user, asked.namespace):
            for rule in self.role_rules(binding):
                if rule.allows(asked):
                    return Verdict(True, _because(binding, subject))
        return Verdict(False)


def _binding_of(key: Key, obj: Obj) -> Binding:
    reference = obj.get("roleRef") or {}
    subjects = []
    for subject in obj.get("subjects") or ():
        kind = subject.get("kind", "")
        namespace = subject.get("namespace", "") if kind == "ServiceAccount" else ""
        subjects.append((kind, namespace, subject.get("name", "")))
    return Binding(key[0], key[1], reference.get("kind", ""), reference.get("name", ""), tuple(subjects))


def _subjects_of(user: User) -> list[Subject]:
    subjects: list[Subject] = [("User", "", user.name)]
    if user.name.startswith("system:serviceaccount:") and user.name.count(":") == 3:
        _, _, namespace, name = user.name.split(":")
        subjects.append(("ServiceAccount", namespace, name))
    return subjects + [("Group", "", group) for group in user.groups]


def _because(binding: Binding, subject: Subject) -> str:
    kind, namespace, name = subject
    if binding.namespace:
        via, place = "RoleBinding", f"{binding.name}/{binding.namespace}"
    else:
        via, place = "ClusterRoleBinding", binding.name
    who = f"{name}/{namespace}" if namespace else name
    return f'RBAC: allowed by {via} "{place}" of {binding.role_kind} "{binding.role}" to {kind} "{who}"'


def denial(asked: Attributes) -> str:
    """The sentence after `is forbidden: `, or after `forbidden: ` for a path."""
    if asked.path:
        return f'User "{asked.user.name}" cannot {asked.verb} path "{asked.path}"'
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return f'User "{asked.user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {scope}'
