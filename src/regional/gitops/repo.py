"""Git, seen through the git binary: which commit a revision is, what directories a tree has, a tree as files.

A repository on this machine (file:// or a path) is read in place; others are mirrored into the cache. Commits and trees
never change, so everything learnt about one is kept; only the meaning of a name (branch, tag, HEAD) is asked again, for
a local repository when its refs changed on disk (a few stats), for a remote one once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import msgspec

from regional.core.clock import Clock, SystemClock
from regional.gitops.refs import COMMIT, loose_branch, ref_stamp
from regional.gitops.trees import forget_oldest, unpack

log = logging.getLogger(__name__)
T = TypeVar("T")

REMOTE_SECONDS = 60.0
GIT_TIMEOUT = 60.0
REMEMBERED = 4096
LISTINGS = 16


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
        if found := loose_branch(git_dir, revision):
            return found
        candidates = [revision] if revision == "HEAD" or revision.startswith("refs/") else []
        candidates += [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/remotes/origin/{revision}"]
        if re.fullmatch(r"[0-9a-f]{7,39}", revision):
            candidates.append(revision)
        for candidate in candidates:
            said = await self._run(git_dir, "rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}", check=False)
            if said.strip():
                return said.decode().strip()
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

    async def directories(self, url: str, commit: str) -> tuple[str, ...]:
        async def ask() -> tuple[str, ...]:
            listing = await self._listing(url, commit)
            return tuple(path for path, (kind, _) in listing.items() if kind == "tree")

        return await self._once(("directories", url, commit), ask)

    async def tree(self, url: str, commit: str, path: str) -> str | None:
        """The id of a directory's content: equal ids mean equal files. None if there is no such directory."""
        listing = await self._listing(url, commit)
        if not (place := clean_path(path)):
            return await self._root_tree(url, commit)
        kind, found = listing.get(place, ("", ""))
        return found if kind == "tree" else None

    async def file(self, url: str, commit: str, path: str) -> bytes | None:
        kind, found = (await self._listing(url, commit)).get(clean_path(path), ("", ""))
        return await self._blob(url, found) if kind == "blob" else None

    async def files(self, url: str, commit: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Every file whose path is wanted, read by one git, and remembered for `file`."""
        listing = await self._listing(url, commit)
        chosen = {path: oid for path, (kind, oid) in listing.items() if kind == "blob" and wanted(path)}
        git_dir = await self._git_dir(url)
        asked = "".join(f"{oid}\n" for oid in dict.fromkeys(chosen.values()))
        blobs = _batch(await self._run(git_dir, "cat-file", "--batch", stdin=asked.encode()))
        for oid, content in blobs.items():
            known: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            known.set_result(content)
            self._facts["blob", url, oid] = known
        return {path: blobs[oid] for path, oid in chosen.items()}

    async def _listing(self, url: str, commit: str) -> dict[str, tuple[str, str]]:
        """Path -> (blob or tree, id) of all that a commit holds."""

        async def ask() -> dict[str, tuple[str, str]]:
            for old in [key for key in self._facts if key[0] in ("listing", "directories")][: -2 * LISTINGS]:
                del self._facts[old]
            raw = await self._whole_tree(url, commit)
            found: dict[str, tuple[str, str]] = {}
            for entry in raw.split(b"\0"):
                facts, _, name = entry.partition(b"\t")
                if name:
                    _, kind, oid = facts.decode().split()
                    found[name.decode(errors="replace")] = (kind, oid)
            return found

        return await self._once(("listing", url, commit), ask)

    async def _whole_tree(self, url: str, commit: str) -> bytes:
        words = ("ls-tree", "-r", "-t", "-z", "--full-tree", f"{commit}^{{commit}}")
        if local_path(url):
            # Nearly always it is there, and then this is the only git that a new commit costs.
            with contextlib.suppress(RepoError):
                return await self._run(await self._git_dir(url), *words)
        return await self._run(await self._having(url, commit), *words)

    async def _root_tree(self, url: str, commit: str) -> str:
        async def ask() -> str:
            said = await self._run(await self._having(url, commit), "rev-parse", "--verify", f"{commit}^{{tree}}")
            return said.decode().strip()

        return await self._once(("root", url, commit), ask)

    async def _blob(self, url: str, oid: str) -> bytes:
        async def ask() -> bytes:
            return await self._run(await self._git_dir(url), "cat-file", "blob", oid)

        return await self._once(("blob", url, oid), ask)

    async def export(self, url: str, tree: str) -> Path:
        """A tree as files, under a name that is its content's. Made beside and renamed, so never half there."""
        target = self._root / "trees" / tree
        async with self._lock(f"export {tree}"):
            if target.is_dir():
                os.utime(target)
                return target
            git_dir = await self._git_dir(url)
            archive = await self._run(git_dir, "archive", "--format=tar", tree)
            await asyncio.to_thread(unpack, archive, target)
            await asyncio.to_thread(forget_oldest, target.parent)
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
                shallow = (git_dir / "shallow").is_file()
                hint = " (the clone is shallow: git fetch --unshallow)" if shallow else ""
                raise RepoError(f"{url} has no commit {commit}{hint}")
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

    async def _run(
        self, git_dir: Path | None, *arguments: str, check: bool = True, stdin: bytes | None = None
    ) -> bytes:
        where = [f"--git-dir={git_dir}"] if git_dir else []
        # The repository may belong to another user of this machine; reading it runs no code of its owner.
        process = await asyncio.create_subprocess_exec(
            self._git,
            "-c",
            "safe.directory=*",
            *where,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=git_environment(),
        )
        try:
            async with asyncio.timeout(GIT_TIMEOUT):
                out, errors = await process.communicate(stdin)
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


def _batch(raw: bytes) -> dict[str, bytes]:
    """What `cat-file --batch` prints: for each object a line `id type size`, its content, a newline."""
    found: dict[str, bytes] = {}
    position = 0
    while position < len(raw):
        end = raw.index(b"\n", position)
        oid, _, size = raw[position:end].decode().split()
        found[oid] = raw[end + 1 : end + 1 + int(size)]
        position = end + 2 + int(size)
    return found


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
