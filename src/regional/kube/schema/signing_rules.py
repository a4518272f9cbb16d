"""What a request for a certificate must satisfy, and what its three doors (itself, /approval, /status) may change."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from regional.core.clock import rfc3339
from regional.kube.objects import Obj, spec_of, status_of
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import duplicate, forbidden, invalid, one_of, required
from regional.kube.schema.names import dns_label, dns_subdomain

if TYPE_CHECKING:
    from cryptography.x509 import CertificateSigningRequest

SHORTEST_SECONDS = 600
_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_DECISIONS = ("Approved", "Denied")
_FINAL = (*_DECISIONS, "Failed")


class BadRequest(ValueError):
    """`spec.request` is no sound request; the text says why."""


def parsed_request(spec: Obj) -> CertificateSigningRequest:
    from cryptography import x509  # few clusters ever see one
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        pem = base64.b64decode(spec.get("request") or "")
    except binascii.Error:
        pem = b""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        raise BadRequest("PEM block type must be CERTIFICATE REQUEST")
    try:
        found = x509.load_pem_x509_csr(pem)
        sound = found.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadRequest(f"x509: {error}") from None
    if not sound:
        raise BadRequest("x509: the signature does not verify")
    return found


def signing_request(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    if old is not None:
        return  # nothing but metadata changes this way
    spec = spec_of(obj)
    try:
        parsed_request(spec)
    except BadRequest as error:
        yield invalid("spec.request", spec.get("request"), str(error))
    usages = spec.get("usages") or []
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        yield from one_of(f"spec.usages[{index}]", usage, _USAGES)
    for index, usage in enumerate(usages):
        if usage in usages[:index]:
            yield duplicate(f"spec.usages[{index}]", usage)
    yield from _signer(str(spec.get("signerName") or ""))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_SECONDS:
        yield invalid(
            "spec.expirationSeconds", seconds, "may not specify a duration less than 600 seconds (10 minutes)"
        )


def _signer(name: str) -> Iterator[FieldError]:
    field = "spec.signerName"
    if not name:
        yield required(field)
        return
    if name == "kubernetes.io/legacy-unknown":
        yield invalid(field, name, "the legacy signerName is not allowed via this API version")
        return
    domain, slash, path = name.partition("/")
    if not slash or "/" in path:
        yield invalid(field, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
        return
    labels = domain.split(".")
    for value, parts, rule in ((domain, labels, dns_label), (path, path.split("."), dns_subdomain)):
        wrong = next((part for part in parts if rule(part)), None)
        if wrong is not None:
            for text in rule(wrong):
                yield invalid(field, value, f'validating label "{wrong}": {text}')
        if value is domain and len(labels) < 2:
            yield invalid(field, domain, "should be a domain with at least two segments separated by dots")


def prepare_decision(new: Obj, old: Obj, subresource: str, now: datetime) -> None:
    """Keep what this door may not change, and give conditions their times; in place, with all but the status kept."""
    status, before = new.setdefault("status", {}), status_of(old)
    conditions, known = status.get("conditions") or [], before.get("conditions") or []
    if subresource == "approval":
        certificate = before.get("certificate")
        status = new["status"] = {"conditions": conditions, "certificate": certificate}
        if certificate is None:
            del status["certificate"]
    else:
        for decision in _DECISIONS:
            places = [index for index, each in enumerate(conditions) if each.get("type") == decision]
            kept = _of_type(known, decision)
            if len(places) == len(kept):
                for index, condition in zip(places, kept, strict=True):
                    conditions[index] = condition
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = rfc3339(now)
        if not condition.get("lastTransitionTime"):
            same = (each for each in _of_type(known, condition.get("type")) if each["status"] == condition["status"])
            condition["lastTransitionTime"] = next(same, {}).get("lastTransitionTime") or rfc3339(now)
    if not conditions:
        status.pop("conditions", None)


def decision(obj: Obj, old: Obj, subresource: str) -> Iterator[FieldError]:
    """Against a write to /approval or /status."""
    field = "status.conditions"
    conditions = status_of(obj).get("conditions") or []
    known = status_of(old).get("conditions") or []
    types = [each.get("type") or "" for each in conditions]
    for index, condition in enumerate(conditions):
        if not types[index]:
            yield required(f"{field}[{index}].type")
        allowed = ("True",) if types[index] in _FINAL else ("False", "True", "Unknown")
        if not condition.get("status"):
            yield required(f"{field}[{index}].status")
        else:
            yield from one_of(f"{field}[{index}].status", condition["status"], allowed)
        if types[index] in _DECISIONS and any(each in types[:index] for each in _DECISIONS if each != types[index]):
            yield invalid(field, types[index], "Approved and Denied conditions are mutually exclusive")
        if types[index] in types[:index]:
            yield duplicate(f"{field}[{index}].type", types[index])
    for each in _FINAL:
        if types.count(each) < len(_of_type(known, each)):
            yield forbidden(field, f'updates may not remove a condition of type "{each}"')
    if subresource != "approval":
        for each in _DECISIONS:
            if types.count(each) > len(_of_type(known, each)):
                yield forbidden(field, f'updates may not add a condition of type "{each}"')
    certificate, before = status_of(obj).get("certificate"), status_of(old).get("certificate")
    if certificate:
        for text in _not_certificates(certificate):
            yield invalid("status.certificate", "<certificate data>", text)
    if before and certificate != before:
        yield forbidden("status.certificate", "updates may not modify existing certificate content")


def _of_type(conditions: list[Any], wanted: str | None) -> list[Obj]:
    return [each for each in conditions if each.get("type") == wanted]


def _not_certificates(text: str) -> Iterator[str]:
    from cryptography import x509

    try:
        pem = base64.b64decode(text)
    except binascii.Error:
        pem = b""
    if b"-----BEGIN " not in pem:
        yield "must contain at least one CERTIFICATE PEM block"
        return
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        yield str(error)
