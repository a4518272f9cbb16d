"""The gates of a HostedCluster: what the API server cannot know, said as conditions instead of a refusal.

Object accepted, condition False, nothing made; and as soon as the reason is gone (a Secret arrives, a field is mended)
the cluster goes on without a touch.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime
from itertools import combinations

import msgspec

from regional.hypershift import releases
from regional.hypershift.conditions import Finding, false, true
from regional.hypershift.names import (
    FORCE_UPGRADE_TO,
    NAMESPACE_LENGTH,
    SKIP_RELEASE_VALIDATION,
    cluster_of,
    control_plane_namespace,
)
from regional.hypershift.releases import Release, UnknownRelease
from regional.kube.objects import Key, Obj, annotations_of, is_true, key_of, parse_time, spec_of, status_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PULL_SECRET_KEY = ".dockerconfigjson"
_AWS_PUBLISHING = {
    "APIServer": ("Route", "LoadBalancer"),
    "OAuthServer": ("Route",),
    "Konnectivity": ("Route",),
    "Ignition": ("Route",),
}
_DOCUMENTED_IMMUTABLE = ("platform.aws.region", "platform.aws.rolesRef", "platform.aws.cloudProviderConfig")


class Surroundings(msgspec.Struct, frozen=True):
    """What is around a HostedCluster: looked up by the reconciler, judged here."""

    now: datetime
    pull_secret: Obj | None = None
    namespace: Obj | None = None
    """Whatever has the name that the control plane's namespace would have."""
    control_plane: Obj | None = None


class Gates(msgspec.Struct, frozen=True):
    findings: dict[str, Finding]
    release: Release | None
    paused: bool

    @property
    def blocked(self) -> str:
        """The first reason why nothing may be made or changed; "" if there is none."""
        for kind, finding in self.findings.items():
            if kind != "ReconciliationActive" and finding.status == "False":
                return f"{kind}: {finding.message}"
        return ""

    @property
    def carried_out(self) -> Release | None:
        """The release that is brought about now; None while nothing may be made or changed, whatever is asked for."""
        return None if self.blocked or self.paused else self.release


def judge(hosted: Obj, around: Surroundings) -> Gates:
    release, image = _release(hosted, around)
    active = _active(spec_of(hosted), around.now)
    findings = {
        "ValidConfiguration": _configuration(hosted, around),
        "SupportedHostedCluster": _supported(hosted),
        "ValidReleaseImage": image,
        "ReconciliationActive": active,
    }
    return Gates(findings, release, active.reason == "ReconciliationPaused")


# -- pausing ----------------------------------------------------------------------------------------------------------


def _active(spec: Obj, now: datetime) -> Finding:
    text = str(spec.get("pausedUntil") or "")
    if text.lower() in ("", "false"):
        return true()
    if text.lower() == "true":
        return false("ReconciliationPaused", "paused until spec.pausedUntil is changed")
    until = parse_time(text)
    if until is None:
        return Finding(
            "True", "InvalidPausedUntilValue", f"pausedUntil {text!r} is neither true nor a time: not paused"
        )
    return false("ReconciliationPaused", f"paused until {text}") if until > now else true()


# -- the release ------------------------------------------------------------------------------------------------------


def _release(hosted: Obj, around: Surroundings) -> tuple[Release | None, Finding]:
    spec = spec_of(hosted)
    image = str(spec["release"]["image"])
    secret_name = spec["pullSecret"].get("name", "")
    if around.pull_secret is None:
        return None, false("SecretNotFound", f'pull secret "{secret_name}" not found')
    if PULL_SECRET_KEY not in (around.pull_secret.get("data") or {}):
        return None, false("SecretNotFound", f'pull secret "{secret_name}" has no key {PULL_SECRET_KEY}')
    if SKIP_RELEASE_VALIDATION in annotations_of(hosted):
        return _skipped(image), true(message="Release image validation is skipped by annotation")
    try:
        release = releases.parse(image)
    except UnknownRelease as error:
        return None, false("InvalidImage", str(error))
    if problem := releases.unsupported(release) or _step_problem(hosted, release):
        return None, false("InvalidImage", problem)
    return release, true(message=f"Release {release.version} is valid")


def _skipped(image: str) -> Release:
    try:
        return releases.parse(image)
    except UnknownRelease:
        newest = releases.parse(f":{releases.NEWEST}.0")
        return msgspec.structs.replace(newest, image=image)


