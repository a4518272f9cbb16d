"""Git, seen through the git binary: which commit a revision is, what directories a tree has, a tree as files.

A repository on this machine (file:// or a path) is read in place; others are mirrored into the cache. Commits and trees
never change, so everything learnt about one is kept; only the meaning of a name (branch, tag, HEAD) is asked again, for
a local repository when its refs changed on disk (a few stats), for a remote one once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
import os
import re
import shutil
import tarfile
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import msgspec

from regional.core.clock import Clock, SystemClock

log = logging.getLogger(__name__)
T = TypeVar("T")

COMMIT = re.compile(r"[0-9a-f]{40}")
REMOTE_SECONDS = 60.0
GIT_TIMEOUT = 60.0
REMEMBERED = 4096
TREES = 128


class RepoError(Exception):
    pass


class RepoFault(msgspec.Struct, frozen=True):
    """Why a name means nothing, remembered like an answer so that it is not asked for again and again."""

    reason: str


class Repositories:
    """`root` is where mirrors and exported trees live; whatever is there may be deleted at any time."""

    def __init__(self, root: Path, *, git: str = "git", clock: Clock | None = None) -> None:
        self._root = root
        self._git = git
        self._clock: Clock = clock or SystemClock()
        self._git_dirs: dict[str, Path] = {}
        self._resolved: dict[tuple[str, str], tuple[Any, str | RepoFault]] = {}
        self._listeners: list[Callable[[str, str], None]] = []
        self._facts: OrderedDict[tuple[str, ...], asyncio.Future[Any]] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- names ---------------------------------------------------------------------------------------------------------

    async def resolve(self, url: str, revision: str) -> str:
        """The commit a revision names now. A full hash is taken at its word, as Argo CD does."""
        revision = revision or "HEAD"
        if COMMIT.fullmatch(revision):
            return revision
        stamp = await self.stamp(url, revision)
        known = self._resolved.get((url, revision))
        outcome = known[1] if known and known[0] == stamp else await self._name(url, revision)
        self._resolved[url, revision] = (stamp, outcome)
        if known and known[1] != outcome:
            # Whoever asked before has an answer that is no longer true.
            for listener in self._listeners:
                listener(url, revision)
        if isinstance(outcome, RepoFault):
            raise RepoError(outcome.reason)
        return outcome

    def on_moved(self, listener: Callable[[str, str], None]) -> None:
        """Told of every (url, revision) that turns out to mean another commit than before."""
        self._listeners.append(listener)

    async def look(self, url: str, revision: str) -> None:
        """Resolve again if the name may have moved; listeners hear of it. Cheap when it has not: no git is run."""
        known = self._resolved.get((url, revision))
        if known and known[0] != await self.stamp(url, revision):
            with contextlib.suppress(RepoError):
                await self.resolve(url, revision)

    def forget(self, url: str) -> None:
        """Ask again at the next `resolve` (a refresh that somebody asked for)."""
        for key, (_, outcome) in list(self._resolved.items()):
            if key[0] == url:
                self._resolved[key] = (object(), outcome)

    async def stamp(self, url: str, revision: str) -> Any:
        """Equal stamps mean that the name cannot have moved; None for what is no repository."""
        try:
            return await self._stamp(url, revision)
        except RepoError:
            return None

    async def _name(self, url: str, revision: str) -> str | RepoFault:
        if revision.startswith("-") or "\0" in revision:
            return RepoFault(f"unable to resolve '{revision}' to a commit SHA")
        try:
            return await (self._local_name(url, revision) if local_path(url) else self._remote_name(url, revision))
        except RepoError as error:
            return RepoFault(str(error))

    async def _stamp(self, url: str, revision: str) -> Any:
        if COMMIT.fullmatch(revision):
            return revision
        if not local_path(url):
            return int(self._clock.monotonic() / REMOTE_SECONDS)
        return ref_stamp(await self._git_dir(url), revision)

    async def _local_name(self, url: str, revision: str) -> str:
        git_dir = await self._git_dir(url)
        candidates = [revision] if revision == "HEAD" or revision.startswith("refs/") else []
        candidates += [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/remotes/origin/{revision}"]
        if re.fullmatch(r"[0-9a-f]{7,39}", revision):
            candidates.append(revision)
        for candidate in candidates:
            found = await self._run(git_dir, "rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}", check=False)
            if found.strip():
                return found.decode().strip()
        raise RepoError(f"unable to resolve '{revision}' to a commit SHA in {url}")

    async def _remote_name(self, url: str, revision: str) -> str:
        listing = await self._run(None, "ls-remote", "--", url, revision, f"refs/tags/{revision}^{{}}")
        rows = [line.split("\t") for line in listing.decode(errors="replace").splitlines() if "\t" in line]
        found = {name: commit for commit, name in rows}
        for name in (f"refs/heads/{revision}", f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}", revision):
            if name in found:
                return found[name]
        raise RepoError(f"unable to resolve '{revision}' to a commit SHA in {url}")

    # -- what a commit holds -------------------------------------------------------------------------------------------

    async def directories(self, url: str, commit: str) -> list[str]:
        async def ask() -> list[str]:
            git_dir = await self._having(url, commit)
            raw = await self._run(git_dir, "ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", commit)
            return [name.decode(errors="replace") for name in raw.split(b"\0") if name]

        return await self._once(("directories", url, commit), ask)

    async def tree(self, url: str, commit: str, path: str) -> str | None:
        """The id of a directory's content: equal ids mean equal files. None if there is no such directory."""

        async def ask() -> str | None:
            git_dir = await self._having(url, commit)
            clean = clean_path(path)
            raw = await self._run(
                git_dir,
                "rev-parse",
                "--verify",
                "--quiet",
                f"{commit}:{clean}" if clean else f"{commit}^{{tree}}",
                check=False,
            )
            found = raw.decode().strip()
            if not found:
                return None
            kind = (await self._run(git_dir, "cat-file", "-t", found)).decode().strip()
            return found if kind == "tree" else None

        return await self._once(("tree", url, commit, path), ask)

    async def file(self, url: str, commit: str, path: str) -> bytes | None:
        async def ask() -> bytes | None:
            git_dir = await self._having(url, commit)
            clean = clean_path(path)
            raw = await self._run(git_dir, "rev-parse", "--verify", "--quiet", f"{commit}:{clean}", check=False)
            found = raw.decode().strip()
            return await self._run(git_dir, "cat-file", "blob", found) if found else None

        return await self._once(("file", url, commit, path), ask)

    async def export(self, url: str, tree: str) -> Path:
        """A tree as files, under a name that is its content's. Made beside and renamed, so never half there."""
        target = self._root / "trees" / tree
        async with self._lock(f"export {tree}"):
            if target.is_dir():
                os.utime(target)
                return target
            git_dir = await self._git_dir(url)
            archive = await self._run(git_dir, "archive", "--format=tar", tree)
            await asyncio.to_thread(_unpack, archive, target)
            await asyncio.to_thread(_forget_oldest, target.parent)
        return target

    # -- repositories --------------------------------------------------------------------------------------------------

    async def _git_dir(self, url: str) -> Path:
        if url in self._git_dirs:
            return self._git_dirs[url]
        if path := local_path(url):
            found = await self._local_git_dir(path)
        else:
            found = self._root / "mirrors" / hashlib.sha256(url.encode()).hexdigest()[:24]
            if not (found / "HEAD").exists():
                found.mkdir(parents=True, exist_ok=True)
                await self._run(None, "init", "--quiet", "--bare", str(found))
        self._git_dirs[url] = found
        return found

    async def _local_git_dir(self, path: Path) -> Path:
        for candidate in (path / ".git", path):
            if (candidate / "HEAD").is_file() and (candidate / "objects").is_dir():
                return candidate
        if not (path / ".git").is_file():
            raise RepoError(f"{path} is not a git repository")
        common = await self._run(None, "-C", str(path), "rev-parse", "--git-common-dir")
        return (path / common.decode().strip()).resolve()

    async def _having(self, url: str, commit: str) -> Path:
        """The repository, once it has the commit; a mirror fetches exactly that."""
        git_dir = await self._git_dir(url)
        async with self._lock(f"fetch {url}"):
            if await self._holds(git_dir, commit):
                return git_dir
            if local_path(url):
                raise RepoError(f"{url} has no commit {commit}")
            try:
                await self._run(git_dir, "fetch", "--quiet", "--depth=1", "--", url, commit)
            except RepoError:
                # Some servers refuse to serve a bare hash; every branch and tag then has to do.
                await self._run(git_dir, "fetch", "--quiet", "--tags", "--", url, "+refs/heads/*:refs/heads/*")
            if not await self._holds(git_dir, commit):
                raise RepoError(f"{url} has no commit {commit}")
        return git_dir

    async def _holds(self, git_dir: Path, commit: str) -> bool:
        async def ask() -> bool:
            try:
                await self._run(git_dir, "cat-file", "-e", f"{commit}^{{commit}}")
            except RepoError:
                raise _Absent from None
            return True

        try:
            return await self._once(("holds", str(git_dir), commit), ask)
        except _Absent:
            return False

    def _lock(self, name: str) -> asyncio.Lock:
        """Lives as long as somebody holds it or waits for it."""
        return self._locks.setdefault(name, asyncio.Lock())

    async def _once(self, key: tuple[str, ...], ask: Callable[[], Awaitable[T]]) -> T:
        """One question at a time, answered from memory afterwards; a failure is not remembered."""
        future = self._facts.get(key)
        if future is None:
            future = asyncio.ensure_future(ask())
            self._facts[key] = future
            while len(self._facts) > REMEMBERED:
                self._facts.popitem(last=False)
        try:
            # Shielded, because others wait for the same answer when this asker is cancelled.
            result: T = await asyncio.shield(future)
        except BaseException:
            if future.done() and self._facts.get(key) is future:
                del self._facts[key]
            raise
        return result

    async def _run(self, git_dir: Path | None, *arguments: str, check: bool = True) -> bytes:
        where = [f"--git-dir={git_dir}"] if git_dir else []
        # The repository may belong to another user of this machine; reading it runs no code of its owner.
        process = await asyncio.create_subprocess_exec(
            self._git,
            "-c",
            "safe.directory=*",
            *where,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=git_environment(),
        )
        try:
            out, errors = await asyncio.wait_for(process.communicate(), GIT_TIMEOUT)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise RepoError(f"git {arguments[0]} took longer than {GIT_TIMEOUT:.0f} s") from None
            raise
        if check and process.returncode:
            text = errors.decode(errors="replace").strip().splitlines()
            raise RepoError(f"git {arguments[0]}: {text[-1] if text else f'exit {process.returncode}'}")
        return b"" if process.returncode else out


