"""What pods and the kinds that make pods must satisfy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import GoStruct, forbidden, invalid, not_negative, one_of, required, unsupported
from regional.kube.schema.metadata_rules import validate_labels
from regional.kube.schema.names import qualified_name
from regional.kube.schema.pod_rules import validate_new_pod, validate_pod_spec, validate_pod_update

Rule = Callable[[Obj, "Obj | None"], Iterator[FieldError]]

_STATEFUL_SET_UPDATABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _spec(obj: Obj) -> Obj:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def workload(name: str) -> Rule:
    def check(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        spec = _spec(obj)
        yield from not_negative("spec.replicas", spec.get("replicas"))
        yield from _selected_template(spec, name)

    return check


def deployment(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    yield from workload("deployment")(obj, old)
    spec = _spec(obj)
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        yield forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif strategy.get("type") == "RollingUpdate":
        yield from _rolling(rolling or {}, "spec.strategy.rollingUpdate")
    else:
        yield from _known_strategy("spec.strategy", strategy, ("Recreate", "RollingUpdate"))
    least, deadline = spec.get("minReadySeconds") or 0, spec.get("progressDeadlineSeconds")
    yield from not_negative("spec.minReadySeconds", least)
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    if isinstance(deadline, int):
        yield from not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= least:
            yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def daemon_set(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    yield from workload("daemonset")(obj, old)
    strategy = _spec(obj).get("updateStrategy") or {}
    yield from not_negative("spec.minReadySeconds", _spec(obj).get("minReadySeconds"))
    yield from _known_strategy("spec.updateStrategy", strategy, ("RollingUpdate", "OnDelete"))


def _known_strategy(field: str, strategy: Obj, known: tuple[str, ...]) -> Iterator[FieldError]:
    if strategy.get("type") not in known:
        # Printed as the internal Go struct, which has no names for JSON.
        printed = GoStruct(Type=strategy.get("type") or "", RollingUpdate=strategy.get("rollingUpdate"))
        yield unsupported(field, printed, known)


_PERCENT = re.compile(r"[0-9]+%")


def _amount(field: str, value: Any) -> Iterator[FieldError]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        yield invalid(field, value, text)
    yield from not_negative(field, value)


def _rolling(rolling: Obj, field: str) -> Iterator[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from _amount(f"{field}.maxUnavailable", unavailable)
    yield from _amount(f"{field}.maxSurge", surge)
    if unavailable in (0, "0%") and surge in (0, "0%"):
        yield invalid(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
    if isinstance(unavailable, str) and _PERCENT.fullmatch(unavailable) and int(unavailable[:-1]) > 100:
        yield invalid(f"{field}.maxUnavailable", unavailable, "must not be greater than 100%")


def _selected_template(spec: Obj, name: str) -> Iterator[FieldError]:
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    yield from validate_labels(labels, "spec.template.metadata.labels")
    unreadable = False
    if selector is None:
        yield required("spec.selector")
    else:
        problems = list(_expressions(selector, "spec.selector"))
        yield from problems
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid("spec.selector", selector, f"empty selector is invalid for {name}")
            unreadable = True
        elif problems:
            yield invalid("spec.selector", selector, "invalid label selector")
            unreadable = True
    if not unreadable and (selector is None or not selects(selector, labels)):
        wrong = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels or None, wrong)
    inner = template.get("spec")
    claims = frozenset((c.get("metadata") or {}).get("name", "") for c in spec.get("volumeClaimTemplates") or ())
    yield from validate_pod_spec(inner, "spec.template.spec", claims)
    if isinstance(inner, dict) and inner.get("restartPolicy") not in (None, "Always"):
        yield from one_of("spec.template.spec.restartPolicy", inner["restartPolicy"], ("Always",))


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def _expressions(selector: Obj, field: str) -> Iterator[FieldError]:
    for index, rule in enumerate(selector.get("matchExpressions") or ()):
        where, operator, values = f"{field}.matchExpressions[{index}]", rule.get("operator"), rule.get("values")
        if operator in ("In", "NotIn") and not values:
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        elif operator not in _OPERATORS:
            yield invalid(f"{where}.operator", operator or "", "not a valid selector operator")
        for text in qualified_name(rule.get("key") or ""):
            yield invalid(f"{where}.key", rule.get("key") or "", text)


def selects(selector: Obj, labels: Obj) -> bool:
    """Whether a label selector object matches a set of labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(rule, labels) for rule in selector.get("matchExpressions") or ())


