"""Who a cluster is: the secret from which its ApplicationSet learns what to install, and the root Application.

One place to add an infrastructure fact: a field of `Facts`. It becomes an annotation of the identity secret, and so
`{{ .metadata.annotations.<name> }}` in the ApplicationSet's valuesObject.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

import msgspec

from regional.core.problems import UserError
from regional.gitops.applicationset import API_VERSION
from regional.gitops.generators import LOCAL_NAME, LOCAL_SERVER, SECRET_TYPE, Cluster
from regional.kube.objects import Obj

SECRET_NAME = "local-cluster-identity"
ROOT = "root"
_PASSWORD = re.compile(r"[a-z+]+://[^/@:]*:[^/@]+@")
_LABEL = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What only the infrastructure knows (Terraform outputs), as charts may need it."""

    account_id: str = ""
    vpc_id: str = ""
    api_target_group_arn: str = ""
    dynamodb_prefix: str = ""
    dynamodb_region: str = ""

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> Facts:
        """`key=value` words; an unknown key is a mistake that would otherwise surface as `<no value>` in a chart."""
        values: dict[str, str] = {}
        for pair in pairs:
            key, separator, value = pair.partition("=")
            if not separator:
                raise UserError(f"--fact {pair}: expected key=value", exit_code=2)
            if key not in cls.__struct_fields__:
                near = difflib.get_close_matches(key, cls.__struct_fields__, 1)
                raise UserError(
                    f"unknown fact {key!r}" + (f" (did you mean {near[0]!r}?)" if near else ""),
                    hint=f"known facts: {', '.join(cls.__struct_fields__)}",
                    exit_code=2,
                )
            values[key] = value
        return cls(**values)


class ClusterIdentity(msgspec.Struct, frozen=True, kw_only=True):
    cluster_type: str
    cluster_name: str
    environment: str
    region_alias: str
    aws_region: str
    git_repo: str
    git_revision: str
    namespace: str = "argocd"
    facts: Facts = Facts()

    def check(self) -> None:
        """All that would be refused later, by the API or by Git, in words about this cluster."""
        problems = [
            f"{name} {value!r} is not a label value"
            for name, value in self.labels().items()
            if not _LABEL.fullmatch(value)
        ]
        if not self.git_repo:
            problems.append("git-repo is empty")
        if _PASSWORD.match(self.git_repo):
            problems.append("git-repo holds a password: whoever may read Applications or logs would read it too")
        if not self.git_revision:
            problems.append("git-revision is empty")
        if problems:
            raise UserError("; ".join(problems), exit_code=2)

    def labels(self) -> dict[str, str]:
        return {
            SECRET_TYPE: "cluster",
            "cluster_type": self.cluster_type,
            "cluster_name": self.cluster_name,
            "environment": self.environment,
            "region_alias": self.region_alias,
            "aws_region": self.aws_region,
        }

    def annotations(self) -> dict[str, str]:
        facts: dict[str, str] = msgspec.to_builtins(self.facts)
        return {"git_repo": self.git_repo, "git_revision": self.git_revision} | facts

    def cluster(self) -> Cluster:
        """What the cluster generator will see of the secret."""
        return Cluster(SECRET_NAME, LOCAL_NAME, LOCAL_SERVER, "", self.labels(), self.annotations())

    def secret(self) -> Obj:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": SECRET_NAME,
                "namespace": self.namespace,
                "labels": self.labels(),
                "annotations": self.annotations(),
            },
            "type": "Opaque",
            "stringData": {
                "name": LOCAL_NAME,
                "server": LOCAL_SERVER,
                "config": '{"tlsClientConfig": {"insecure": false}}',
            },
        }

    @property
    def manifests(self) -> str:
        return f"deploy/{self.environment}/{self.region_alias}/argocd/{self.cluster_type}-manifests"

    def root(self) -> Obj:
        """prune is off: a mistake in the rendered files must not take the ApplicationSet, and all with it, away."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Application",
            "metadata": {"name": ROOT, "namespace": self.namespace},
            "spec": {
                "project": "default",
                "source": {
                    "repoURL": self.git_repo,
                    "targetRevision": self.git_revision,
                    "path": self.manifests,
                },
                "destination": {"server": LOCAL_SERVER, "namespace": self.namespace},
                "syncPolicy": {
                    "automated": {"prune": False, "selfHeal": True},
                    "syncOptions": ["CreateNamespace=true"],
                },
            },
        }