def _step_problem(hosted: Obj, release: Release) -> str:
    """What forbids the step from the version that runs to this one."""
    history = (status_of(hosted).get("controlPlaneVersion") or {}).get("history") or []
    current = next((entry["version"] for entry in history if entry["state"] == "Completed"), "")
    if not current:
        return ""
    running = releases.parse(f":{current}")
    if release.stream < running.stream:
        return f"downgrade of the minor version from {current} to {release.version} is not supported"
    forced = annotations_of(hosted).get(FORCE_UPGRADE_TO) == release.image
    upgradeable = is_true(hosted, "ClusterVersionUpgradeable") or not _has(hosted, "ClusterVersionUpgradeable", "False")
    if release.stream > running.stream and not upgradeable and not forced:
        return f"the cluster says that it is not upgradeable from {current} to {release.version}"
    return ""


def _has(hosted: Obj, kind: str, status: str) -> bool:
    return any(c["type"] == kind and c["status"] == status for c in status_of(hosted).get("conditions") or [])


# -- the configuration ------------------------------------------------------------------------------------------------


def _configuration(hosted: Obj, around: Surroundings) -> Finding:
    problems = [
        *_namespace_problems(hosted, around.namespace),
        *_network_problems(spec_of(hosted)),
        *_publishing_problems(spec_of(hosted)),
        *_changed(hosted, around.control_plane),
    ]
    return (
        false("InvalidConfiguration", "; ".join(problems))
        if problems
        else true(message="Configuration passes validation")
    )


def _namespace_problems(hosted: Obj, namespace: Obj | None) -> list[str]:
    name = control_plane_namespace(hosted)
    if len(name) > NAMESPACE_LENGTH:
        return [
            f"the control plane's namespace {name} would have {len(name)} characters; {NAMESPACE_LENGTH} are allowed"
        ]
    if namespace is None or cluster_of(namespace) == key_of(hosted):
        return []
    owner: Key | None = cluster_of(namespace)
    whose = f"belongs to hosted cluster {'/'.join(owner)}" if owner else "exists and is no control plane's"
    return [f"the control plane's namespace {name} {whose}"]


def _network_problems(spec: Obj) -> list[str]:
    networks: list[tuple[str, Network]] = []
    problems: list[str] = []
    for field in ("clusterNetwork", "serviceNetwork", "machineNetwork"):
        for entry in spec["networking"].get(field) or []:
            try:
                networks.append((field, ipaddress.ip_network(entry["cidr"], strict=False)))
            except ValueError as error:
                problems.append(f"networking.{field}: {error}")
    for (one, first), (other, second) in combinations(networks, 2):
        if first.version == second.version and first.overlaps(second):
            problems.append(f"{one} {first} and {other} {second} overlap")
    if any(network.version == 6 for field, network in networks if field == "serviceNetwork"):
        problems.append("networking.serviceNetwork: IPv6 services are not offered on this machine")
    return problems


def _publishing_problems(spec: Obj) -> list[str]:
    problems: list[str] = []
    hostnames: set[str] = set()
    for entry in spec.get("services") or []:
        service, strategy = entry["service"], entry["servicePublishingStrategy"]
        if service == "Ignition" and strategy["type"] == "LoadBalancer":
            problems.append("Ignition cannot be published by a LoadBalancer")
        allowed = _AWS_PUBLISHING.get(service, ())
        if spec["platform"]["type"] == "AWS" and allowed and strategy["type"] not in allowed:
            problems.append(f"on AWS {service} is published by {' or '.join(allowed)}, not by {strategy['type']}")
        name = (strategy.get("route") or strategy.get("loadBalancer") or {}).get("hostname")
        if name and name in hostnames:
            problems.append(f"hostname {name} is published twice")
        hostnames.add(name or "")
    return problems


def _changed(hosted: Obj, control_plane: Obj | None) -> list[str]:
    """Fields that are immutable by their documentation, though the API server lets them pass."""
    if control_plane is None:
        return []
    before, now = spec_of(control_plane), spec_of(hosted)
    return [
        f"{path} is immutable"
        for path in _DOCUMENTED_IMMUTABLE
        if _at(before, path) is not None and _at(before, path) != _at(now, path)
    ]


def _at(spec: Obj, path: str) -> object:
    value: object = spec
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _supported(hosted: Obj) -> Finding:
    access = (spec_of(hosted)["platform"].get("aws") or {}).get("endpointAccess", "Public")
    if access != "Public":
        text = f"endpointAccess {access} needs private links, which this operator has no credentials for"
        return false("UnsupportedHostedCluster", text)
    return true(message="HostedCluster is supported by this operator")
