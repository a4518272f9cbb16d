"""Client certificates by request: who asks is known to the server, somebody who may approves, the cluster signs."""

from __future__ import annotations

import asyncio
import base64
import uuid
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .servers import Credentials
from .test_access import ME, RBAC, REVIEWS, WHO, binding, role, rule, user
from .wire import PATIENCE, Http, Obj, Shell

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client"
GROUP = "certificates.k8s.io"


class Asked:
    """A key and the request for its certificate; a name of this test's own."""

    def __init__(self, common_name: str, *organizations: str) -> None:
        self.name = f"csr-{uuid.uuid4().hex[:10]}"
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.pem = request.public_bytes(pem)
        self.key = key.private_bytes(pem, form, serialization.NoEncryption())

    def document(self, **spec: Any) -> Obj:
        asked = {"request": base64.b64encode(self.pem).decode(), "signerName": SIGNER, "usages": ["client auth"]}
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name},
            "spec": asked | spec,
        }


def approval(request: Obj, kind: str = "Approved") -> Obj:
    condition = {"type": kind, "status": "True", "reason": "Tested", "message": "by a test"}
    return request | {"status": (request.get("status") or {}) | {"conditions": [condition]}}


async def permit(http: Http, name: str, *rules: Obj) -> None:
    """joe gets the rules in the whole cluster, and the server knows it: the real one hears of it a moment later."""
    (await http.post(f"{RBAC}/clusterroles", role(name, *rules, kind="ClusterRole"))).ok(201)
    bound = binding(name, user("joe"), kind="ClusterRoleBinding", of="ClusterRole")
    (await http.post(f"{RBAC}/clusterrolebindings", bound)).ok(201)
    first = rules[0]
    resource, _, part = first["resources"][0].partition("/")
    asked = {"verb": first["verbs"][0], "group": GROUP, "resource": resource, "subresource": part}
    asked |= {"name": first["resourceNames"][0]} if "resourceNames" in first else {}
    review = {"spec": {"user": "joe", "resourceAttributes": asked}}
    async with asyncio.timeout(PATIENCE):
        while not (await http.post(f"{REVIEWS}/subjectaccessreviews", review)).ok(201)["status"]["allowed"]:
            await asyncio.sleep(0.05)


async def forbid(http: Http, name: str) -> None:
    for resource in ("clusterrolebindings", "clusterroles"):
        await http.delete(f"{RBAC}/{resource}/{name}")


async def test_an_approved_request_becomes_a_certificate_that_the_server_knows(http: Http, kubectl: Shell) -> None:
    asked = Asked("jane", "devs")
    (await http.post(PATH, asked.document(expirationSeconds=3600))).ok(201)
    assert "approved" in await kubectl(f"certificate approve {asked.name}")
    signed = await http.until(f"{PATH}/{asked.name}", lambda answer: answer.body["status"].get("certificate"))
    pem = base64.b64decode(signed.body["status"]["certificate"])
    certificate = x509.load_pem_x509_certificate(pem)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert life.total_seconds() == pytest.approx(3600 + 300, abs=5)
    assert "Approved,Issued" in await kubectl(f"get csr {asked.name}")

    http.cluster.users["jane"] = Credentials(pem, asked.key)
    known = (await http.post(ME, WHO, user="jane")).ok(201)["status"]["userInfo"]
    assert (known["username"], known["groups"]) == ("jane", ["devs", "system:authenticated"])


async def test_the_server_says_who_asks(http: Http) -> None:
    asked, name = Asked("jane"), f"ask-{uuid.uuid4().hex[:8]}"
    await permit(http, name, rule("create", "update", resources="certificatesigningrequests", group=GROUP))
    try:
        forged = asked.document(username="admin", groups=["system:masters"], uid="1", extra={"a": ["b"]})
        made = (await http.post(PATH, forged, user="joe")).ok(201)
        assert made["spec"]["username"] == "joe"
        assert made["spec"]["groups"] == ["devs", "system:authenticated"]
        assert "uid" not in made["spec"]
        assert list(made["spec"]["extra"]) == ["authentication.kubernetes.io/credential-id"]
        changed = made | {"spec": made["spec"] | {"username": "admin", "usages": ["server auth"]}}
        assert (await http.put(f"{PATH}/{asked.name}", changed, user="joe")).ok(200)["spec"] == made["spec"]
    finally:
        await forbid(http, name)


