"""The Git server's role: a bare repository per region that GitOps and the pipelines read.

`up` publishes the checkout's HEAD, or with `--worktree` a commit made of the working tree as it is (without touching
the checkout's index or branches), as branch `main`. The pipelines work in an export of that very commit.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec
import yaml

from regional.core.paths import RegionPaths
from regional.core.problems import UserError

BRANCH = "main"
_EXPORTED = ("deploy", "terraform", "tekton", "argocd", "config.yaml")


def git(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, ok: bool = True) -> str:
    trusted = ["-c", f"safe.directory={cwd}"] if cwd else ["-c", "safe.directory=*"]
    result = subprocess.run(
        ["git", *trusted, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {}), "GIT_TERMINAL_PROMPT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0 and ok:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise UserError(f"git {arguments[0]} failed: {said[-1] if said else f'exit code {result.returncode}'}")
    return result.stdout.strip() if result.returncode == 0 else ""


def declared(checkout: Path, region: RegionPaths, environment: str, *, worktree: bool) -> str:
    """The commit that declares the region. Raises UserError if there is none; leaves nothing behind."""
    if shutil.which("git") is None:
        raise UserError("git is not installed", "apt-get install git")
    if not git("rev-parse", "--git-dir", cwd=checkout, ok=False):
        raise UserError(f"{checkout} is not a Git checkout", "clone the project with git: regions are declared in Git")
    head = git("rev-parse", "--verify", "HEAD", cwd=checkout, ok=False)
    if worktree:
        commit = snapshot(checkout, head)
    elif head:
        commit = head
    else:
        raise UserError("the checkout has no commit yet", "commit first, or use --worktree")
    needed = f"deploy/{environment}/{region.region}/terraform/regional.json"
    if not git("ls-tree", commit, needed, cwd=checkout):
        where = "the working tree" if worktree else f"HEAD ({commit[:8]})"
        raise UserError(
            f"{where} has no rendered files for region {region.region!r} in environment {environment!r}",
            "declare it in config.yaml, run `regionctl config render`"
            + ("" if worktree else " and commit, or use --worktree"),
        )
    values = git(
        "show",
        f"{commit}:deploy/{environment}/{region.region}/argocd/regional-cluster-values.yaml",
        cwd=checkout,
        ok=False,
    )
    if values and not _on_loopback(values):
        raise UserError(
            f"region {environment}/{region.region} is declared for a cloud: its network is not on loopback",
            "`regionctl apps preview` shows what it would run; a region for this machine has sector `local`",
        )
    return commit


def _on_loopback(values: str) -> bool:
    network = ((yaml.safe_load(values) or {}).get("global") or {}).get("network") or {}
    ranges = network.get("vpcRanges") or []
    return bool(ranges) and all(ipaddress.ip_network(each).is_loopback for each in ranges)


def publish(checkout: Path, region: RegionPaths, commit: str) -> None:
    """From now on the region follows that commit."""
    bare = region.git
    if not (bare / "HEAD").exists():
        bare.mkdir(parents=True, exist_ok=True)
        git("init", "-q", "--bare", f"--initial-branch={BRANCH}", str(bare))
        git("config", "receive.shallowUpdate", "true", cwd=bare)
    # Together: whoever sees the branch move finds what it pins.
    refs = [f"{pin}:refs/pins/{pin}" for pin in _pins(checkout, region, commit) if not _holds(bare, pin)]
    if current(region) != commit:
        refs.append(f"{commit}:refs/heads/{BRANCH}")
    if refs:
        git("push", "-q", "--force", str(bare), *refs, cwd=checkout)


def _pins(checkout: Path, region: RegionPaths, commit: str) -> list[str]:
    """Commits that the region is held to, as far as they are here: a Git server has them all, also those that are in
    no history of the branch."""
    index = git("show", f"{commit}:deploy/index.json", cwd=checkout, ok=False)
    try:
        regions = msgspec.json.decode(index, type=_Index).regions if index else []
    except msgspec.MsgspecError:
        return []  # edited by hand; `config render --check` says so
    pins = [
        pin
        for each in regions
        if each.region_alias == region.region
        for pin in (*each.config_revision.values(), *each.values_revision.values())
    ]
    return [pin for pin in sorted(set(pins)) if _holds(checkout, pin)]


def _holds(repository: Path, commit: str) -> bool:
    return git("cat-file", "-t", commit, cwd=repository, ok=False) == "commit"


class _Declared(msgspec.Struct):
    region_alias: str
    config_revision: dict[str, str] = {}
    values_revision: dict[str, str] = {}


class _Index(msgspec.Struct):
    regions: list[_Declared] = []


def current(region: RegionPaths) -> str:
    if not (region.git / "HEAD").exists():
        return ""
    return git("rev-parse", "--verify", "-q", f"refs/heads/{BRANCH}", cwd=region.git, ok=False)


def snapshot(checkout: Path, head: str) -> str:
    """A commit of the working tree (ignored files left out). The same tree gives the same commit."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        if head:
            git("read-tree", head, cwd=checkout, env=env)
        git("add", "-A", cwd=checkout, env=env)
        tree = git("write-tree", cwd=checkout, env=env)
    if head and git("rev-parse", f"{head}^{{tree}}", cwd=checkout) == tree:
        return head
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "regionctl"), ("EMAIL", "regionctl@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
    }
    parent = ["-p", head] if head else []
    return git("commit-tree", tree, *parent, "-m", "working tree", cwd=checkout, env=identity)


def export(region: RegionPaths, commit: str) -> Path:
    """The files that pipelines work with, at that commit."""
    target = region.root / "workspace" / commit[:12]
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent))
    present = [p for p in _EXPORTED if git("ls-tree", commit, p, cwd=region.git)]
    archive = subprocess.run(
        ["git", "-c", "safe.directory=*", "archive", commit, *present], cwd=region.git, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(scratch)], input=archive.stdout, check=True)
    for old in target.parent.iterdir():
        if old != scratch:
            shutil.rmtree(old, ignore_errors=True)
    scratch.rename(target)
    return target
