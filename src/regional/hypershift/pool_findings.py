"""What is the case with a NodePool: validation, digest of what its nodes are made of, conditions. Pure functions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from regional.hypershift import releases
from regional.hypershift.conditions import Finding, Findings, false, true, unknown, well
from regional.hypershift.guest.machines import Template
from regional.hypershift.guest.nodes import PoolNodes
from regional.hypershift.names import control_plane_namespace, request_of
from regional.hypershift.releases import Release, UnknownRelease
from regional.kube.objects import Obj, name_of, parse_time, spec_of, status_of, uid_of

SKEW = 3
_ARCHITECTURES = {"amd64": "AMD64", "arm64": "ARM64", "ppc64le": "PPC64LE", "s390x": "S390X"}
_CORE = ("pullSecret", "sshKey", "additionalTrustBundle", "imageContentSources")


def desired_replicas(pool: Obj, current: int) -> int:
    """With autoscaling the number is the autoscaler's, kept within its bounds."""
    spec = spec_of(pool)
    if scaling := spec.get("autoScaling"):
        return max(int(scaling["min"]), min(int(scaling["max"]), current))
    return int(spec.get("replicas") or 0)


def digest(pool: Obj, hosted: Obj, release: Release, config: dict[str, str]) -> str:
    """FNV-1a of everything whose change replaces nodes."""
    spec, cluster = spec_of(pool), spec_of(hosted)
    platform = dict(spec["platform"].get(spec["platform"]["type"].lower()) or {})
    platform.pop("resourceTags", None)
    wide = {name: cluster[name] for name in _CORE if name in cluster}
    wide |= {name: value for name, value in (cluster.get("configuration") or {}).items() if name in ("proxy", "image")}
    content = msgspec.json.encode(
        {"version": release.version, "config": config, "platform": platform, "cluster": wide}, order="sorted"
    )
    value = 0x811C9DC5
    for byte in content:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def template(pool: Obj, hosted: Obj, release: Release, made_of: str) -> Template:
    spec, cluster = spec_of(pool), spec_of(hosted)
    own: dict[str, Any] = spec["platform"].get("aws") or {}
    cloud: dict[str, Any] = cluster["platform"].get("aws") or {}
    machine_network = (cluster["networking"].get("machineNetwork") or [{}])[0].get("cidr", "")
    return Template(
        pool=name_of(pool),
        pool_uid=uid_of(pool),
        digest=made_of,
        release=release,
        labels={str(key): str(value) for key, value in (spec.get("nodeLabels") or {}).items()},
        taints=spec.get("taints") or [],
        architecture=str(spec.get("arch") or "amd64"),
        instance_type=str(own.get("instanceType") or ""),
        zone=str((cloud.get("cloudProviderConfig") or {}).get("zone") or ""),
        region=str(cloud.get("region") or ""),
        machine_network=str(machine_network),
        control_plane=control_plane_namespace(hosted),
        request_id=request_of(pool) or request_of(hosted),
    )


# -- before any node is touched ---------------------------------------------------------------------------------------


def release_of(pool: Obj, hosted: Obj) -> tuple[Release | None, Finding]:
    """Compared with the newest version that the cluster completed, or with what it is asked to become."""
    image = str(spec_of(pool)["release"]["image"])
    try:
        release = releases.parse(image)
    except UnknownRelease as error:
        return None, false("ValidationFailed", str(error))
    problem = releases.unsupported(release)
    host = cluster_release(hosted)
    if host is not None and release.stream > host.stream:
        problem = f"the minor version of {release.version} is above the cluster's {host.version}"
    if current := status_of(pool).get("version"):
        running = releases.parse(f":{current}")
        if release.stream < running.stream:
            problem = f"downgrade of the minor version from {current} to {release.version} is not supported"
    if problem:
        return None, false("ValidationFailed", problem)
    return release, true(message=f"Release {release.version} is valid")


