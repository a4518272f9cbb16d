"""Imported by the warm parent alone: reads and compiles what every API that it forks would read and compile again."""

from __future__ import annotations

from regional.kube.apiserver.bootstrapping import packaged
from regional.kube.schema.types import preload

preload()
packaged()
