"""Time and memory of a region on this machine, part by part: `make bench-up`.

Brings up a region of its own (own data, own addresses), lets it rest, takes it down. The baseline, measured in the same
run, is what one bare Python interpreter with an HTTP server costs to start and to hold: ratios travel between machines,
seconds do not.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from regional.core.loop import run
from regional.core.process import proportional_memory

REST_SECONDS = 20.0
POD_ROUNDS = 5


def processes_of(marker: str) -> dict[int, str]:
    """Every process that descends from the region's guardian, supervisor or warm parent: they all carry its home."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    roots: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            raw = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        parents[pid] = int(raw.rsplit(")", 1)[1].split()[1])
        names[pid] = command or raw[raw.index("(") + 1 : raw.rindex(")")]
        if marker.encode() in environment:
            roots.add(pid)
    members = set(roots)
    grown = True
    while grown:
        grown = False
        for pid, parent in parents.items():
            if parent in members and pid not in members:
                members.add(pid)
                grown = True
    return {pid: names[pid] for pid in members if pid != os.getpid()}


def part_of(command: str) -> str:
    words = command.split()
    for marker, label in (
        ("guardian.py", "guardian"),
        ("regional.local.supervisor", "supervisor"),
        ("mosquitto", "broker"),
    ):
        if marker in command:
            return label
    if "postgres" in words[0]:
        return "postgres"
    if "serve" in words:
        role = words[words.index("serve") + 1]
        return role if role in ("aws", "warm", "kube-api", "kube-node") else f"pod: {role}"
    return words[0].rsplit("/", 1)[-1]


def cpu_seconds(pids: dict[int, str]) -> float:
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def baseline() -> tuple[float, float]:
    """(seconds to serve, MB) of `python -m http.server`."""
    import socket

    started = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", "18080", "--bind", "127.127.250.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.127.250.1", 18080)) == 0:
                    break
            time.sleep(0.005)
        return time.perf_counter() - started, proportional_memory(server.pid) / 1e6
    finally:
        server.kill()
        server.wait()


async def measure(home: Path) -> None:
    from regional.local.region import Region

    region = Region("local")
    steps: list[tuple[str, str, float]] = []
    base_seconds, base_memory = await asyncio.to_thread(baseline)
    print(f"baseline: a bare Python HTTP server serves after {base_seconds:.2f} s and holds {base_memory:.1f} MB\n")
    started = time.perf_counter()
    seen = await region.up(lambda *event: steps.append(event))
    total = time.perf_counter() - started
    try:
        print(f"{'step':<58}{'seconds':>9}{'× baseline':>12}")
        for _kind, text, seconds in [*steps, ("", "UP, all installed, to healthy", total)]:
            print(f"{text[:57]:<58}{seconds:>9.2f}{seconds / base_seconds:>12.1f}")
        if not seen.healthy:
            raise SystemExit(f"not healthy: {seen.problems()}")
        await report_memory(home, base_memory)
        await report_pod_start(region)
    finally:
        started = time.perf_counter()
        await region.down()
        print(f"\ndown: {time.perf_counter() - started:.2f} s")
        started = time.perf_counter()
        await region.up(lambda *_: None)
        print(f"up again, with its data: {time.perf_counter() - started:.2f} s")
        await region.down(purge=True)


async def report_memory(home: Path, base_memory: float) -> None:
    before = processes_of(str(home))
    burnt = cpu_seconds(before)
    await asyncio.sleep(REST_SECONDS)
    after = processes_of(str(home))
    share = (cpu_seconds(after) - burnt) / REST_SECONDS * 100
    sums: dict[str, list[float]] = {}
    for pid, command in after.items():
        sums.setdefault(part_of(command), []).append(proportional_memory(pid) / 1e6)
    print(f"\n{'part, at rest':<40}{'processes':>10}{'PSS MB':>9}{'× baseline':>12}")
    for part, values in sorted(sums.items(), key=lambda item: -sum(item[1])):
        print(f"{part:<40}{len(values):>10}{sum(values):>9.1f}{sum(values) / base_memory:>12.1f}")
    whole = sum(sum(values) for values in sums.values())
    print(f"{'ALL':<40}{len(after):>10}{whole:>9.1f}{whole / base_memory:>12.1f}")
    print(f"\nCPU at rest over {REST_SECONDS:.0f} s: {share:.1f} % of one core")


async def report_pod_start(region: object) -> None:
    """Delete a pod; from the moment its successor appears to the moment it is ready, as a watch sees it."""
    from regional.kube.client import Client
    from regional.local.region import Region

    assert isinstance(region, Region)
    client = Client.from_kubeconfig(region.paths.cluster("rc") / "admin.kubeconfig")
    times = []
    try:
        for _ in range(POD_ROUNDS):
            pods, version = await client.list_with_rv("v1", "Pod", "platform-api")
            old = pods[0]["metadata"]["name"]
            await client.delete("v1", "Pod", old, "platform-api", grace=1)
            appeared: dict[str, float] = {}
            async with asyncio.timeout(30):
                async for kind, pod in client.watch("v1", "Pod", "platform-api", resource_version=version):
                    name = pod["metadata"]["name"]
                    if name == old or kind == "DELETED":
                        continue
                    appeared.setdefault(name, time.perf_counter())
                    conditions = pod.get("status", {}).get("conditions", [])
                    if any(c["type"] == "ContainersReady" and c["status"] == "True" for c in conditions):
                        times.append(time.perf_counter() - appeared[name])
                        break
            await asyncio.sleep(2)
    finally:
        await client.close()
    print(f"\npod created → ready (platform-api, {POD_ROUNDS}×): p50 {statistics.median(times) * 1000:.0f} ms")


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="regional-bench-"))
    home.chmod(0o711)
    os.environ["REGIONAL_HOME"] = str(home)
    try:
        run(measure(home))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
