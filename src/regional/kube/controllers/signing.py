"""Approved requests for client certificates are signed by the cluster's authority, where its key is at hand."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from regional.core.pki import sign_client_request
from regional.kube.controllers.context import Context, Controller
from regional.kube.objects import Key, Obj, copied, is_deleting, is_true, key_of, spec_of, status_of

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
LONGEST_SECONDS = 365 * 24 * 3600
_OPTIONAL = ("digital signature", "key encipherment")


class SigningController(Controller):
    name = "signing"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.requests = context.informers.of("certificates.k8s.io/v1", "CertificateSigningRequest")
        self.requests.add_listener(lambda kind, request, old: self.queue.add(key_of(request)))

    def keys(self) -> Iterable[Key]:
        return [key_of(request) for request in self.requests]

    async def reconcile(self, key: Key) -> float | None:
        request = self.requests.get(*key)
        authority = self.context.settings.authority
        if request is None or authority is None or is_deleting(request) or not _awaits_signature(request):
            return None
        signed, spec = copied(request), spec_of(request)
        status = signed.setdefault("status", {})
        if problem := _usage_problem(spec.get("usages") or []):
            failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": problem}
            status["conditions"] = [*(status.get("conditions") or []), failed]
        else:
            seconds = min(spec.get("expirationSeconds") or LONGEST_SECONDS, LONGEST_SECONDS)
            pem = sign_client_request(authority, base64.b64decode(spec["request"]), seconds, spec["usages"])
            status["certificate"] = base64.b64encode(pem.encode()).decode()
        self.requests.observe(await self.client.update_status(signed))
        return None


def _awaits_signature(request: Obj) -> bool:
    ours = spec_of(request).get("signerName") == CLIENT_SIGNER
    decided = is_true(request, "Approved") and not is_true(request, "Denied") and not is_true(request, "Failed")
    return ours and decided and not status_of(request).get("certificate")


def _usage_problem(usages: list[str]) -> str:
    for usage in usages:
        if usage not in ("client auth", *_OPTIONAL):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"
