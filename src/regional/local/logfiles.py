"""Where the logs of a region are, by the names people use for its parts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from regional.core.paths import RegionPaths


def find_logs(region: RegionPaths) -> dict[str, Path]:
    """name → file: `postgres`, `rc-api`; `<cluster>/<namespace>/<pod>/<container>`; `<run>/<task>/<step>`."""
    found = {file.stem: file for file in sorted(region.service_logs.glob("*.log"))}
    for file in sorted(region.root.glob("nodes/*/pods/*/containers/*/log")):
        container, pod, cluster = file.parent, file.parents[2], file.parents[4].name
        found[f"{cluster}/{_pod_name(pod)}/{container.name}"] = file
    for file in sorted(region.pipelines.rglob("*.log")):
        found[str(file.relative_to(region.pipelines).with_suffix(""))] = file
    return found


def _pod_name(pod: Path) -> str:
    """namespace/name, as the node noted it when it made the directory; the uid if it did not get that far."""
    try:
        noted = msgspec.json.decode((pod / "pod.json").read_bytes())
        return f"{noted['namespace']}/{noted['name']}"
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return pod.name