def cluster_release(hosted: Obj) -> Release | None:
    history = (status_of(hosted).get("controlPlaneVersion") or {}).get("history") or []
    image = next((e["image"] for e in history if e["state"] == "Completed"), spec_of(hosted)["release"]["image"])
    try:
        return releases.parse(image)
    except UnknownRelease:
        return None


def skew(release: Release, hosted: Obj) -> Finding:
    host = cluster_release(hosted)
    if host is None:
        return unknown("ValidationFailed", "the cluster's version is not known")
    if host.stream - release.stream > SKEW:
        return false(
            "UnsupportedSkew", f"{release.version} is more than {SKEW} minors behind the cluster's {host.version}"
        )
    if (release.stream, release.patch) > (host.stream, host.patch):
        return false("UnsupportedSkew", f"{release.version} is above the cluster's {host.version}")
    return true(message="The pool's version is close enough to the cluster's")


def architecture(pool: Obj, hosted: Obj) -> Finding:
    payload = status_of(hosted).get("payloadArch") or "Multi"
    wanted = _ARCHITECTURES.get(str(spec_of(pool).get("arch") or "amd64"), "")
    if payload not in ("Multi", wanted):
        return false("InvalidArchPlatform", f"the release is for {payload} only, the pool asks for {wanted}")
    return true(message="The architecture fits the release")


def management(pool: Obj) -> Finding:
    rolling = (spec_of(pool)["management"].get("replace") or {}).get("rollingUpdate") or {}
    standing = all(str(rolling.get(name, 1)).rstrip("%") == "0" for name in ("maxSurge", "maxUnavailable"))
    if spec_of(pool)["management"]["upgradeType"] == "Replace" and rolling and standing:
        return false("ValidationFailed", "maxSurge and maxUnavailable cannot both be zero")
    return true(message="The upgrade settings are valid")


def paused(pool: Obj, now: datetime) -> bool:
    text = str(spec_of(pool).get("pausedUntil") or "").lower()
    if text in ("", "false", "true"):
        return text == "true"
    until = parse_time(text.upper())
    return until is not None and until > now


def autoscaling(pool: Obj) -> Findings:
    scaling = spec_of(pool).get("autoScaling")
    repair = bool(spec_of(pool)["management"].get("autoRepair"))
    text = f"Maximum nodes: {scaling['max']}, Minimum nodes: {scaling['min']}" if scaling else "off"
    return {
        "AutoscalingEnabled": true(message=text) if scaling else well(text),
        "AutorepairEnabled": true(message="on") if repair else well("off"),
    }


# -- after ------------------------------------------------------------------------------------------------------------


def waiting(reason: str, message: str) -> Findings:
    """Nodes cannot be had yet."""
    return {
        "Ready": false(reason, message),
        "AllMachinesReady": false("NotFound", message),
        "AllNodesHealthy": false("NotFound", message),
    }


def with_nodes(found: PoolNodes, replicas: int, made_of: str) -> Findings:
    ready, outdated = len(found.ready), len(found.outdated(made_of))
    complete = ready == replicas == len(found.nodes)
    text = f"{ready} of {replicas} simulated nodes are ready"
    nothing = Finding("False", "NotFound", "No machines found") if not found.nodes and replicas else None
    healthy = nothing or (true(message=text) if complete else false("WaitingForAvailableMachines", text))
    updating = (
        Finding("True", "AsExpected", f"{outdated} nodes are replaced") if outdated else well("All nodes are new")
    )
    return {
        "ValidMachineConfig": true(message="The configuration is valid"),
        "ValidTuningConfig": true(message="The tuning is valid"),
        "UpdatingConfig": updating,
        "UpdatingVersion": updating,
        "UpdatingPlatformMachineTemplate": updating,
        "ValidGeneratedPayload": true(message="Simulated nodes need no payload"),
        "ReachedIgnitionEndpoint": true(message="Simulated nodes need no ignition"),
        "AllMachinesReady": healthy,
        "AllNodesHealthy": healthy,
        "ValidPlatformConfig": true(message="Nothing of the cloud is touched on this machine"),
        "Ready": true(message=text) if complete else false("WaitingForAvailableMachines", text),
    }
