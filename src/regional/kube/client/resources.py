"""Where a kind lives in the URL space: group, version, plural and scope.

The built-in kinds are a table, so that the common calls cost no discovery; everything else is learnt from the server.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True):
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def id(self) -> str:
        """`deployments.apps`, the way RBAC and error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @staticmethod
    def of(api_version: str, kind: str) -> Resource:
        """A built-in kind; KeyError for any other (those need `Client.resource_for`)."""
        return _BUILTINS[api_version, kind]

    @staticmethod
    def known(api_version: str, kind: str) -> Resource | None:
        return _BUILTINS.get((api_version, kind))

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


_TABLE = """
v1 ns Binding bindings, ConfigMap configmaps, Endpoints endpoints, Event events, LimitRange limitranges,
  PersistentVolumeClaim persistentvolumeclaims, Pod pods, ReplicationController replicationcontrollers,
  ResourceQuota resourcequotas, Secret secrets, Service services, ServiceAccount serviceaccounts
v1 cluster Namespace namespaces, Node nodes, PersistentVolume persistentvolumes
apps/v1 ns ControllerRevision controllerrevisions, DaemonSet daemonsets, Deployment deployments,
  ReplicaSet replicasets, StatefulSet statefulsets
batch/v1 ns CronJob cronjobs, Job jobs
coordination.k8s.io/v1 ns Lease leases
discovery.k8s.io/v1 ns EndpointSlice endpointslices
events.k8s.io/v1 ns Event events
policy/v1 ns PodDisruptionBudget poddisruptionbudgets
autoscaling/v2 ns HorizontalPodAutoscaler horizontalpodautoscalers
networking.k8s.io/v1 ns Ingress ingresses, NetworkPolicy networkpolicies
networking.k8s.io/v1 cluster IngressClass ingressclasses
rbac.authorization.k8s.io/v1 ns Role roles, RoleBinding rolebindings
rbac.authorization.k8s.io/v1 cluster ClusterRole clusterroles, ClusterRoleBinding clusterrolebindings
scheduling.k8s.io/v1 cluster PriorityClass priorityclasses
storage.k8s.io/v1 cluster CSIDriver csidrivers, CSINode csinodes, StorageClass storageclasses
apiextensions.k8s.io/v1 cluster CustomResourceDefinition customresourcedefinitions
apiregistration.k8s.io/v1 cluster APIService apiservices
admissionregistration.k8s.io/v1 cluster MutatingWebhookConfiguration mutatingwebhookconfigurations,
  ValidatingAdmissionPolicy validatingadmissionpolicies,
  ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings,
  ValidatingWebhookConfiguration validatingwebhookconfigurations
certificates.k8s.io/v1 cluster CertificateSigningRequest certificatesigningrequests
authentication.k8s.io/v1 cluster SelfSubjectReview selfsubjectreviews, TokenReview tokenreviews
authorization.k8s.io/v1 ns LocalSubjectAccessReview localsubjectaccessreviews
authorization.k8s.io/v1 cluster SelfSubjectAccessReview selfsubjectaccessreviews,
  SelfSubjectRulesReview selfsubjectrulesreviews, SubjectAccessReview subjectaccessreviews
"""


def _rows() -> dict[tuple[str, str], Resource]:
    rows: dict[tuple[str, str], Resource] = {}
    for line in _TABLE.replace(",\n", ",").strip().splitlines():
        api_version, scope, entries = line.split(maxsplit=2)
        group, _, version = api_version.rpartition("/")
        for entry in entries.split(","):
            kind, plural = entry.split()
            rows[api_version, kind] = Resource(group, version, plural, kind, scope == "ns")
    return rows


_BUILTINS = _rows()
