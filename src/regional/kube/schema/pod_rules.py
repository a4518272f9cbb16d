"""What a pod spec must satisfy, in a Pod or in any template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import duplicate, forbidden, invalid, not_found, one_of, required
from regional.kube.schema.names import dns_label, dns_subdomain, env_name, port_name
from regional.kube.schema.quantity import parse_quantity
from regional.kube.schema.typed import clone

_PORT_RANGE = "must be between 1 and 65535, inclusive"
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_UPDATABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod_spec(spec: Any, field: str, claims: frozenset[str] = frozenset()) -> Iterator[FieldError]:
    """`claims` are volumes that come to the pod from elsewhere: a StatefulSet's claim templates."""
    if not isinstance(spec, dict):
        yield required(f"{field}.containers")
        return
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(volume, volumes, f"{field}.volumes[{index}]")
    volumes |= claims
    if not spec.get("containers"):
        yield required(f"{field}.containers")
    names: set[str] = set()
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield from _container(container, names, volumes, f"{field}.{group}[{index}]")
    yield from one_of(f"{field}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    yield from one_of(f"{field}.dnsPolicy", spec.get("dnsPolicy"), policies)
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            for text in dns_subdomain(spec[name]):
                yield invalid(f"{field}.{name}", spec[name], text)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 1 << 31:
        yield invalid(f"{field}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        yield invalid(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")


def _volume(volume: Obj, names: set[str], field: str) -> Iterator[FieldError]:
    name = volume.get("name")
    if not name:
        yield required(f"{field}.name")
    else:
        for text in dns_label(name):
            yield invalid(f"{field}.name", name, text)
        if name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
    sources = [key for key, value in volume.items() if key != "name" and value is not None]
    for extra in sources[1:]:
        yield forbidden(f"{field}.{extra}", "may not specify more than 1 volume type")
    for source, key in _NAMED_SOURCES:
        if isinstance(volume.get(source), dict) and not volume[source].get(key):
            yield required(f"{field}.{source}.{key}")


# What a volume must name: another object, or a driver.
_NAMED_SOURCES = (
    ("configMap", "name"),
    ("secret", "secretName"),
    ("persistentVolumeClaim", "claimName"),
    ("csi", "driver"),
)


def _container(container: Obj, names: set[str], volumes: set[str], field: str) -> Iterator[FieldError]:
    name = container.get("name")
    if not name:
        yield required(f"{field}.name")
    else:
        for text in dns_label(name):
            yield invalid(f"{field}.name", name, text)
        if name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
    yield from _image(container, field)
    policies = ("Always", "IfNotPresent", "Never")
    yield from one_of(f"{field}.imagePullPolicy", container.get("imagePullPolicy"), policies)
    yield from _ports(container.get("ports"), f"{field}.ports")
    yield from _environment(container.get("env"), f"{field}.env")
    yield from _mounts(container.get("volumeMounts"), volumes, f"{field}.volumeMounts")
    yield from _resources(container.get("resources") or {}, f"{field}.resources")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield from _probe(container.get(probe), f"{field}.{probe}", repeated=probe == "readinessProbe")


def _ports(ports: Any, field: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports or ()):
        number = port.get("containerPort")
        if not number:
            yield required(f"{field}[{index}].containerPort")
        elif not 1 <= number <= 65535:
            yield invalid(f"{field}[{index}].containerPort", number, _PORT_RANGE)
        host = port.get("hostPort")
        if host and not 1 <= host <= 65535:
            yield invalid(f"{field}[{index}].hostPort", host, _PORT_RANGE)
        yield from one_of(f"{field}[{index}].protocol", port.get("protocol"), _PROTOCOLS)
        name = port.get("name")
        if name:
            for text in port_name(name):
                yield invalid(f"{field}[{index}].name", name, text)
            if name in names:
                yield duplicate(f"{field}[{index}].name", name)
            names.add(name)


def _environment(variables: Any, field: str) -> Iterator[FieldError]:
    for index, variable in enumerate(variables or ()):
        name = variable.get("name")
        if not name:
            yield required(f"{field}[{index}].name")
        else:
            for text in env_name(name):
                yield invalid(f"{field}[{index}].name", name, text)
        if variable.get("value") and variable.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            yield invalid(f"{field}[{index}].valueFrom", "", text)


def _mounts(mounts: Any, volumes: set[str], field: str) -> Iterator[FieldError]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts or ()):
        name, path = mount.get("name"), mount.get("mountPath")
        if not name:
            yield required(f"{field}[{index}].name")
        elif name not in volumes:
            yield not_found(f"{field}[{index}].name", name)
        if not path:
            yield required(f"{field}[{index}].mountPath")
        elif path in paths:
            yield invalid(f"{field}[{index}].mountPath", path, "must be unique")
        paths.add(path or "")


