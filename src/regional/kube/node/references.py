"""Which ConfigMaps, Secrets and claims a pod uses: what to fetch before it starts, whom to wake when one changes."""

from __future__ import annotations

from collections.abc import Iterator

from regional.kube.objects import Obj, spec_of


def all_containers(pod: Obj) -> list[Obj]:
    spec = spec_of(pod)
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def references(pod: Obj) -> frozenset[tuple[str, str]]:
    """(kind, name), all in the pod's own namespace."""
    return frozenset((*_of_containers(pod), *_of_volumes(pod)))


def _of_containers(pod: Obj) -> Iterator[tuple[str, str]]:
    for container in all_containers(pod):
        for source in container.get("envFrom") or []:
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if field in source:
                    yield kind, source[field]["name"]
        for entry in container.get("env") or []:
            source = entry.get("valueFrom") or {}
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if field in source:
                    yield kind, source[field]["name"]


def _of_volumes(pod: Obj) -> Iterator[tuple[str, str]]:
    for volume in spec_of(pod).get("volumes") or []:
        yield from _of_source(volume)
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield from _of_source(source)


def _of_source(source: Obj) -> Iterator[tuple[str, str]]:
    if "configMap" in source:
        yield "ConfigMap", source["configMap"]["name"]
    if "secret" in source:
        yield "Secret", source["secret"].get("secretName") or source["secret"]["name"]