async def test_who_may_write_requests_may_not_decide_about_them(http: Http) -> None:
    asked, name = Asked("jane"), f"decide-{uuid.uuid4().hex[:8]}"
    made = (await http.post(PATH, asked.document())).ok(201)
    parts = "certificatesigningrequests/approval,certificatesigningrequests/status"
    await permit(http, name, rule("update", "patch", resources=parts, group=GROUP))
    try:
        refused = await http.put(f"{PATH}/{asked.name}/approval", approval(made), user="joe")
        why = f'user not permitted to approve requests with signerName "{SIGNER}"'
        refused.refused(
            403,
            "Forbidden",
            f'certificatesigningrequests.{GROUP} "{asked.name}" is forbidden: {why}',
            {"name": asked.name, "group": GROUP, "kind": "certificatesigningrequests"},
        )
        status = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
        refused = await http.patch(f"{PATH}/{asked.name}/status", status, user="joe")
        assert refused.status == 403
        assert "user not permitted to sign requests" in refused.message
        whole = rule("approve", resources="signers", names=["kubernetes.io/*"], group=GROUP)
        await permit(http, f"{name}-all", whole)
        (await http.put(f"{PATH}/{asked.name}/approval", approval(made), user="joe")).ok(200)
    finally:
        await forbid(http, name)
        await forbid(http, f"{name}-all")


async def test_no_request_leads_to_the_group_that_may_everything(http: Http) -> None:
    asked = Asked("jane", "system:masters")
    refused = await http.post(PATH, asked.document())
    assert refused.status == 403
    assert refused.message.endswith(f"use of {SIGNER} signer with system:masters group is not allowed")


async def test_a_request_for_other_uses_fails(http: Http) -> None:
    asked = Asked("jane")
    made = (await http.post(PATH, asked.document(usages=["client auth", "server auth"]))).ok(201)
    (await http.put(f"{PATH}/{asked.name}/approval", approval(made))).ok(200)
    failed = await http.until(f"{PATH}/{asked.name}", lambda answer: len(answer.body["status"]["conditions"]) == 2)
    condition = failed.body["status"]["conditions"][1]
    assert (condition["type"], condition["reason"]) == ("Failed", "SignerValidationFailure")
    assert condition["message"] == "invalid usage for client certificate: server auth"
    assert "certificate" not in failed.body["status"]


async def test_a_denied_request_is_not_signed_and_stays_denied(http: Http, kubectl: Shell) -> None:
    asked = Asked("jane")
    (await http.post(PATH, asked.document())).ok(201)
    await kubectl(f"certificate deny {asked.name}")
    denied = (await http.get(f"{PATH}/{asked.name}")).ok()
    (await http.put(f"{PATH}/{asked.name}/approval", approval(denied))).refused(
        422,
        "Invalid",
        f'CertificateSigningRequest.{GROUP} "{asked.name}" is invalid: status.conditions: Forbidden: '
        'updates may not remove a condition of type "Denied"',
        {
            "name": asked.name,
            "group": GROUP,
            "kind": "CertificateSigningRequest",
            "causes": [
                {
                    "reason": "FieldValueForbidden",
                    "message": 'Forbidden: updates may not remove a condition of type "Denied"',
                    "field": "status.conditions",
                }
            ],
        },
    )
    both = denied["status"]["conditions"] + approval(denied)["status"]["conditions"]
    answer = await http.put(f"{PATH}/{asked.name}/approval", denied | {"status": {"conditions": both}})
    assert answer.status == 422
    assert "mutually exclusive" in answer.message
