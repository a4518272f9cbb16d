"""Requests for certificates: who asks is what the server knows of them, whatever they say; and who may decide."""

from __future__ import annotations

from datetime import datetime

from regional.kube.apiserver.authz import Attributes, Authorizer
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import forbidden
from regional.kube.messages import MASTERS, User
from regional.kube.schema.signing_rules import BadRequest, parsed_request, prepare_decision

GROUP = "certificates.k8s.io"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_WHO = ("username", "uid", "groups", "extra")


def admit(authorizer: Authorizer, call: Call, obj: Obj, old: Obj | None, now: datetime) -> None:
    """Raises to refuse."""
    name = str(obj["metadata"].get("name", ""))
    if old is None:
        _sign_with_user(obj, call.user)
        if _asks_for_everything(obj):
            why = f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise forbidden(call.kind, name, why)
        return
    subresource = call.target.subresource
    if not subresource:
        return
    prepare_decision(obj, old, subresource, now)
    verb = "approve" if subresource == "approval" else "sign"
    if verb == "sign" and (obj.get("status") or {}) == (old.get("status") or {}):
        return
    signer = str(old["spec"].get("signerName") or "")
    if not _may(authorizer, call.user, verb, signer):
        raise forbidden(call.kind, name, f'user not permitted to {verb} requests with signerName "{signer}"')


def _sign_with_user(obj: Obj, user: User) -> None:
    spec = obj["spec"]
    for field in _WHO:
        spec.pop(field, None)
    known = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": user.extra}
    spec |= {field: value for field, value in known.items() if value}


def _asks_for_everything(obj: Obj) -> bool:
    """A certificate of `system:masters` cannot be taken back: no request leads to one."""
    spec = obj["spec"]
    if spec.get("signerName") != CLIENT_SIGNER:
        return False
    from cryptography.x509.oid import NameOID

    try:
        subject = parsed_request(spec).subject
    except BadRequest:
        return False  # which the rules tell
    return any(each.value == MASTERS for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))


def _may(authorizer: Authorizer, user: User, verb: str, signer: str) -> bool:
    names = (signer, signer.partition("/")[0] + "/*")
    asked = (Attributes(user, verb, GROUP, "signers", name=name) for name in names)
    return any(authorizer.check(each).allowed for each in asked)
