"""Questions to Git about commits that a configuration names. Never fetches, never writes, asks for no password."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from regional.core.problems import UserError

# Set inside Git hooks, where they would point away from the folder that was asked about.
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
SKIP = "use --no-git to leave the look-up out"


class Repository:
    """The repository around a folder. Paths are relative to the folder, which need not be the repository's top."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError where there is none."""
        self._folder = folder
        if shutil.which("git") is None:
            raise UserError("commits cannot be looked up: git is not installed", SKIP)
        found = self._run("rev-parse", "--is-shallow-repository", "--show-prefix")
        if found.returncode != 0:
            raise UserError(f"commits cannot be looked up: {folder} is not in a Git repository", SKIP)
        shallow, prefix = [*found.stdout.decode().splitlines(), "", ""][:2]
        self.shallow = shallow == "true"
        self._prefix = prefix

    def kinds(self, wanted: Sequence[tuple[str, str]]) -> list[str]:
        """For each (commit, path) "commit", "tree", "blob" or "tag", and "" for what is not there. One process."""
        lines = "".join(f"{self._name(commit, path)}\n" for commit, path in wanted)
        answers = self._run("cat-file", "--batch-check=%(objecttype)", stdin=lines.encode()).stdout.decode()
        found = answers.splitlines()
        if len(found) != len(wanted):
            raise UserError(f"commits cannot be looked up: git cat-file failed in {self._folder}", SKIP)
        return ["" if answer.endswith((" missing", " ambiguous")) else answer for answer in found]

    def files(self, commit: str, folder: str) -> list[str]:
        listed = self._run("ls-tree", "-r", "-z", "--name-only", commit, "--", f"{folder}/")
        return [path.decode(errors="replace") for path in listed.stdout.split(b"\0") if path]

    def contents(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """What is there of (commit, path), in one process."""
        asked = list(wanted)
        lines = "".join(f"{self._name(commit, path)}\n" for commit, path in asked)
        raw = self._run("cat-file", "--batch=%(objectsize)", stdin=lines.encode()).stdout
        found: dict[tuple[str, str], bytes] = {}
        at = 0
        for key in asked:
            end = raw.find(b"\n", at)
            header = raw[at:end]
            at = end + 1
            if header.isdigit():
                found[key] = raw[at : at + int(header)]
                at += int(header) + 1
        return found

    def resolve(self, revision: str) -> str:
        """The commit that a person means by a branch, tag or `HEAD~2`. Raises UserError."""
        found = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if found.returncode != 0:
            hint = "the clone is shallow: git fetch --unshallow" if self.shallow else "see `git log`"
            raise UserError(f"no commit {revision} in this repository", hint)
        return found.stdout.decode().strip()

    def _name(self, commit: str, path: str) -> str:
        return f"{commit}:{self._prefix}{path}" if path else commit

    def _run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        environment = {key: value for key, value in os.environ.items() if key not in _OF_A_HOOK}
        return subprocess.run(
            ["git", "-c", "safe.directory=*", *arguments],
            cwd=self._folder,
            env=environment | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            input=stdin,
            capture_output=True,
            check=False,
        )
