"""From a container's image to what runs here.

Our own image means: the code of this checkout, forked from the warm parent (any tag, any registry: a chart may name a
mirror). `exec:PROGRAM` means that program of this machine. Anything else cannot be had without a container runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from regional.kube.node.environment import expand
from regional.kube.objects import Obj

EXEC = "exec:"


class ImageProblem(Exception):
    pass


class Entrypoint(msgspec.Struct, frozen=True):
    default_command: tuple[str, ...]

    def argv(self, container: Obj, environment: Mapping[str, str]) -> list[str]:
        command = list(container.get("command") or self.default_command)
        return [expand(str(part), environment) for part in (*command, *(container.get("args") or ()))]


def entrypoint(image: str, own_repository: str) -> Entrypoint:
    if image.startswith(EXEC):
        program = image.removeprefix(EXEC).strip()
        if not program:
            raise ImageProblem(f'image "{image}" names no program: write exec:/path/of/program')
        return Entrypoint((program,))
    if repository(image) == repository(own_repository):
        return Entrypoint(("regionctl",))
    raise ImageProblem(
        f'image "{image}" cannot be pulled: pods are processes here, so an image is either '
        f'"{own_repository}" or "exec:/path/of/program"'
    )


def repository(image: str) -> str:
    """Without registry, tag and digest."""
    name = image.partition("@")[0]
    head, slash, rest = name.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        name = rest
    path, colon, tag = name.rpartition(":")
    return path if colon and "/" not in tag else name
