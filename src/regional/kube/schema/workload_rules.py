"""What pods and the kinds that make pods must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from regional.kube.objects import Obj
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import forbidden, invalid, not_negative, one_of, required
from regional.kube.schema.metadata_rules import validate_labels
from regional.kube.schema.pod_rules import validate_pod_spec, validate_pod_update

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


def _selected_template(spec: Obj, name: str) -> Iterator[FieldError]:
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    yield from validate_labels(labels, "spec.template.metadata.labels")
    if selector is None:
        yield required("spec.selector")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {name}")
    elif not selects(selector, labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    inner = template.get("spec")
    claims = frozenset((c.get("metadata") or {}).get("name", "") for c in spec.get("volumeClaimTemplates") or ())
    yield from validate_pod_spec(inner, "spec.template.spec", claims)
    if isinstance(inner, dict) and inner.get("restartPolicy") not in (None, "Always"):
        yield from one_of("spec.template.spec.restartPolicy", inner["restartPolicy"], ("Always",))


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
        yield from validate_pod_spec(obj.get("spec"), "spec")
    else:
        yield from validate_pod_update(obj, old)


def job(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    for field in ("completions", "parallelism", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        yield from not_negative(f"spec.{field}", spec.get(field))
    if old is None:
        yield from _job_template(spec, "spec.template.spec")


def _job_template(spec: Obj, field: str) -> Iterator[FieldError]:
    inner = (spec.get("template") or {}).get("spec")
    yield from validate_pod_spec(inner, field)
    if isinstance(inner, dict) and inner.get("restartPolicy") in (None, "Always"):
        yield required(f"{field}.restartPolicy", 'valid values: "OnFailure", "Never"')


def cron_job(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if not spec.get("schedule"):
        yield required("spec.schedule")
    elif len(spec["schedule"].split()) != 5 and not spec["schedule"].startswith("@"):
        found = len(spec["schedule"].split())
        yield invalid("spec.schedule", spec["schedule"], f"expected exactly 5 fields, found {found}")
    yield from one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"))
    inner = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from _job_template(inner, "spec.jobTemplate.spec.template.spec")


def disruption_budget(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


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
