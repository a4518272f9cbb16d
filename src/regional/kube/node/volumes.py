"""What is mounted into a pod: each volume of the manifest as a directory, kept up to date while the pod lives.

ConfigMaps, Secrets, the downward API and tokens are files that follow their source; emptyDir is a directory of the
pod's; a claim is a directory of the node's that outlives pods (`claims`); the Secrets Store driver's volumes are
fetched by `secrets_store`. A host's own paths are not offered: a pod that
is a process could reach them anyway, and a chart that asks for them would not be portable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from regional.core.clock import Clock
from regional.kube.node.claims import ClaimDirectories, ClaimNotBound
from regional.kube.node.environment import ConfigProblem, Lookup, data_of, field_value, resource_value
from regional.kube.node.layout import PodDirectory
from regional.kube.node.volume_files import BadPath, File, write_files
from regional.kube.objects import Obj, namespace_of, spec_of

CSI_DRIVER = "secrets-store.csi.k8s.io"
_DEFAULT_MODE = 0o644
CSI_REFRESH_SECONDS = 120.0


class VolumeProblem(Exception):
    """Why a volume cannot be mounted (yet)."""


class Tokens(Protocol):
    async def token(self, pod: Obj, audience: str, seconds: int) -> tuple[str, float]:
        """A service account token bound to the pod, and the seconds until it should be renewed."""


class SecretsStore(Protocol):
    async def files(self, namespace: str, provider_class: str) -> dict[str, bytes]:
        """The files that a SecretProviderClass of the pod's namespace describes."""


class PodVolumes:
    def __init__(
        self,
        directory: PodDirectory,
        tokens: Tokens,
        store: SecretsStore,
        clock: Clock,
        claims: ClaimDirectories | None = None,
    ) -> None:
        self._directory = directory
        self._claims = claims
        self._tokens = tokens
        self._store = store
        self._clock = clock
        self._held_tokens: dict[tuple[str, int], tuple[str, float]] = {}
        self._fetched: dict[str, float] = {}  # CSI volume → when it is due again

    async def sync(self, pod: Obj, lookup: Lookup, facts: Mapping[str, str]) -> float | None:
        """Bring every volume up to date. Seconds until something must be renewed, or None."""
        due: list[float] = []
        for volume in spec_of(pod).get("volumes") or []:
            try:
                await self._sync_volume(pod, volume, lookup, facts, due)
            except (ConfigProblem, BadPath, ClaimNotBound, VolumeProblem) as error:
                raise VolumeProblem(f'volume "{volume["name"]}": {error}') from error
        return max(1.0, min(due) - self._clock.monotonic()) if due else None

    async def _sync_volume(
        self, pod: Obj, volume: Obj, lookup: Lookup, facts: Mapping[str, str], due: list[float]
    ) -> None:
        target = self._directory.volumes / str(volume["name"])
        if "emptyDir" in volume:
            target.mkdir(parents=True, exist_ok=True)
        elif "persistentVolumeClaim" in volume and self._claims is not None:
            name = str(volume["persistentVolumeClaim"]["claimName"])
            claim = lookup("PersistentVolumeClaim", name)
            if claim is None:
                raise VolumeProblem(f'persistentvolumeclaim "{name}" not found')
            self._claims.mount(claim, target)
        elif "csi" in volume:
            await self._sync_csi(pod, volume, due)
        elif "projected" in volume:
            mode = volume["projected"].get("defaultMode", _DEFAULT_MODE)
            files: dict[str, File] = {}
            for source in volume["projected"].get("sources") or []:
                files |= await self._projected(pod, source, mode, lookup, facts, due)
            write_files(target, files)
        elif source_kind := next((k for k in ("configMap", "secret", "downwardAPI") if k in volume), None):
            source = {source_kind: volume[source_kind]}
            mode = volume[source_kind].get("defaultMode", _DEFAULT_MODE)
            write_files(target, source_files(pod, source, mode, lookup, facts))
        else:
            kinds = ", ".join(key for key in volume if key != "name") or "no source"
            raise VolumeProblem(
                f"{kinds} is not offered by this node; it has emptyDir, configMap, secret, projected, downwardAPI, "
                f"persistentVolumeClaim and csi {CSI_DRIVER}"
            )

    async def _projected(
        self, pod: Obj, source: Obj, mode: int, lookup: Lookup, facts: Mapping[str, str], due: list[float]
    ) -> dict[str, File]:
        if "serviceAccountToken" not in source:
            return source_files(pod, source, mode, lookup, facts)
        wanted = source["serviceAccountToken"]
        key = (wanted.get("audience") or "", int(wanted.get("expirationSeconds") or 3600))
        now = self._clock.monotonic()
        held = self._held_tokens.get(key)
        if held is None or held[1] <= now:
            token, renew = await self._tokens.token(pod, *key)
            held = self._held_tokens[key] = (token, now + renew)
        due.append(held[1])
        return {wanted["path"]: File(held[0].encode(), mode)}

    async def _sync_csi(self, pod: Obj, volume: Obj, due: list[float]) -> None:
        csi = volume["csi"]
        if csi.get("driver") != CSI_DRIVER:
            raise VolumeProblem(f"driver {csi.get('driver')} is not installed; this node has {CSI_DRIVER}")
        name = (csi.get("volumeAttributes") or {}).get("secretProviderClass")
        if not name:
            raise VolumeProblem("volumeAttributes.secretProviderClass is missing")
        now = self._clock.monotonic()
        due_again = self._fetched.get(volume["name"], now)
        if due_again <= now:
            content = await self._store.files(namespace_of(pod), name)
            write_files(
                self._directory.volumes / str(volume["name"]),
                {path: File(raw, _DEFAULT_MODE) for path, raw in content.items()},
            )
            due_again = self._fetched[volume["name"]] = now + CSI_REFRESH_SECONDS
        due.append(due_again)


def source_files(pod: Obj, source: Obj, mode: int, lookup: Lookup, facts: Mapping[str, str]) -> dict[str, File]:
    if "configMap" in source:
        return _data_files("ConfigMap", source["configMap"]["name"], source["configMap"], mode, lookup)
    if "secret" in source:
        name = source["secret"].get("secretName") or source["secret"]["name"]
        return _data_files("Secret", name, source["secret"], mode, lookup)
    if "downwardAPI" in source:
        return _downward_files(pod, source["downwardAPI"], mode, facts)
    raise VolumeProblem(f"projected source {', '.join(source) or '{}'} is not supported")


def _data_files(kind: str, name: str, source: Obj, mode: int, lookup: Lookup) -> dict[str, File]:
    found = lookup(kind, name)
    if found is None:
        if source.get("optional"):
            return {}
        raise VolumeProblem(f'{kind.lower()} "{name}" not found')
    data = data_of(found)
    items = source.get("items")
    if not items:
        return {key: File(raw, mode) for key, raw in data.items()}
    files: dict[str, File] = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], item.get("mode", mode))
        elif not source.get("optional"):
            raise VolumeProblem(f"{kind.lower()} {name!r} has no key {item['key']!r}")
    return files


def _downward_files(pod: Obj, source: Obj, mode: int, facts: Mapping[str, str]) -> dict[str, File]:
    files: dict[str, File] = {}
    for item in source.get("items") or []:
        if "fieldRef" in item:
            text = field_value(pod, item["fieldRef"]["fieldPath"], facts)
        else:
            text = resource_value(pod, {}, item["resourceFieldRef"])
        files[item["path"]] = File(text.encode(), item.get("mode", mode))
    return files
