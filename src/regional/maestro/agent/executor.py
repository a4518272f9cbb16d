"""On whose rights a bundle is applied: the service account that it names must itself be allowed to do what we do.

The cluster is asked for each verb (SubjectAccessReview). Roles and bindings are tried as that account, without effect,
because only the cluster knows whether they would give more than the account has.
"""

from __future__ import annotations

from regional.kube.client import ApiError, ApiUnreachable, Client
from regional.kube.objects import Obj
from regional.maestro.agent.works import Ref
from regional.maestro.protocol.bundles import Executor, ServiceAccount

AGAIN_SECONDS = 60.0
_RBAC = "rbac.authorization.k8s.io"
_GRANTS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")


class NotAllowed(Exception):
    """Asked again after a minute: rights change without our hearing of it."""


async def check(
    client: Client, executor: Executor | None, ref: Ref, manifest: Obj, *, owned: bool, reads: bool
) -> None:
    """Raises NotAllowed, ApiError. `owned`: the object will be deleted with its bundle. `reads`: it is only read."""
    if executor is None:
        return
    account = executor.subject.service_account
    if executor.subject.type != "ServiceAccount":
        raise NotAllowed("only support ServiceAccount type for the executor")
    if account is None:
        raise NotAllowed("the executor service account is nil")
    verbs = ("get",) if reads else ("create", "update", "patch", "get", *(("delete",) if owned else ()))
    for verb in verbs:
        if not await _may(client, account, ref, verb):
            raise NotAllowed(f"{_refusal(ref)}, will try again in 1m0s")
    if not reads and ref.group == _RBAC and ref.resource in _GRANTS:
        await _try_as(client, account, ref, manifest)


def _refusal(ref: Ref) -> str:
    return f"not allowed to apply the resource {ref.group} {ref.resource}, {ref.namespace} {ref.name}"


def _groups(account: ServiceAccount) -> list[str]:
    return ["system:serviceaccounts", "system:authenticated", f"system:serviceaccounts:{account.namespace}"]


def _user(account: ServiceAccount) -> str:
    return f"system:serviceaccount:{account.namespace}:{account.name}"


async def _may(client: Client, account: ServiceAccount, ref: Ref, verb: str) -> bool:
    attributes = {
        "group": ref.group,
        "version": ref.version,
        "resource": ref.resource,
        "namespace": ref.namespace,
        "name": ref.name,
        "verb": verb,
    }
    review: Obj = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": _user(account), "groups": _groups(account), "resourceAttributes": attributes},
    }
    answer = await client.create(review)
    return bool((answer.get("status") or {}).get("allowed"))


async def _try_as(client: Client, account: ServiceAccount, ref: Ref, manifest: Obj) -> None:
    try:
        await client.acting_as(_user(account)).create(manifest, dry_run=True)
    except ApiUnreachable:
        raise
    except ApiError as error:
        if error.status == 403:
            raise NotAllowed(f"{_refusal(ref)}, error: permission escalation, will try again in 1m0s") from None
        if not error.exists:  # what it may give is judged before whether it is there
            raise
