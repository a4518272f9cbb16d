"""The node's disk: a directory for each PersistentVolume of ours, kept until the volume is deleted.

The driver's role of a cloud's disks. The cluster's volume controller binds a claim to a volume; this makes the
directory when a pod first mounts it, and removes it before it lets the deleted volume go: while the PersistentVolume
exists there may be files, once it is gone there are none, whoever was killed in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from pathlib import Path

from regional.kube.client import ApiError, Client, Informer
from regional.kube.disks import HOLDS_FILES, is_ours
from regional.kube.objects import Obj, finalizers_of, is_deleting, name_of, spec_of, status_of, uid_of, version_of

log = logging.getLogger(__name__)
_SCAN_SECONDS, _RETRY_SECONDS = 60.0, 0.5


class ClaimNotBound(Exception):
    """The text says what the pod waits for."""


class ClaimDirectories:
    def __init__(self, root: Path) -> None:
        self._root = root / "volumes"

    def path_of(self, volume: str) -> Path:
        return self._root / volume

    def mount(self, claim: Obj, target: Path) -> None:
        """Make `target` a link to the claim's directory, which is made on first use."""
        volume = str(spec_of(claim).get("volumeName") or "")
        if not volume or status_of(claim).get("phase") != "Bound":
            raise ClaimNotBound(f'persistentvolumeclaim "{name_of(claim)}" is not bound')
        directory = self.path_of(volume)
        if target.is_symlink() and target.readlink() == directory:
            return
        if is_deleting(claim):
            raise ClaimNotBound(f'persistentvolumeclaim "{name_of(claim)}" is being deleted')
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(directory)

    def remove(self, volume: str) -> None:
        """Renamed first, so that nothing half removed is ever mounted again."""
        directory = self.path_of(volume)
        grave = directory.with_name(f".{volume}")
        with contextlib.suppress(FileNotFoundError):
            directory.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._root.rmdir()  # the last one; OSError says that it was not


class VolumeRemover:
    """Ends volumes that are deleted. The volume controller deletes one only when no pod uses it any more."""

    def __init__(self, client: Client, volumes: Informer, directories: ClaimDirectories) -> None:
        self._client, self._volumes, self._directories = client, volumes, directories
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled, after the caches are filled."""
        self._volumes.add_handler(lambda _kind, _volume: self._wake.set())
        while True:
            self._wake.clear()
            failed = False
            for volume in [v for v in self._volumes if is_deleting(v) and is_ours(v)]:
                failed |= not await self._end(volume)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if failed else _SCAN_SECONDS):
                    await self._wake.wait()

    async def _end(self, volume: Obj) -> bool:
        if HOLDS_FILES not in finalizers_of(volume):
            return True
        await asyncio.to_thread(self._directories.remove, name_of(volume))
        left = [finalizer for finalizer in finalizers_of(volume) if finalizer != HOLDS_FILES]
        metadata = {"uid": uid_of(volume), "resourceVersion": version_of(volume), "finalizers": left}
        try:
            await self._client.patch("v1", "PersistentVolume", name_of(volume), None, {"metadata": metadata})
        except ApiError as error:
            if not error.not_found:
                log.info("volume not released", extra={"volume": name_of(volume), "reason": str(error)})
                return False
        self._volumes.observe_deleted(volume)
        log.info("volume removed", extra={"volume": name_of(volume)})
        return True
