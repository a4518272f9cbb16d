"""Nobody hands out more than they hold: the check on every write of a role or a binding."""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.apiserver.authz import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    RBAC_GROUP,
    ROLES,
    Attributes,
    Authorizer,
    Binding,
    Rule,
    rules_of,
)
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import Named, forbidden
from regional.kube.messages import MASTERS, User

GUARDED = frozenset((ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS))


def check_grant(authorizer: Authorizer, user: User, resource: Named, obj: Obj, old: Obj | None) -> None:
    """Raises 403 if the object would give rules that `user` does not hold."""
    if MASTERS in user.groups:
        return
    metadata = obj["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    if resource.plural in ("roles", "clusterroles"):
        if old is not None and old.get("rules") == obj.get("rules"):
            return
        verb, asked_resource, asked_name, rules = "escalate", resource.plural, name, rules_of(obj)
    else:
        if old is not None and (old.get("roleRef"), old.get("subjects")) == (obj.get("roleRef"), obj.get("subjects")):
            return
        reference = obj.get("roleRef") or {}
        kind, asked_name = str(reference.get("kind", "")), str(reference.get("name", ""))
        verb, asked_resource = "bind", "clusterroles" if kind == "ClusterRole" else "roles"
        rules = authorizer.role_rules(Binding(namespace, name, kind, asked_name, ()))
    if authorizer.check(Attributes(user, verb, RBAC_GROUP, asked_resource, "", namespace, asked_name)).allowed:
        return
    held = [rule for binding, _ in authorizer.bindings_of(user, namespace) for rule in authorizer.role_rules(binding)]
    missing = [rule for rule in rules if not _covered(rule, held)]
    if missing:
        groups = ",".join(f'"{group}"' for group in user.groups)
        texts = "\n".join(_text(rule) for rule in missing)
        raise forbidden(
            resource,
            name,
            f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
            f"{texts}",
        )


def _covered(wanted: Rule, held: list[Rule]) -> bool:
    for verb in wanted.verbs:
        for path in wanted.paths:
            if not any(_has(rule.verbs, verb) and _path_covered(path, rule.paths) for rule in held):
                return False
        for group in wanted.groups:
            for resource in wanted.resources:
                for name in wanted.names or {""}:
                    if not any(_rule_covers(rule, verb, group, resource, name) for rule in held):
                        return False
    return True


def _rule_covers(rule: Rule, verb: str, group: str, resource: str, name: str) -> bool:
    _, _, part = resource.partition("/")
    resources = rule.resources
    return (
        _has(rule.verbs, verb)
        and _has(rule.groups, group)
        and (_has(resources, resource) or (bool(part) and f"*/{part}" in resources))
        and (not rule.names or name in rule.names)
    )


def _has(words: frozenset[str], word: str) -> bool:
    return word in words or "*" in words


def _path_covered(path: str, held: Iterable[str]) -> bool:
    return any(path == each or (each.endswith("*") and path.startswith(each[:-1])) for each in held)


def _text(rule: Rule) -> str:
    def words(items: Iterable[str]) -> str:
        return "[" + ", ".join(f'"{item}"' for item in sorted(items)) + "]"

    if rule.paths:
        return f"{{NonResourceURLs:{words(rule.paths)}, Verbs:{words(rule.verbs)}}}"
    parts = [f"APIGroups:{words(rule.groups)}", f"Resources:{words(rule.resources)}"]
    if rule.names:
        parts.append(f"ResourceNames:{words(rule.names)}")
    return "{" + ", ".join([*parts, f"Verbs:{words(rule.verbs)}"]) + "}"
