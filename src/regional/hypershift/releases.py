"""Release images: which version an image is, which versions this operator hosts, and how far two of them are apart.

No payload is pulled on one machine, so the image's tag is what tells its version and architecture
(`…:4.21.3-x86_64`, `…:4.21.3-multi`). Minors are numbered on: 5.0 is the minor after 4.22, known as 4.23 before.
"""

from __future__ import annotations

import re

import msgspec

OLDEST = "4.14.0"
NEWEST = "5.1"
_TAG = re.compile(
    r":v?(\d+)\.(\d+)\.(\d+)((?:-(?:ec|rc|fc|okd|nightly|ci)[0-9A-Za-z.]*(?:-[0-9.]+)*)?)(?:-([A-Za-z0-9_]+))?$"
)
_ARCHITECTURES = {
    "multi": "Multi",
    "x86_64": "AMD64",
    "amd64": "AMD64",
    "aarch64": "ARM64",
    "arm64": "ARM64",
    "ppc64le": "PPC64LE",
    "s390x": "S390X",
}
_FIFTH = 23  # 5.0 counts as 4.23
_KUBERNETES = 13


class UnknownRelease(ValueError):
    """The text says what is wrong with the image."""


class Release(msgspec.Struct, frozen=True):
    image: str
    major: int
    minor: int
    patch: int
    suffix: str = ""
    architecture: str = "Multi"

    @property
    def version(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}{self.suffix}"

    @property
    def stream(self) -> int:
        """Minors in one row, over the change of the major."""
        return self.minor + (_FIFTH if self.major >= 5 else 0)

    @property
    def kubernetes(self) -> str:
        return f"v1.{self.stream + _KUBERNETES}.{self.patch}"


def parse(image: str) -> Release:
    found = _TAG.search(image)
    if found is None:
        raise UnknownRelease(f'the tag of image "{image}" tells no version, such as 4.21.3 or 4.21.3-x86_64')
    major, minor, patch = (int(part) for part in found.groups()[:3])
    architecture = _ARCHITECTURES.get((found[5] or "multi").lower())
    if architecture is None:
        raise UnknownRelease(f'image "{image}" names an unknown architecture "{found[5]}"')
    return Release(image, major, minor, patch, found[4] or "", architecture)


def unsupported(release: Release) -> str:
    """Why this operator does not host that release; "" if it does."""
    oldest, newest = parse(f":{OLDEST}"), parse(f":{NEWEST}.0")
    if release.major not in (4, 5) or release.stream < oldest.stream:
        return f"version {release.version} is below {oldest.major}.{oldest.minor}, the oldest that is hosted"
    if release.stream > newest.stream:
        return f"version {release.version} is above {NEWEST}, the newest that is hosted"
    return ""


def supported_versions() -> list[str]:
    """Newest first, as `5.1`, `5.0`, `4.22`, …"""
    oldest, newest = parse(f":{OLDEST}").stream, parse(f":{NEWEST}.0").stream
    return [f"5.{s - _FIFTH}" if s >= _FIFTH else f"4.{s}" for s in range(newest, oldest - 1, -1)]
