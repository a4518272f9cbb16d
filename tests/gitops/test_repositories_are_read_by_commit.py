from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regional.core.clock import ManualClock
from regional.gitops.repo import RepoError, Repositories, clean_path
from tests.gitops.harness import GitRepository


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    return Repositories(tmp_path / "cache")


async def test_names_follow_the_branch_and_hashes_stand_still(
    repository: GitRepository, repositories: Repositories
) -> None:
    first = repository.commit({"a/file": "1"})
    repository.git("tag", "v1")
    assert await repositories.resolve(repository.url, "main") == first
    second = repository.commit({"a/file": "2"})
    assert await repositories.resolve(repository.url, "main") == second
    assert await repositories.resolve(repository.url, "HEAD") == second
    assert await repositories.resolve(repository.url, "v1") == first
    assert await repositories.resolve(repository.url, first) == first
    assert await repositories.resolve(repository.url, first[:10]) == first


async def test_a_new_commit_on_a_branch_costs_one_run_of_git(repository: GitRepository, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    counting = tmp_path / "git"
    counting.write_text(f'#!/bin/sh\necho "$@" >> {runs}\nexec git "$@"\n')
    counting.chmod(0o755)
    repositories = Repositories(tmp_path / "cache", git=str(counting))
    for content in ("1", "2"):
        wanted = repository.commit({"a/file": content})
        assert await repositories.resolve(repository.url, "main") == wanted
        assert await repositories.resolve(repository.url, "HEAD") == wanted
        assert await repositories.directories(repository.url, wanted) == ("a",)
        assert await repositories.tree(repository.url, wanted, "a") == repository.git("rev-parse", "main:a").strip()
    assert len(runs.read_text().splitlines()) == 2
    assert await repositories.tree(repository.url, wanted, "") == repository.git("rev-parse", "main^{tree}").strip()


async def test_an_annotated_tag_means_its_commit(repository: GitRepository, repositories: Repositories) -> None:
    commit = repository.commit({"a": "1"})
    repository.git("tag", "-a", "-m", "release", "v2")
    assert await repositories.resolve(repository.url, "v2") == commit


async def test_a_stamp_changes_with_the_branch_even_when_refs_are_packed(
    repository: GitRepository, repositories: Repositories
) -> None:
    repository.commit({"a": "1"})
    before = await repositories.stamp(repository.url, "main")
    assert await repositories.stamp(repository.url, "main") == before
    repository.commit({"a": "2"})
    after = await repositories.stamp(repository.url, "main")
    assert after != before
    commit = repository.commit({"a": "3"})
    repository.git("pack-refs", "--all")
    assert await repositories.resolve(repository.url, "main") == commit


async def test_everybody_hears_of_a_move_whoever_finds_out(
    repository: GitRepository, repositories: Repositories
) -> None:
    heard: list[str] = []
    repositories.on_moved(lambda url, revision: heard.append(revision))
    repository.commit({"a": "1"})
    with pytest.raises(RepoError):
        await repositories.resolve(repository.url, "later")
    await repositories.resolve(repository.url, "main")
    await repositories.look(repository.url, "main")
    assert heard == []
    repository.commit({"a": "2"})
    await repositories.resolve(repository.url, "main")
    repository.commit({"a": "3"})
    await repositories.look(repository.url, "main")
    repository.git("branch", "later")
    await repositories.look(repository.url, "later")
    repositories.forget(repository.url)
    repository.commit({"a": "4"})
    await repositories.resolve(repository.url, "main")
    assert heard == ["main", "main", "later", "main"]


async def test_a_bare_repository_and_a_plain_path_work_too(
    repository: GitRepository, repositories: Repositories, tmp_path: Path
) -> None:
    commit = repository.commit({"a/b/c.txt": "x"})
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert await repositories.resolve(str(tmp_path / "bare.git"), "main") == commit
    assert await repositories.directories(f"file://{tmp_path}/bare.git", commit) == ("a", "a/b")


@pytest.fixture
def served(repository: GitRepository) -> Iterator[str]:
    """The repository over HTTP, the dumb way: a server that can serve neither single commits nor shallow clones."""
    repository.commit({"chart/Chart.yaml": "old"})

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(repository.path)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/.git"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_remote_repository_is_mirrored(repository: GitRepository, served: str, tmp_path: Path) -> None:
    clock = ManualClock()
    repositories = Repositories(tmp_path / "cache", clock=clock)
    repository.git("update-server-info")
    first = await repositories.resolve(served, "main")
    assert first == repository.git("rev-parse", "HEAD")
    assert await repositories.file(served, first, "chart/Chart.yaml") == b"old"
    second = repository.commit({"chart/Chart.yaml": "new"})
    repository.git("update-server-info")
    assert await repositories.resolve(served, "main") == first
    await clock.advance(61)
    assert await repositories.resolve(served, "main") == second
    assert await repositories.file(served, second, "chart/Chart.yaml") == b"new"
    with pytest.raises(RepoError, match="unable to resolve"):
        await repositories.resolve(served, "nope")


@pytest.mark.parametrize("revision", ["nope", "--upload-pack=x", "a..b"])
async def test_an_unknown_revision_says_so(
    repository: GitRepository, repositories: Repositories, revision: str
) -> None:
    repository.commit({"a": "1"})
    with pytest.raises(RepoError, match="unable to resolve"):
        await repositories.resolve(repository.url, revision)


async def test_what_is_no_repository_says_so(repositories: Repositories, tmp_path: Path) -> None:
    with pytest.raises(RepoError, match="not a git repository"):
        await repositories.resolve(f"file://{tmp_path}/absent", "main")
    assert await repositories.stamp(f"file://{tmp_path}/absent", "main") is None


async def test_a_commit_that_is_not_there_says_so(repository: GitRepository, repositories: Repositories) -> None:
    repository.commit({"a/b": "1"})
    with pytest.raises(RepoError, match="has no commit"):
        await repositories.directories(repository.url, "0" * 40)


async def test_a_shallow_clone_is_told_apart_from_a_wrong_commit(
    repository: GitRepository, repositories: Repositories, tmp_path: Path
) -> None:
    old = repository.commit({"a/b": "1"})
    repository.commit({"a/b": "2"})
    repository.git("clone", "-q", "--depth=1", repository.url, str(tmp_path / "shallow"))
    with pytest.raises(RepoError, match=f"has no commit {old} .the clone is shallow: git fetch --unshallow"):
        await repositories.directories(str(tmp_path / "shallow"), old)


async def test_trees_are_exported_once_by_content(repository: GitRepository, repositories: Repositories) -> None:
    first = repository.commit({"chart/Chart.yaml": "x", "other": "1"})
    (repository.path / "chart" / "link").symlink_to("/etc/passwd")
    second = repository.commit({"other": "2"})
    third = repository.commit({"other": "3"})
    trees = [await repositories.tree(repository.url, commit, "chart") for commit in (first, second, third)]
    assert trees[0] != trees[1] == trees[2]
    assert trees[1] is not None
    exported = await repositories.export(repository.url, trees[1])
    assert sorted(file.name for file in exported.iterdir()) == ["Chart.yaml"]
    assert await repositories.export(repository.url, trees[1]) == exported
    assert await repositories.tree(repository.url, first, "other") is None
    assert await repositories.tree(repository.url, first, "absent") is None


async def test_files_are_read_at_a_commit(repository: GitRepository, repositories: Repositories) -> None:
    first = repository.commit({"deploy/values.yaml": "a: 1\n"})
    repository.commit({"deploy/values.yaml": "a: 2\n"})
    assert await repositories.file(repository.url, first, "deploy/values.yaml") == b"a: 1\n"
    assert await repositories.file(repository.url, first, "deploy/none.yaml") is None


def test_a_path_may_not_leave_its_repository() -> None:
    assert clean_path("/a/./b/../c") == "a/c"
    with pytest.raises(RepoError, match="outside"):
        clean_path("a/../../etc")
