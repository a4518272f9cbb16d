"""Pins against Git: a commit that does not exist, or has no charts, would stop a region's GitOps in silence.

In a full clone a missing commit is an error. In a shallow one (as CI makes them) it may be among what was not cloned,
so that it is said as a warning.
"""

from __future__ import annotations

import msgspec

from regional.config.model import Configuration, Region
from regional.config.problems import ConfigProblems, Problem
from regional.config.repository import Repository
from regional.config.source import Node

CHARTS = "argocd/config"


class _Question(msgspec.Struct, frozen=True):
    commit: str
    path: str  # "" asks for the commit itself
    kind: str  # what Git must answer, "" for nothing there
    fault: str
    at: Node


def look_up(configuration: Configuration, repository: Repository) -> list[Problem]:
    """Returns warnings; raises ConfigProblems with every pin that is wrong."""
    pinned = [region for region in configuration.regions if region.config_revision or region.values_revision]
    questions = [question for region in pinned for question in _questions(region, configuration.entry(region))]
    asked = list(dict.fromkeys((question.commit, question.path) for question in questions))
    answers = dict(zip(asked, repository.kinds(asked), strict=True))
    faults: list[Problem] = []
    warnings: list[Problem] = []
    absent: set[str] = set()
    for question in questions:
        answer = answers[question.commit, question.path]
        if answer == question.kind or (question.path and question.commit in absent):
            continue
        place = (configuration.file, question.at.line, question.at.column)
        first = question.commit not in absent
        if not question.path:
            absent.add(question.commit)
        if answer and not question.path:
            faults.append(Problem(*place, f"{question.commit} is a {answer}, not a commit"))
        elif repository.shallow and not question.path:
            # Said once: hundreds of regions may share a pin.
            message = f"commit {question.commit} was not looked up: the clone is shallow (git fetch --unshallow)"
            warnings += [Problem(*place, message)] if first else []
        else:
            faults.append(Problem(*place, question.fault))
    if faults:
        raise ConfigProblems(faults)
    return sorted(set(warnings))


def any_is_known(configuration: Configuration, repository: Repository) -> bool:
    """Whether the repository has at least one of the commits that are pinned."""
    found = {commit for region in configuration.regions for commit in region.config_revision.values()}
    found |= {commit for region in configuration.regions for commit in region.values_revision.values()}
    return any(repository.kinds([(commit, "") for commit in sorted(found)]))


def _questions(region: Region, entry: Node) -> list[_Question]:
    questions = []
    for kind, commit in region.config_revision.items():
        at = _place(entry, "config_revision", kind)
        folder = f"{CHARTS}/{kind}"
        questions += [
            _Question(commit, "", "commit", f"commit {commit} is not in this repository", at),
            _Question(commit, folder, "tree", f"commit {commit} has no charts in {folder}", at),
        ]
    for kind, commit in region.values_revision.items():
        at = _place(entry, "values_revision", kind)
        questions.append(_Question(commit, "", "commit", f"commit {commit} is not in this repository", at))
        questions += [
            _Question(commit, path, "blob", f"commit {commit} has no {path}: pin one that was rendered with it", at)
            for path in _value_files(region, kind)
        ]
        own = f"deploy/{region.key}/argocd/{kind}-values"
        if kind == "management-cluster" and not region.layered:
            fault = f"commit {commit} has values of single clusters in {own}, which would be lost: pin a later one"
            questions.append(_Question(commit, own, "", fault, at))
    return questions


def _value_files(region: Region, kind: str) -> list[str]:
    base = f"deploy/{region.key}/argocd/{kind}-values"
    layered = region.layered and kind == "management-cluster"
    return [f"{base}.yaml", *(f"{base}/{cluster.cluster_id}.yaml" for cluster in region.management_clusters if layered)]


def _place(entry: Node, field: str, kind: str) -> Node:
    pins = entry.get(field)
    return (pins.get(kind) if pins else None) or entry