def _expression(rule: Obj, labels: Obj) -> bool:
    key, values = str(rule.get("key")), rule.get("values") or []
    present = key in labels
    return {
        "In": present and labels.get(key) in values,
        "NotIn": not present or labels.get(key) not in values,
        "Exists": present,
        "DoesNotExist": not present,
    }.get(rule.get("operator") or "", False)


def stateful_set(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    strategy = _spec(obj).get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    if rolling is not None and strategy.get("type") == "OnDelete":
        printed = GoStruct(Partition=rolling.get("partition", 0), MaxUnavailable=rolling.get("maxUnavailable"))
        yield invalid("spec.updateStrategy.rollingUpdate", printed, "only allowed for updateStrategy 'RollingUpdate'")
    yield from workload("statefulset")(obj, old)
    if old is None:
        return
    kept, before = dict(_spec(obj)), dict(_spec(old))
    for field in _STATEFUL_SET_UPDATABLE:
        kept.pop(field, None)
        before.pop(field, None)
    if kept != before:
        listed = ", ".join(f"'{field}'" for field in _STATEFUL_SET_UPDATABLE[:-1])
        yield forbidden(
            "spec",
            f"updates to statefulset spec for fields other than {listed} and "
            f"'{_STATEFUL_SET_UPDATABLE[-1]}' are forbidden",
        )


def pod(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    if old is None:
        yield from validate_new_pod(obj.get("spec"))
    else:
        yield from validate_pod_update(obj, old)


def job(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    for field in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        yield from not_negative(f"spec.{field}", spec.get(field))
    if old is None:
        yield from _job_selector(obj)
        yield from _job_template(spec, "spec.template.spec")


_JOB_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


def _job_selector(job: Obj) -> Iterator[FieldError]:
    """A selector of one's own takes `manualSelector`: it may match others' pods, which the Job would count and end."""
    spec, metadata = _spec(job), job["metadata"]
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None:
        yield required("spec.selector")
    elif not spec.get("manualSelector"):
        expected = {key: metadata["uid" if key.endswith("uid") else "name"] for key in _JOB_LABELS}
        for key, value in expected.items():
            if labels.get(key) != value:
                yield invalid(f"spec.template.metadata.labels[{key}]", labels, f"must be '{value}'")
        if not selects(selector, expected):
            yield invalid("spec.selector", selector, "`selector` not auto-generated")
    if selector is None or not selects(selector, labels):
        wrong = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels or None, wrong)


def _job_template(spec: Obj, field: str) -> Iterator[FieldError]:
    inner = (spec.get("template") or {}).get("spec")
    yield from validate_pod_spec(inner, field)
    if not isinstance(inner, dict) or inner.get("restartPolicy") in (None, "Always"):
        yield required(f"{field}.restartPolicy", 'valid values: "OnFailure", "Never"')


def cron_job(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if not spec.get("schedule"):
        yield required("spec.schedule")
    elif len(spec["schedule"].split()) != 5 and not spec["schedule"].startswith("@"):
        found = spec["schedule"].split()
        yield invalid(
            "spec.schedule", spec["schedule"], f"expected exactly 5 fields, found {len(found)}: [{' '.join(found)}]"
        )
    yield from one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"))
    inner = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from _job_template(inner, "spec.jobTemplate.spec.template.spec")


def disruption_budget(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        # Printed as the internal Go struct, which has no names for JSON.
        names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
        printed = GoStruct({name[0].upper() + name[1:]: spec.get(name) for name in names})
        yield invalid("spec", printed, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        yield from _amount(f"spec.{field}", spec.get(field))


def autoscaler(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    most, least = spec.get("maxReplicas") or 0, spec.get("minReplicas") or 1
    if most < 1:
        yield invalid("spec.maxReplicas", most, "must be greater than 0")
    elif most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        if not target.get(field):
            yield required(f"spec.scaleTargetRef.{field}")
    if not target.get("apiVersion"):
        yield invalid("spec.scaleTargetRef.apiVersion", "", "apiVersion must specify API group")
