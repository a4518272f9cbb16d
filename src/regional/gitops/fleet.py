"""The clusters that a commit declares, as their identity secrets will describe them: read from deploy/ alone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from regional.core.problems import UserError
from regional.gitops.identity import ClusterIdentity

INDEX = "deploy/index.json"
REGIONAL, MANAGEMENT = "regional-cluster", "management-cluster"
REGIONAL_NAME = "rc"


class _Member(msgspec.Struct, frozen=True):
    cluster_id: str


class _Region(msgspec.Struct, frozen=True):
    """What is read of an entry of the index."""

    environment: str
    region_alias: str
    aws_region: str
    management_clusters: list[_Member]
    values_revision: dict[str, str] | None = None

    @property
    def key(self) -> str:
        return f"{self.environment}/{self.region_alias}"


class _Index(msgspec.Struct, frozen=True):
    regions: list[_Region]


class Declared(msgspec.Struct, frozen=True):
    """One cluster to look at, and how many of its region would get the very same."""

    identity: ClusterIdentity
    alike: int = 0

    @property
    def region(self) -> str:
        return f"{self.identity.environment}/{self.identity.region_alias}"

    @property
    def title(self) -> str:
        more = f" (and {self.alike} alike)" if self.alike else ""
        return f"{self.region} {self.identity.cluster_name}{more}"


class Choice(msgspec.Struct, frozen=True):
    """What of a fleet to look at; empty for all."""

    region: str = ""
    cluster_type: str = ""
    cluster: str = ""

    def takes(self, region: _Region) -> bool:
        return self.region in ("", region.region_alias, region.key)


def declared(
    files: dict[str, bytes], repository: str, commit: str, choice: Choice, beside: dict[str, bytes] | None = None
) -> list[Declared]:
    """`files` are those below deploy/ at the commit, with clusters' own values as they are pinned; `beside` those of
    another commit that it is compared with, where alike must be alike in both. Raises UserError if the choice finds
    nothing, here or there."""
    regions = _regions(files)
    if regions is None:
        raise UserError(f"{commit[:8]} has no {INDEX}", "run `regionctl config render` and commit")
    others = {region.key: region for region in _regions(beside or {}) or () if choice.takes(region)}
    chosen = [region for region in regions if choice.takes(region)]
    if not chosen and not others:
        known = ", ".join(sorted(region.key for region in regions)[:12])
        raise UserError(f"no region {choice.region!r} at {commit[:8]}", f"regions: {known}" if known else "")
    views = [files] if beside is None else [files, beside]
    found: list[Declared] = []
    for region in chosen:
        versions = [region] if beside is None else [region, others.get(region.key)]
        for kind, names in _clusters(region, choice):
            groups: dict[tuple[bytes | None, ...], list[str]] = {}
            for name in names:
                said = tuple(_own(view, one, kind, name) for view, one in zip(views, versions, strict=True))
                groups.setdefault(said, []).append(name)
            found += [
                _cluster(region, kind, min(members), len(members) - 1, repository, commit)
                for members in groups.values()
            ]
    if not found and not any(names for region in others.values() for _, names in _clusters(region, choice)):
        what = f"cluster {choice.cluster!r}" if choice.cluster else f"cluster of type {choice.cluster_type!r}"
        raise UserError(f"no {what} in the regions chosen at {commit[:8]}")
    return found


def values_pins(files: dict[str, bytes]) -> dict[str, str]:
    """Folders of clusters' own values that are read at another commit, and at which one."""
    return {
        _own_folder(region, kind): pin
        for region in _regions(files) or ()
        for kind, pin in (region.values_revision or {}).items()
    }


def _regions(files: dict[str, bytes]) -> list[_Region] | None:
    """None without an index. Raises UserError for one that no render has written."""
    if INDEX not in files:
        return None
    try:
        return msgspec.json.decode(files[INDEX], type=_Index).regions
    except msgspec.DecodeError as error:
        raise UserError(f"{INDEX} cannot be read: {error}", "run `regionctl config render` and commit") from None


def _clusters(region: _Region, choice: Choice) -> Iterable[tuple[str, list[str]]]:
    for kind, names in _names(region).items():
        if choice.cluster_type in ("", kind):
            yield kind, [name for name in names if choice.cluster in ("", name)]


def _names(region: _Region) -> dict[str, list[str]]:
    return {REGIONAL: [REGIONAL_NAME], MANAGEMENT: [member.cluster_id for member in region.management_clusters]}


def _own(files: dict[str, bytes], region: _Region | None, kind: str, name: str) -> bytes | None:
    """A cluster's own values, b"" if it has only its region's, None if it does not exist. Equal for clusters that get
    the very same: a file of its own may say no more than another's."""
    if region is None or name not in _names(region)[kind]:
        return None
    return files.get(f"{_own_folder(region, kind)}/{name}.yaml", b"")


def _own_folder(region: _Region, kind: str) -> str:
    return f"deploy/{region.key}/argocd/{kind}-values"


def _cluster(region: _Region, kind: str, name: str, alike: int, repository: str, commit: str) -> Declared:
    identity = ClusterIdentity(
        cluster_type=kind,
        cluster_name=name,
        environment=region.environment,
        region_alias=region.region_alias,
        aws_region=region.aws_region,
        git_repo=repository,
        git_revision=commit,
    )
    return Declared(identity, alike)