def _resources(resources: Obj, field: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    for group in ("limits", "requests"):
        for name, amount in (resources.get(group) or {}).items():
            try:
                value = parse_quantity(str(amount))
            except ValueError:
                continue
            where = f"{field}.{group}[{name}]"
            if value < 0:
                yield invalid(where, str(amount), "must be greater than or equal to 0")
            if group == "requests" and name in limits and value > parse_quantity(str(limits[name])):
                text = f"must be less than or equal to {name} limit of {limits[name]}"
                yield invalid(f"{field}.requests", str(amount), text)


def _probe(probe: Any, field: str, *, repeated: bool) -> Iterator[FieldError]:
    if not isinstance(probe, dict):
        return
    handlers = [name for name in ("exec", "grpc", "httpGet", "tcpSocket") if probe.get(name) is not None]
    if not handlers:
        yield required(field, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{field}.{extra}", "may not specify more than 1 handler type")
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        value = probe.get(name)
        if isinstance(value, int) and value < 0:
            yield invalid(f"{field}.{name}", value, "must be greater than or equal to 0")
    successes = probe.get("successThreshold", 1)
    if not repeated and successes != 1:
        yield invalid(f"{field}.successThreshold", successes, "must be 1")


def _image(container: Obj, field: str) -> Iterator[FieldError]:
    image = container.get("image")
    if not image:
        yield required(f"{field}.image")
    elif image != image.strip():
        yield invalid(f"{field}.image", image, "must not have leading or trailing whitespace")


def validate_new_pod(spec: Any) -> Iterator[FieldError]:
    yield from validate_pod_spec(spec, "spec")
    if isinstance(spec, dict) and spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def validate_pod_update(new: Obj, old: Obj) -> Iterator[FieldError]:
    """A pod is what it was created as, but for a few fields."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    for group in ("containers", "initContainers"):
        names = [[each.get("name") for each in spec.get(group) or ()] for spec in (after, before)]
        if names[0] != names[1]:
            yield forbidden(f"spec.{group}", "pod updates may not add or remove containers")
            return
        for index, container in enumerate(after.get(group) or ()):
            found = list(_image(container, f"spec.{group}[{index}]"))
            yield from (*found, *found)  # which the real server looks at, and tells, twice
    yield from _gates(after, before)
    yield from _deadline(after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    if before.get("schedulingGates") and _narrower(after, before):
        after, before = after | {"nodeSelector": {}}, before | {"nodeSelector": {}}
    if _frozen(after) != _frozen(before):
        yield forbidden("spec", _UPDATABLE)
    kept = [_lasting(toleration) for toleration in after.get("tolerations") or ()]
    if any(_lasting(toleration) not in kept for toleration in before.get("tolerations") or ()):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _narrower(after: Obj, before: Obj) -> bool:
    """A pod that waits behind a gate may be asked for more of its node, never for less."""
    wanted = after.get("nodeSelector") or {}
    return all(wanted.get(label) == value for label, value in (before.get("nodeSelector") or {}).items())


def _lasting(toleration: Obj) -> Obj:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _gates(after: Obj, before: Obj) -> Iterator[FieldError]:
    known = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)


def _deadline(after: int | None, before: int | None) -> Iterator[FieldError]:
    field = "spec.activeDeadlineSeconds"
    if after is None and before is not None:
        yield invalid(field, None, "must not update from a positive integer to nil value")
    elif after is not None and not 0 < after < 1 << 31:
        yield invalid(field, after, "must be between 1 and 2147483647, inclusive")
    elif after is not None and before is not None and after > before:
        yield invalid(field, after, "must be less than or equal to previous value")


def _frozen(spec: Obj) -> Obj:
    kept: Obj = clone(spec)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        kept.pop(name, None)
    if kept.get("terminationGracePeriodSeconds") in (1, None):
        kept.pop("terminationGracePeriodSeconds", None)
    for group in ("containers", "initContainers"):
        for container in kept.get(group) or ():
            container.pop("image", None)
    return kept
