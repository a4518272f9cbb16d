"""The order of a sync: phases, waves, kinds, names; and what annotations on an object ask for.

A pure plan, no cluster in sight. Hooks are objects that run in a phase and are not kept; the others are applied in the
Sync phase; what is no longer wanted is pruned in the reverse order of its waves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regional.gitops.manifests import ObjectKey, group_of
from regional.kube.objects import Obj, annotations_of, name_of, namespace_of

HOOK = "argocd.argoproj.io/hook"
HOOK_DELETE = "argocd.argoproj.io/hook-delete-policy"
WAVE = "argocd.argoproj.io/sync-wave"
OPTIONS = "argocd.argoproj.io/sync-options"
HELM_HOOK = "helm.sh/hook"
HELM_DELETE = "helm.sh/hook-delete-policy"
HELM_WEIGHT = "helm.sh/hook-weight"

PRE, SYNC, POST, FAIL = "PreSync", "Sync", "PostSync", "SyncFail"
PHASES = (PRE, SYNC, POST, FAIL)
_OTHER_HOOKS = ("Skip", "PostDelete", "PreDelete")
_HELM_PHASES = {"pre-install": PRE, "pre-upgrade": PRE, "post-install": POST, "post-upgrade": POST, "crd-install": PRE}
_HELM_POLICIES = {
    "before-hook-creation": "BeforeHookCreation",
    "hook-succeeded": "HookSucceeded",
    "hook-failed": "HookFailed",
}
_KINDS = [
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
]
_KIND_ORDER = {kind: position - len(_KINDS) for position, kind in enumerate(_KINDS)}


@dataclass(slots=True, eq=False)
class Task:
    """One object in one phase. `target` to apply, or None to prune `live`."""

    phase: str
    wave: int
    target: Obj | None
    live: Obj | None
    hook: bool = False
    state: str = ""  # "" (pending), Running, Succeeded, Failed
    status: str = ""  # Synced, SyncFailed, Pruned, PruneSkipped
    message: str = ""
    key: ObjectKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = ObjectKey.of(self.obj)

    @property
    def obj(self) -> Obj:
        found = self.target if self.target is not None else self.live
        assert found is not None
        return found

    @property
    def prune(self) -> bool:
        return self.target is None

    @property
    def pending(self) -> bool:
        return not self.state

    @property
    def completed(self) -> bool:
        return self.state in ("Succeeded", "Failed")

    def order(self) -> tuple[int, int, int, str]:
        return (PHASES.index(self.phase), self.wave, _KIND_ORDER.get(self.key.kind, 0), self.key.name)


def wave_of(obj: Obj) -> int:
    annotations = annotations_of(obj)
    raw = annotations.get(WAVE)
    if raw is None and HELM_HOOK in annotations:
        raw = annotations.get(HELM_WEIGHT)
    try:
        return int(raw) if raw is not None else 0
    except ValueError:
        return 0


def hook_phases(obj: Obj) -> list[str]:
    """Phases in which a hook runs; ["Skip"] for what is never applied; [] for an ordinary object."""
    annotations = annotations_of(obj)
    names = [name.strip() for name in annotations.get(HOOK, "").split(",") if name.strip()]
    if names:
        known = [name for name in names if name in PHASES]
        return known or (["Skip"] if any(name in _OTHER_HOOKS for name in names) else [])
    helm = [name.strip() for name in annotations.get(HELM_HOOK, "").split(",") if name.strip()]
    if not helm or helm == ["crd-install"]:
        return []
    # Hooks of deletion, rollback and test have no place in a sync.
    return list(dict.fromkeys(_HELM_PHASES[name] for name in helm if name in _HELM_PHASES)) or ["Skip"]


def delete_policies(obj: Obj) -> set[str]:
    annotations = annotations_of(obj)
    found = {name.strip() for name in annotations.get(HOOK_DELETE, "").split(",") if name.strip()}
    for name in annotations.get(HELM_DELETE, "").split(","):
        if name.strip() in _HELM_POLICIES:
            found.add(_HELM_POLICIES[name.strip()])
    return found or {"BeforeHookCreation"}


def options_of(obj: Obj) -> dict[str, str]:
    return parse_options(annotations_of(obj).get(OPTIONS, "").split(","))


def parse_options(options: Iterable[str]) -> dict[str, str]:
    pairs = (option.strip().partition("=") for option in options if "=" in option)
    return {name: value for name, _, value in pairs}


def has_option(obj: Obj, options: Mapping[str, str], name: str, value: str = "true") -> bool:
    """An object's own word outweighs its Application's."""
    return options_of(obj).get(name, options.get(name, "")) == value


def spared(obj: Obj, option: str) -> bool:
    """Of `Prune` or `Delete`: not at all, or not before somebody confirms it, which nobody can here."""
    return options_of(obj).get(option) in ("false", "confirm")


def plan(
    targets: Sequence[Obj],
    lives: Mapping[ObjectKey, Obj],
    prunable: Iterable[Obj],
    *,
    options: Mapping[str, str],
    revision: str,
    started: int,
    with_hooks: bool = True,
) -> list[Task]:
    """Tasks in the order they run. `started` (Unix seconds) and the revision name hooks that have only a prefix."""
    tasks: list[Task] = []
    for target in targets:
        phases = hook_phases(target)
        if phases == ["Skip"] or (phases and not with_hooks):
            continue
        for phase in phases or [SYNC]:
            obj = _named(target, phase, revision, started) if phases else target
            tasks.append(Task(phase, wave_of(obj), obj, lives.get(ObjectKey.of(obj)), hook=bool(phases)))
    tasks.sort(key=Task.order)
    tasks = _before_dependants(tasks, _namespace_key, lambda obj: namespace_of(obj) or None)
    tasks = _before_dependants(tasks, _definition_key, lambda obj: f"{group_of(obj)}/{obj['kind']}")
    return _with_prunes(tasks, [Task(SYNC, wave_of(obj), None, obj) for obj in prunable], options)


def _named(target: Obj, phase: str, revision: str, started: int) -> Obj:
    if name_of(target):
        return target
    obj = copy.deepcopy(target)
    obj["metadata"]["name"] = f"{obj['metadata']['generateName']}{revision[:7]}-{phase.lower()}-{started}"
    return obj


def _namespace_key(obj: Obj) -> str | None:
    return name_of(obj) if obj["kind"] == "Namespace" and not group_of(obj) else None


def _definition_key(obj: Obj) -> str | None:
    if obj["kind"] != "CustomResourceDefinition":
        return None
    spec: dict[str, Any] = obj.get("spec") or {}
    return f"{spec.get('group')}/{(spec.get('names') or {}).get('kind')}"


def _before_dependants(tasks: list[Task], provides: Any, needs: Any) -> list[Task]:
    """A namespace or CRD comes, in phase and wave, no later than the first object that cannot live without it."""
    out: list[Task] = []
    for task in tasks:
        provided = provides(task.obj)
        first = next((n for n, other in enumerate(out) if provided and needs(other.obj) == provided), None)
        if first is None:
            out.append(task)
        else:
            task.phase, task.wave = out[first].phase, out[first].wave
            out.insert(first, task)
    return out


def _with_prunes(tasks: list[Task], prunes: list[Task], options: Mapping[str, str]) -> list[Task]:
    """Among themselves prunes run last wave first; within a wave they run before what is applied."""
    late = [task for task in prunes if has_option(task.obj, options, "PruneLast")]
    usual = [task for task in prunes if task not in late]
    waves = sorted({task.wave for task in usual})
    mirrored = dict(zip(waves, reversed(waves), strict=True))
    for task in usual:
        task.wave = mirrored[task.wave]
    last = max([task.wave for task in [*tasks, *usual] if task.phase == SYNC], default=0)
    for task in late:
        task.wave = last + 1
    ordered = [*tasks, *prunes]
    # Stable, so that what was moved ahead of its dependants stays there.
    ordered.sort(key=lambda task: (PHASES.index(task.phase), task.wave, not task.prune))
    return ordered
