"""Which options of a bundle are for which manifest, in which order manifests are applied, and what is left behind."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import msgspec

from regional.maestro.agent.rules import COMPLETE
from regional.maestro.agent.works import Ref
from regional.maestro.protocol.bundles import (
    ConditionRule,
    DeleteOption,
    FeedbackRule,
    Identifier,
    ManifestConfig,
    UpdateStrategy,
)

# What others stand on comes first; what is not named here (custom resources among it) comes last. Deleting goes the
# other way round, so that a controller still finds what it needs to clean up.
_ORDER = (
    ("Namespace", "CustomResourceDefinition", "PriorityClass", "StorageClass"),
    ("ResourceQuota", "LimitRange", "NetworkPolicy", "ServiceAccount", "Secret", "ConfigMap", "PersistentVolume"),
    ("ClusterRole", "Role", "PersistentVolumeClaim", "PodDisruptionBudget"),
    ("ClusterRoleBinding", "RoleBinding", "Service"),
    ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Pod", "Job", "CronJob", "HorizontalPodAutoscaler"),
)
RANKS = {kind: rank for rank, kinds in enumerate(_ORDER) for kind in kinds}
LAST = len(_ORDER)


def rank_of(kind: str) -> int:
    return RANKS.get(kind, LAST)


class Option(msgspec.Struct, frozen=True):
    strategy: UpdateStrategy = UpdateStrategy()
    feedback: tuple[FeedbackRule, ...] = ()
    condition_rules: tuple[ConditionRule, ...] = ()

    @property
    def read_only(self) -> bool:
        return self.strategy.type == "ReadOnly"

    @property
    def can_complete(self) -> bool:
        return any(rule.condition == COMPLETE for rule in self.condition_rules)


def option_for(ref: Ref, configs: Sequence[ManifestConfig] | None) -> Option:
    """The first configuration that matches and has something to say about it wins, for each thing apart."""
    strategy: UpdateStrategy | None = None
    feedback: tuple[FeedbackRule, ...] = ()
    rules: tuple[ConditionRule, ...] = ()
    for config in configs or ():
        if not matches(config.resource_identifier, ref):
            continue
        strategy = strategy or config.update_strategy
        feedback = feedback or tuple(config.feedback_rules)
        rules = rules or tuple(config.condition_rules)
    return Option(strategy or UpdateStrategy(), feedback, rules)


def matches(identifier: Identifier, ref: Ref) -> bool:
    return (
        identifier.group == ref.group
        and identifier.resource == ref.resource
        and _fits(identifier.namespace, ref.namespace)
        and _fits(identifier.name, ref.name)
    )


def _fits(pattern: str, text: str) -> bool:
    if "*" not in pattern:
        return pattern == text
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


def orphaned(ref: Ref, option: DeleteOption | None) -> bool:
    """Whether the object stays when its bundle goes."""
    if option is None or option.propagation_policy == "Foreground":
        return False
    if option.propagation_policy == "Orphan":
        return True
    rules = option.selectively_orphans.orphaning_rules if option.selectively_orphans else []
    return any(matches(rule, ref) for rule in rules)


def unknown_strategy(option: Option) -> str:
    """What this agent does not know is said, not passed over: applying without it would be something else."""
    if option.strategy.type not in ("Update", "CreateOnly", "ServerSideApply", "ReadOnly"):
        return f"update strategy {option.strategy.type!r} is not known"
    apply = option.strategy.server_side_apply
    for fields in apply.ignore_fields if apply else ():
        if fields.condition not in ("OnSpokePresent", "OnSpokeChange"):
            return f"ignoreFields condition {fields.condition!r} is not known"
    return ""
