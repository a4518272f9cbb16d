"""What an AppProject lets its Applications do: from which repositories, into which namespaces."""

from __future__ import annotations

from regional.gitops.generators import LOCAL_NAME, LOCAL_SERVER
from regional.gitops.matching import glob_match
from regional.gitops.sources import sources_of
from regional.kube.objects import Obj, spec_of


def project_problem(application: Obj, project: Obj | None) -> str:
    """ "" if the Application may be; else the sentence for its InvalidSpecError."""
    name = spec_of(application).get("project") or ""
    if project is None:
        return f"Application referencing project {name} which does not exist"
    spec = spec_of(project)
    for source in sources_of(application):
        url = source.get("repoURL") or ""
        if not _permitted(url, spec.get("sourceRepos") or []):
            return f"application repo {url} is not permitted in project '{name}'"
    destination = spec_of(application).get("destination") or {}
    namespace = destination.get("namespace") or ""
    for allowed in spec.get("destinations") or []:
        server = allowed.get("server") or (LOCAL_SERVER if allowed.get("name") in (LOCAL_NAME, "*") else "")
        if glob_match(server, LOCAL_SERVER) and glob_match(allowed.get("namespace") or "", namespace):
            return ""
    return (
        f"application destination server '{LOCAL_SERVER}' and namespace '{namespace}' do not match any of the allowed "
        f"destinations in project '{name}'"
    )


def _permitted(url: str, patterns: list[str]) -> bool:
    """`!pattern` forbids, and a prohibition outweighs any permission."""
    if any(pattern.startswith("!") and glob_match(pattern[1:], url) for pattern in patterns):
        return False
    return any(glob_match(pattern, url) for pattern in patterns if not pattern.startswith("!"))
