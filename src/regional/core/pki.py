"""Certificates: a small authority per trust domain (a cluster, a region's broker). Keys are ECDSA P-256: issuing one
costs well under a millisecond, and every client we care about takes them."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class KeyPair(msgspec.Struct, frozen=True):
    certificate: str  # PEM
    key: str  # PEM, PKCS#8; __repr__ hides it

    def __repr__(self) -> str:
        return "KeyPair(…)"


def new_key() -> tuple[ec.EllipticCurvePrivateKey, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return key, pem


def create_authority(common_name: str, days: int = 3650) -> KeyPair:
    key, pem = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, True, True, False, False),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(), pem)


def issue(
    authority: KeyPair,
    common_name: str,
    *,
    organizations: Sequence[str] = (),
    names: Sequence[str] = (),
    addresses: Sequence[str] = (),
    server: bool = False,
    client: bool = True,
    days: int = 825,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, pem = new_key()
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
        + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    )
    usages = [ExtendedKeyUsageOID.SERVER_AUTH] * server + [ExtendedKeyUsageOID.CLIENT_AUTH] * client
    builder = (
        _builder(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(n) for n in names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return KeyPair(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(), pem)


def sign_client_request(authority: KeyPair, request: bytes, seconds: int, usages: Collection[str]) -> str:
    """The certificate (PEM) that a PKCS#10 request asks for, for a client: its subject, key and alternative names,
    and no other of its wishes. It does not outlive the authority."""
    asked = x509.load_pem_x509_csr(request)
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    signature, encipherment = "digital signature" in usages, "key encipherment" in usages
    builder = (
        x509.CertificateBuilder()
        .subject_name(asked.subject)
        .issuer_name(issuer.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(min(now + timedelta(seconds=seconds), issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if signature or encipherment:
        rest = (False,) * 6
        builder = builder.add_extension(x509.KeyUsage(signature, False, encipherment, *rest), critical=True)
    for extension in asked.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            builder = builder.add_extension(extension.value, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def belong_together(pair: KeyPair) -> bool:
    """Whether the key is the certificate's: the two are files, and whoever writes them may be killed between them."""
    key = serialization.load_pem_private_key(pair.key.encode(), None)
    return key.public_key() == x509.load_pem_x509_certificate(pair.certificate.encode()).public_key()


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )
