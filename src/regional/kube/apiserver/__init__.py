"""The Kubernetes API of one cluster, in process: EKS's control plane on one machine.

Owns the cluster's objects (one SQLite file in etcd's place), their semantics (resource versions, watches, finalizers,
server-side apply, CRDs) and who may touch them (certificates, service-account tokens, RBAC). Called by kubectl, Helm
and our own `kube.client`, over HTTPS through `front`, or without a socket through `ApiServer.handle`.
"""
