"""`regionctl apps`: what GitOps would install where, seen before the commit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regional.cli.output import print_table, print_value

if TYPE_CHECKING:
    from regional.gitops.fleet import Choice
    from regional.gitops.objectdiff import Group
    from regional.gitops.preview import ClusterPreview

WORKTREE = "."
SHOWN_CLUSTERS = 6


@click.group()
def apps() -> None:
    """Applications that clusters would get, and what a change does to them."""


@apps.command()
@click.option("--region", default="", help="Region name, or environment/name (default: every region).")
@click.option("--cluster-type", default="", help="Only regional-cluster, or only management-cluster.")
@click.option("--cluster", default="", help="Only this cluster: rc, or a management cluster's id.")
@click.option(
    "--rev",
    "revisions",
    multiple=True,
    metavar="REV",
    help="Commit, branch or `.` (the working tree); twice for a diff.",
)
@click.option("--checkout", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Another clone.")
@click.option("--no-render", is_flag=True, help="Only which Applications there are; run no Helm.")
@click.option("--summary", is_flag=True, help="Of a diff only which objects change, not how.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def preview(
    region: str,
    cluster_type: str,
    cluster: str,
    revisions: tuple[str, ...],
    checkout: Path | None,
    no_render: bool,
    summary: bool,
    output: str,
) -> int:
    """What clusters would get, rendered with the real Helm; or what changes between two revisions. Asks no cluster.

    Exits with 1 if Argo CD would take something for granted that is a mistake: no Applications at all, two of one
    name, a missing parameter, a type without charts, a chart that does not render.

    \b
    Examples:
      regionctl apps preview                               every region, as the working tree has it
      regionctl apps preview --region local -o yaml        every object of one region's clusters
      regionctl apps preview --rev HEAD --rev .            what the edits here would do, cluster by cluster
      regionctl apps preview --rev v1 --rev main --cluster-type management-cluster
    """
    from regional.core.loop import run
    from regional.core.problems import UserError
    from regional.gitops.fleet import Choice

    if len(revisions) > 2:
        raise UserError("--rev is given once, or twice for a diff", exit_code=2)
    if no_render and len(revisions) == 2:
        raise UserError("a diff needs the rendered objects: leave --no-render out", exit_code=2)
    choice = Choice(region, cluster_type, cluster)
    found = run(_previews(checkout, revisions or (WORKTREE,), choice, render=not no_render))
    if len(found) == 2:
        return _print_diff(found[0], found[1], summary=summary, output=output)
    return _print_clusters(found[0], output=output, rendered=not no_render)


async def _previews(
    checkout: Path | None, revisions: tuple[str, ...], choice: Choice, *, render: bool
) -> list[list[ClusterPreview]]:
    from regional.core import paths
    from regional.gitops.helm import Helm
    from regional.gitops.preview import Preview
    from regional.gitops.repo import Repositories
    from regional.local.tools import ensure_kubectl_and_helm

    place = (checkout or paths.checkout()).resolve()
    commits = [_commit(place, revision) for revision in revisions]
    helm = str(ensure_kubectl_and_helm() / "helm") if render else "helm"
    with tempfile.TemporaryDirectory(prefix="regional-preview-") as scratch:
        maker = Helm(Path(scratch) / "helm", binary=helm)
        try:
            look = Preview(Repositories(Path(scratch)), maker, f"file://{place}")
            if len(commits) == 2:
                return [*await look.of_both(commits[0], commits[1], choice)]
            return [await look.of(commits[0], choice, render=render)]
        finally:
            await maker.close()


def _commit(checkout: Path, revision: str) -> str:
    from regional.core.problems import UserError
    from regional.local import source

    head = source.git("rev-parse", "--verify", "-q", "HEAD", cwd=checkout, ok=False)
    if revision == WORKTREE:
        if not source.git("rev-parse", "--git-dir", cwd=checkout, ok=False):
            raise UserError(
                f"{checkout} is not a Git checkout", "clone the project with git: regions are declared in Git"
            )
        return source.snapshot(checkout, head)
    found = (
        ""
        if revision.startswith("-")
        else source.git("rev-parse", "--verify", "-q", f"{revision}^{{commit}}", cwd=checkout, ok=False)
    )
    if not found:
        shallow = source.git("rev-parse", "--is-shallow-repository", cwd=checkout, ok=False) == "true"
        raise UserError(
            f"{checkout} has no commit {revision!r}", "this clone is shallow: git fetch --unshallow" if shallow else ""
        )
    return found


def _print_clusters(found: list[ClusterPreview], *, output: str, rendered: bool) -> int:
    if output != "table":
        print_value([_as_document(one) for one in found], output)
        return int(any(one.refused for one in found))
    rows = []
    for one in found:
        for app in one.applications:
            commits = [commit[:8] for commit in app.revisions.commits] if app.revisions else []
            rows.append(
                [
                    one.cluster.title,
                    app.name,
                    app.path,
                    ", ".join(dict.fromkeys(commits)),
                    str(len(app.objects)) if rendered else "",
                ]
            )
    headers = ["CLUSTER", "APPLICATION", "CHART", "COMMITS", "OBJECTS"]
    print_table(headers, rows) if rendered else print_table(headers[:2], [row[:2] for row in rows])
    click.echo()
    for one in found:
        for problem in one.problems:
            click.echo(f"{one.cluster.title}: {problem}", err=True)
    wrong = sum(one.refused for one in found)
    click.echo(f"{len(found)} clusters, {len(rows)} Applications" + (f"; {wrong} clusters refused" if wrong else ""))
    return int(wrong > 0)


def _as_document(one: ClusterPreview) -> dict[str, Any]:
    identity = one.cluster.identity
    return {
        "region": one.cluster.region,
        "cluster": identity.cluster_name,
        "cluster_type": identity.cluster_type,
        "alike": one.cluster.alike,
        "problems": [str(problem) for problem in one.problems],
        "applications": [
            {
                "name": app.name,
                "path": app.path,
                "commits": list(app.revisions.commits) if app.revisions else [],
                "application": app.application,
                "objects": list(app.objects.values()),
            }
            for app in one.applications
        ],
    }


def _print_diff(before: list[ClusterPreview], after: list[ClusterPreview], *, summary: bool, output: str) -> int:
    from regional.gitops.objectdiff import compare

    groups = compare(before, after)
    wrong = any(problem.refused for group in groups for problem in group.change.problems)
    if output != "table":
        print_value([{"clusters": group.clusters, "change": group.change} for group in groups], output)
        return int(wrong)
    for group in groups:
        _print_group(group, summary=summary)
    changed = sum(len(group.clusters) for group in groups)
    click.echo(f"{changed} of {len(after)} clusters change" if changed else f"none of {len(after)} clusters changes")
    return int(wrong)


def _print_group(group: Group, *, summary: bool) -> None:
    more = f" and {len(group.clusters) - SHOWN_CLUSTERS} more" if len(group.clusters) > SHOWN_CLUSTERS else ""
    click.echo(f"=== {', '.join(group.clusters[:SHOWN_CLUSTERS])}{more}")
    for problem in group.change.problems:
        click.echo(str(problem), err=True)
    for name, kind in group.change.applications:
        click.echo(f"{kind} Application {name}")
    for change in group.change.objects:
        click.echo(f"{change.application}: {change}")
        if not summary:
            for line in change.diff:
                click.echo(f"  {line}")
    click.echo()
