"""What a further small cluster costs a process that hosts many: measured in a process of its own.

`measure(clusters)` returns the figures; `python bench/kube_tenancy.py N FOLDER` prints them as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

WARM_UP = 5  # clusters before the first measured one: caches that all share


@dataclass(frozen=True)
class Tenancy:
    clusters: int
    memory_each: float  # MB of private pages, for one that is served and has been written to
    create_p50: float  # seconds until a new cluster's data are durable and its kubeconfig is there
    create_cpu: float
    open_p50: float  # seconds until a resting cluster answers its first request
    descriptors: int


def measure(clusters: int, folder: Path) -> Tenancy:
    command = [sys.executable, __file__, str(clusters), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Tenancy(**json.loads(done.stdout.splitlines()[-1]))


async def _measure(clusters: int, folder: Path) -> Tenancy:
    from regional.kube.apiserver.hosting import ClusterHost

    host = ClusterHost(folder, "127.0.0.1", 6443)
    await host.start()
    try:
        creates: list[float] = []
        opens: list[float] = []
        for number in range(WARM_UP):
            await _one(host, f"warm-{number}", creates, opens)
        creates.clear()
        opens.clear()
        memory, cpu = _private(), time.process_time()
        for number in range(clusters):
            await _one(host, f"c-{number}", creates, opens)
        cpu = time.process_time() - cpu
        each = (_private() - memory) / clusters
        return Tenancy(clusters, each, median(creates), cpu / clusters, median(opens), _descriptors())
    finally:
        await host.stop()


async def _one(host: object, name: str, creates: list[float], opens: list[float]) -> None:
    from regional.kube.apiserver.clients import Peer
    from regional.kube.apiserver.hosting import ClusterHost
    from regional.kube.messages import Request

    assert isinstance(host, ClusterHost)
    began = time.perf_counter()
    await host.create(name)
    creates.append(time.perf_counter() - began)
    began = time.perf_counter()
    place = await host.place(Peer(None, b""), f"/c/{name}/readyz")
    answer = await place.server.handle(Request("GET", place.path))
    opens.append(time.perf_counter() - began)
    body = b'{"metadata":{"name":"one"},"data":{"a":"b"}}'
    headers = {"content-type": "application/json"}
    written = await place.server.handle(Request("POST", "/api/v1/namespaces/default/configmaps", [], headers, body))
    assert (answer.status, written.status) == (200, 201)


def _private() -> float:
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_measure(int(sys.argv[1]), Path(sys.argv[2]))))))