class _Absent(Exception):
    pass


def git_environment() -> dict[str, str]:
    kept = (
        "PATH",
        "HOME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
        "https_proxy",
        "http_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
    )
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def local_path(url: str) -> Path | None:
    if url.startswith("file://"):
        return Path(unquote(urlsplit(url).path))
    return Path(url) if url.startswith("/") else None


def ref_stamp(git_dir: Path, revision: str) -> tuple[Any, ...]:
    """Facts about the files that decide what a name means; equal stamps mean nothing was written."""
    names = ["HEAD", "packed-refs", "reftable/tables.list"]
    if revision == "HEAD":
        with contextlib.suppress(OSError):
            target = (git_dir / "HEAD").read_text().removeprefix("ref:").strip()
            if target.startswith("refs/") and ".." not in target:
                names.append(target)
    else:
        names += [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/remotes/origin/{revision}"]
    stamps: list[Any] = []
    for name in names:
        try:
            facts = os.stat(git_dir / name)  # noqa: PTH116 - twice a second for every name: no Path in between
            stamps.append((facts.st_mtime_ns, facts.st_ino, facts.st_size))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def clean_path(path: str) -> str:
    """A path inside the repository, `""` for its root. Anything that would leave it is refused."""
    if "\0" in path:
        raise RepoError("a path may not contain NUL")
    parts: list[str] = []
    for part in PurePosixPath(path.lstrip("/")).parts:
        if part == "..":
            if not parts:
                raise RepoError(f"{path}: outside of the repository")
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _unpack(archive: bytes, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                # Symbolic links could lead out of the tree; charts that need them are not ours.
                parts = PurePosixPath(member.name).parts
                source = tar.extractfile(member) if member.isfile() else None
                if source is not None and ".." not in parts and not member.name.startswith("/"):
                    file = beside.joinpath(*parts)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(source.read())
        beside.chmod(0o755)
        beside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _forget_oldest(trees: Path) -> None:
    """The cache has a size limit, and every commit may add to it."""
    found = sorted((place for place in trees.iterdir() if place.is_dir()), key=lambda place: place.stat().st_mtime)
    for place in found[:-TREES]:
        shutil.rmtree(place, ignore_errors=True)
