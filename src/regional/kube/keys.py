"""The keys of a cluster, as files: certificates, kubeconfigs, the key that signs service accounts' tokens.

Nothing is made twice: a certificate is kept as long as it says the right names, comes from the right authority and has
a month to live. Keys are written before their certificates, so a killed run leaves pairs that the next one either takes
or replaces.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from regional.core import pki
from regional.core.files import write_atomic

log = logging.getLogger(__name__)

API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_MONTH = timedelta(days=30)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # keys are long lines, which the slow one looks at bit by bit


class KeyFiles:
    """`NAME.crt` and `NAME.key` in one directory, for the cluster (or part of one) called `owner`."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.directory = directory
        self.owner = owner

    def authority(self, name: str, common_name: str) -> pki.KeyPair:
        return self._pair(name, None, (), lambda: pki.create_authority(common_name))

    def server(
        self,
        name: str,
        authority: pki.KeyPair,
        common_name: str,
        *,
        names: Sequence[str],
        addresses: Sequence[str],
        organizations: Sequence[str] = (),
        client: bool = False,
    ) -> pki.KeyPair:
        def make() -> pki.KeyPair:
            return pki.issue(
                authority,
                common_name,
                organizations=organizations,
                names=names,
                addresses=addresses,
                server=True,
                client=client,
            )

        return self._pair(name, authority, (*names, *addresses), make)

    def client(
        self, name: str, authority: pki.KeyPair, common_name: str, organizations: Sequence[str] = ()
    ) -> pki.KeyPair:
        return self._pair(name, authority, (), lambda: pki.issue(authority, common_name, organizations=organizations))

    def token_key(self) -> None:
        """sa.key signs the tokens of service accounts, sa.pub checks them."""
        key_file, public_file = self.directory / "sa.key", self.directory / "sa.pub"
        if not key_file.exists():
            write_atomic(key_file, pki.new_key()[1])
        if not public_file.exists():
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
            write_atomic(
                public_file,
                key.public_key().public_bytes(
                    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
                ),
            )

    def kubeconfig(
        self, file: Path, server: str, authority: pki.KeyPair, user: str, organizations: Sequence[str] = ()
    ) -> None:
        if file.exists() and _current(file, server, authority):
            return
        pair = pki.issue(authority, user, organizations=organizations)
        write_atomic(file, kubeconfig(self.owner, server, authority.certificate, user, pair))
        log.info("kubeconfig written", extra={"cluster": self.owner, "user": user})

    def _pair(
        self, name: str, authority: pki.KeyPair | None, names: tuple[str, ...], make: Callable[[], pki.KeyPair]
    ) -> pki.KeyPair:
        crt, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        if crt.exists() and key.exists():
            pair = pki.KeyPair(crt.read_text(), key.read_text())
            if usable(pair, authority, names):
                return pair
        pair = make()
        write_atomic(key, pair.key)
        write_atomic(crt, pair.certificate)
        log.info("certificate made", extra={"cluster": self.owner, "certificate": name})
        return pair


def _current(file: Path, endpoint: str, authority: pki.KeyPair) -> bool:
    try:
        document = yaml.safe_load(file.read_text())
        user = document["users"][0]["user"]
        server = document["clusters"][0]["cluster"]["server"]
        pair = pki.KeyPair(
            base64.b64decode(user["client-certificate-data"]).decode(),
            base64.b64decode(user["client-key-data"]).decode(),
        )
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        return False
    return bool(server == endpoint and usable(pair, authority, ()))


def usable(pair: pki.KeyPair, authority: pki.KeyPair | None, names: tuple[str, ...]) -> bool:
    """Key and certificate belong together, the authority signed it, it has all `names` and a month to live."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), None)
        if authority is not None:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    if certificate.public_key() != key.public_key() or certificate.not_valid_after_utc < datetime.now(UTC) + _MONTH:
        return False
    return set(names) <= _alternatives(certificate)


def _alternatives(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {
        *extension.get_values_for_type(x509.DNSName),
        *(str(address) for address in extension.get_values_for_type(x509.IPAddress)),
    }


def kubeconfig(cluster: str, server: str, authority: str, user: str, pair: pki.KeyPair) -> str:
    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": data(authority)}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": data(pair.certificate), "client-key-data": data(pair.key)},
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False)
    return text
