"""Who signs broker certificates: a file-kept authority on one machine, ACM Private CA in the cloud.

Both sign a request that the step program made, so that the private key is born where it is used and the authority never
sees it. The file-kept authority's own key stays in a directory of the region that no pod is ever given.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from regional.core import pki
from regional.core.files import write_atomic
from regional.core.problems import UserError
from regional.local.provisioner.locks import alone

CERTIFICATE_DAYS = 397
_REVOCATION_LIST_DAYS = 3650  # renewed at every revocation; an outdated list would lock everybody out


class Authority(Protocol):
    @property
    def certificate(self) -> str: ...

    def sign(self, request: str, days: int) -> str:
        """PEM request in, PEM certificate out."""


def new_request(common_name: str) -> tuple[str, str]:
    """A fresh key (PEM) and the request (PEM) to sign it as `common_name`."""
    key, pem = pki.new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return pem, request.public_bytes(serialization.Encoding.PEM).decode()


def common_name(certificate: str) -> str:
    names = x509.load_pem_x509_certificate(certificate.encode()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def begins(certificate: str) -> datetime:
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_before_utc


def serial(certificate: str) -> int:
    return x509.load_pem_x509_certificate(certificate.encode()).serial_number


def lasts(certificate: str, name: str, authority: str, *, days: int = 30, now: datetime | None = None) -> bool:
    """Whether it says `name`, is signed by `authority` and will be good for `days` more days."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
        loaded.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    moment = (now or datetime.now(UTC)) + timedelta(days=days)
    return common_name(certificate) == name and loaded.not_valid_after_utc > moment


class FileAuthority:
    """ca.crt, ca.key (0600) and crl.pem in one private directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.name = name

    @property
    def certificate(self) -> str:
        return (self._directory / "ca.crt").read_text()

    @property
    def revocations(self) -> str:
        return (self._directory / "crl.pem").read_text()

    @property
    def exists(self) -> bool:
        return (self._directory / "crl.pem").exists()

    def ensure(self) -> bool:
        """True if it was made now. The certificate is written after its key, the list last: no half authority."""
        if self.exists:
            return False
        self._directory.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        if not (self._directory / "ca.crt").exists():
            pair = pki.create_authority(self.name)
            write_atomic(self._directory / "ca.key", pair.key)
            write_atomic(self._directory / "ca.crt", pair.certificate)
        self._write_revocations([])
        return True

    def pair(self) -> pki.KeyPair:
        return pki.KeyPair(self.certificate, (self._directory / "ca.key").read_text())

    def sign(self, request: str, days: int) -> str:
        asked = x509.load_pem_x509_csr(request.encode())
        if not asked.is_signature_valid:
            raise UserError("the signing request is not signed by its own key")
        issuer, key = self._issuer()
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(issuer.subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def revoke(self, number: int) -> bool:
        """True if the list changed. Steps of two clusters may revoke at once: neither may lose the other's entry."""
        with alone(self._directory / "crl.lock"):
            listed = x509.load_pem_x509_crl(self.revocations.encode())
            numbers = [entry.serial_number for entry in listed]
            if number in numbers:
                return False
            self._write_revocations([*numbers, number])
            return True

    def _issuer(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        pair = self.pair()
        key = serialization.load_pem_private_key(pair.key.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(pair.certificate.encode()), key

    def _write_revocations(self, numbers: list[int]) -> None:
        issuer, key = self._issuer()
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(now - timedelta(minutes=5))
            .next_update(now + timedelta(days=_REVOCATION_LIST_DAYS))
        )
        for number in numbers:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            )
        signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        write_atomic(self._directory / "crl.pem", signed)


class PrivateCa:
    """ACM Private CA: the authority whose certificate the certificate-authority root put out."""

    def __init__(self, client: Any, certificate: str) -> None:
        self._client = client
        self._certificate = certificate

    @property
    def certificate(self) -> str:
        return self._certificate

    def sign(self, request: str, days: int) -> str:
        arn = self._arn()
        issued = self._client.issue_certificate(
            CertificateAuthorityArn=arn,
            Csr=request.encode(),
            SigningAlgorithm="SHA256WITHECDSA",
            TemplateArn="arn:aws:acm-pca:::template/EndEntityClientAuthCertificate/V1",
            Validity={"Type": "DAYS", "Value": days},
        )["CertificateArn"]
        for _ in range(60):  # issued in the background, in a second or two
            try:
                found = self._client.get_certificate(CertificateAuthorityArn=arn, CertificateArn=issued)
                return str(found["Certificate"])
            except self._client.exceptions.RequestInProgressException:
                time.sleep(0.5)
        raise UserError("ACM Private CA did not issue the certificate in 30 seconds", "run the step again")

    def _arn(self) -> str:
        for page in self._client.get_paginator("list_certificate_authorities").paginate():
            for authority in page["CertificateAuthorities"]:
                if authority["Status"] == "ACTIVE" and self._is_ours(authority["Arn"]):
                    return str(authority["Arn"])
        raise UserError("no active private authority has the region's certificate", "provision certificate-authority")

    def _is_ours(self, arn: str) -> bool:
        found = self._client.get_certificate_authority_certificate(CertificateAuthorityArn=arn)["Certificate"]
        loaded = [x509.load_pem_x509_certificate(text.encode()) for text in (found, self._certificate)]
        return loaded[0] == loaded[1]
