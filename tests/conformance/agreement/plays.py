"""The same plays on any server end the same way: what the real controllers left behind is recorded in `controllers`.

`RECORD=1 KUBE=real` writes the records again. A play waits for its end to *become* what is recorded, so neither side's
pace matters.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from regional.kube.objects import Obj, condition_of, is_true, spec_of, status_of

from ..servers import flavour
from ..settled import snapshot, without_chance
from ..stage import PATIENCE, Stage

RECORDS = Path(__file__).parent.parent / "controllers"
RECORDING = bool(os.environ.get("RECORD"))
QUIET_SECONDS = 4.0


async def ends_as(stage: Stage, record: str, *, events: bool = False) -> None:
    path = RECORDS / f"{record}.yaml"
    if RECORDING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(await _quiet(stage, events), sort_keys=True, width=110))
        return
    settled = without_chance if flavour() == "real" else dict
    wanted = settled(yaml.safe_load(path.read_text()))
    seen: Obj = {}

    async def same() -> bool:
        nonlocal seen
        found = await snapshot(stage.client, stage.namespace, events=events)
        seen = settled(msgspec.json.decode(msgspec.json.encode(found)))
        return bool(seen == wanted)

    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not await same():
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail("\n".join(difflib.unified_diff(_lines(wanted), _lines(seen), "real", "here", n=4, lineterm="")))
        await asyncio.sleep(0.1)


def _lines(document: Obj) -> list[str]:
    return str(yaml.safe_dump(document, sort_keys=True, width=110)).splitlines()


async def _quiet(stage: Stage, events: bool) -> Obj:
    """What is there once nothing has changed for a while; only for recording."""
    last, since = await snapshot(stage.client, stage.namespace, events=events), 0.0
    while since < QUIET_SECONDS:
        await asyncio.sleep(0.2)
        now = await snapshot(stage.client, stage.namespace, events=events)
        since = since + 0.2 if now == last else 0.0
        last = now
    return last


def workload(
    kind: str, name: str = "it", *, image: str = "app:1", labels: dict[str, str] | None = None, **spec: Any
) -> Obj:
    labels = labels or {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


async def rolled(stage: Stage, name: str = "it") -> None:
    async def check() -> bool:
        obj = await stage.get("apps/v1", "Deployment", name)
        condition = condition_of(obj, "Progressing") or {}
        status = status_of(obj)
        return bool(
            status.get("observedGeneration") == obj["metadata"]["generation"]
            and condition.get("reason") == "NewReplicaSetAvailable"
            and status.get("updatedReplicas", 0) == status.get("replicas", 0) == spec_of(obj)["replicas"]
            and status.get("availableReplicas", 0) == spec_of(obj)["replicas"]
        )

    await stage.until(check, f"{name} is rolled out")


async def set_image(stage: Stage, kind: str, image: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    await stage.patch("apps/v1", kind, "it", patch, type="strategic")


def image_of(pod: Obj) -> str:
    return str(spec_of(pod)["containers"][0]["image"])


async def pods_ready(stage: Stage, count: int) -> list[Obj]:
    async def check() -> list[Obj] | None:
        ready = [pod for pod in await stage.pods() if is_true(pod, "Ready")]
        return ready if len(ready) == count else None

    found: list[Obj] = await stage.until(check, f"{count} pods ready")
    return found
