"""Nobody hands out more than they hold: the check on every write of a role or a binding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

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
from regional.kube.apiserver.errors import Named, forbidden, not_found
from regional.kube.messages import MASTERS, User

GUARDED = frozenset((ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS))


def check_grant(authorizer: Authorizer, user: User, resource: Named, obj: Obj, old: Obj | None) -> None:
    """Raises 403 if the object would give rules that `user` does not hold, 404 if they cannot be known."""
    if MASTERS in user.groups:
        return
    metadata = obj["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    kind = ""
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
    if verb == "bind" and not authorizer.has_role(namespace, kind, asked_name):
        raise not_found(resource, asked_name)
    held = [rule for binding, _ in authorizer.bindings_of(user, namespace) for rule in authorizer.role_rules(binding)]
    if missing := _missing(rules, held):
        groups = _words(user.groups)
        texts = "\n".join(sorted(_text(right, verbs) for right, verbs in missing.items()))
        raise forbidden(
            resource,
            name,
            f'user "{user.name}" (groups={groups}) is attempting to grant RBAC permissions not currently held:\n'
            f"{texts}",
        )


class _Right(msgspec.Struct, frozen=True):
    """The smallest thing a rule can allow, but for the verb."""

    group: str = ""
    resource: str = ""
    name: str = ""
    path: str = ""


def _missing(rules: Iterable[Rule], held: list[Rule]) -> dict[_Right, set[str]]:
    """What of the rules is not held: taken apart to single rights, each with its verbs."""
    missing: dict[_Right, set[str]] = {}
    for rule in rules:
        for right in _rights(rule):
            for verb in rule.verbs:
                if not any(_rule_covers(each, verb, right) for each in held):
                    missing.setdefault(right, set()).add(verb)
    return missing


def _rights(rule: Rule) -> Iterator[_Right]:
    for path in rule.paths:
        yield _Right(path=path)
    for group in rule.groups:
        for resource in rule.resources:
            for name in rule.names or {""}:
                yield _Right(group, resource, name)


def _rule_covers(rule: Rule, verb: str, right: _Right) -> bool:
    if not _has(rule.verbs, verb):
        return False
    if right.path:
        return _path_covered(right.path, rule.paths)
    _, _, part = right.resource.partition("/")
    return (
        _has(rule.groups, right.group)
        and (_has(rule.resources, right.resource) or (bool(part) and f"*/{part}" in rule.resources))
        and (not rule.names or right.name in rule.names)
    )


def _has(words: frozenset[str], word: str) -> bool:
    return word in words or "*" in words


def _path_covered(path: str, held: Iterable[str]) -> bool:
    return any(path == each or (each.endswith("*") and path.startswith(each[:-1])) for each in held)


def _words(items: Iterable[str]) -> str:
    return "[" + " ".join(f'"{item}"' for item in items) + "]"


def _text(right: _Right, verbs: set[str]) -> str:
    if right.path:
        return f"{{NonResourceURLs:{_words([right.path])}, Verbs:{_words(sorted(verbs))}}}"
    parts = [f"APIGroups:{_words([right.group])}", f"Resources:{_words([right.resource])}"]
    if right.name:
        parts.append(f"ResourceNames:{_words([right.name])}")
    return "{" + ", ".join([*parts, f"Verbs:{_words(sorted(verbs))}"]) + "}"
