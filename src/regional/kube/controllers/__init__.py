"""The controllers of a cluster: what kube-controller-manager and kube-scheduler are elsewhere.

They know the API only through `kube.client`, so they run inside the API's process, or anywhere else.
"""

from __future__ import annotations

from regional.kube.controllers.run import run_all
from regional.kube.controllers.settings import ControllerSettings

__all__ = ["ControllerSettings", "run_all"]
