"""A pod's view of its mounted files when the pod is a process and not a container.

Charts mount Secrets at container paths such as /mnt/secrets-store. A container runtime makes those paths true with a
mount namespace; `kube.node` instead lays them out under a directory of the pod's own and names it in `POD_ROOT`.
This is the one place that knows. Without POD_ROOT (a real container) paths are what they say.
"""

from __future__ import annotations

import os
from pathlib import Path


def mounted(path: str | Path) -> Path:
    root = os.environ.get("POD_ROOT")
    candidate = Path(path)
    if root and candidate.is_absolute():
        return Path(root) / candidate.relative_to("/")
    return candidate
