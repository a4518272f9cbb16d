"""One checkout: config.yaml, the charts beside it, and the repository around both, checked against each other."""

from __future__ import annotations

import enum
from pathlib import Path

from regional.config import charts, deploy, pins
from regional.config.deploy import Change
from regional.config.load import load
from regional.config.memory import Memory
from regional.config.model import Configuration
from regional.config.problems import ConfigProblems, Problem
from regional.config.render import render_index, render_region
from regional.config.repository import Repository
from regional.core.problems import UserError


class Git(enum.Enum):
    """Whether pins are looked up."""

    ASK = "always"
    IF_THERE = "only where the history that they name is"
    LEAVE_OUT = "never"


def validated(
    checkout: Path, *, git: Git = Git.ASK, memory: Memory | None = None
) -> tuple[Configuration, list[Problem]]:
    """The configuration and its warnings. Raises ConfigProblems with everything that is wrong."""
    configuration = load(checkout / "config.yaml", memory)
    return configuration, configuration.warnings + against_checkout(configuration, checkout, git=git)


def against_checkout(configuration: Configuration, checkout: Path, *, git: Git) -> list[Problem]:
    """Charts and pins. Git is asked only if something is pinned."""
    pinned = [region for region in configuration.regions if region.config_revision or region.values_revision]
    faults: list[Problem] = []
    warnings: list[Problem] = []
    repository = None
    if pinned and git is not Git.LEAVE_OUT:
        repository, without = _history(configuration, checkout, git)
        warnings += without
    if repository:
        try:
            warnings += pins.look_up(configuration, repository)
        except ConfigProblems as found:
            faults += found.problems
    try:
        live = charts.keys_in(checkout / pins.CHARTS)
        commits = {commit for region in pinned for commit in region.config_revision.values()}
        of_pins = charts.keys_at(repository, commits, pins.CHARTS) if repository else None
        charts.check_values(configuration, live, of_pins)
    except ConfigProblems as found:
        faults += found.problems
    if faults:
        raise ConfigProblems(faults)
    return warnings


def _history(configuration: Configuration, checkout: Path, git: Git) -> tuple[Repository | None, list[Problem]]:
    """An exported copy, or a repository that was begun anew with one, has no pin to look up and no fault for it."""
    try:
        repository = Repository(checkout)
    except UserError:
        if git is Git.ASK:
            raise
        repository = None
    if git is Git.ASK or (repository is not None and pins.any_is_known(configuration, repository)):
        return repository, []
    message = "pins were not looked up: the history that they name is not here"
    return None, [Problem(configuration.file, 0, 0, message)]


def bring_up_to_date(configuration: Configuration, checkout: Path, memory: Memory) -> tuple[list[Change], int]:
    """Writes deploy/; returns what changed and how many files it has. Files that are as remembered are left alone."""
    target = checkout / "deploy"
    found = deploy.present(target)
    rendered: dict[str, bytes] = {}
    written: dict[str, frozenset[str]] = {}
    unchanged: set[str] = set()
    for region in configuration.regions:
        if files := memory.intact(region, found):
            unchanged.update(files)
        else:
            anew = render_region(region)
            written[region.key] = frozenset(anew)
            rendered |= anew
    rendered["index.json"] = render_index(configuration)
    changes = deploy.write(rendered, target, unchanged, found)
    memory.keep(configuration.regions, target, written)
    return changes, len(rendered) + len(unchanged)
