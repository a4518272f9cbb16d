"""What a cluster on this machine is made of before it runs: its certificates, kubeconfigs and flags.

Nothing is made twice: a certificate is kept as long as it says the right names, comes from the cluster's own authority
and has a month to live. Keys are written before their certificates, so a killed run leaves pairs that the next one
either takes or replaces.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from regional.core import pki
from regional.core.files import write_atomic
from regional.local.addresses import API_PORT, Block

log = logging.getLogger(__name__)

_MONTH = timedelta(days=30)


class ClusterDirectory:
    """<cluster>/pki, admin.kubeconfig, node.kubeconfig and data/, for the cluster at `block`."""

    def __init__(self, directory: Path, name: str, block: Block) -> None:
        self.directory = directory
        self.name = name
        self.block = block

    @property
    def certificates(self) -> Path:
        return self.directory / "pki"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def node_name(self) -> str:
        return f"{self.name}-node-1"

    @property
    def endpoint(self) -> str:
        return f"https://{self.block.api}:{API_PORT}"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def node_kubeconfig(self) -> Path:
        return self.directory / "node.kubeconfig"

    @property
    def aws_credentials(self) -> Path:
        return self.directory / "aws-credentials.json"

    def authority_data(self) -> str:
        return base64.b64encode((self.certificates / "ca.crt").read_bytes()).decode()

    def ensure(self) -> None:
        for directory in (self.directory, self.certificates, self.data):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o700)
        authority = self._pair("ca", None, (), lambda: pki.create_authority(f"{self.name}-ca"))
        block, service = self.block, str(next(ipaddress.ip_network(self.block.service_cidr).hosts()))
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        self._pair(
            "apiserver",
            authority,
            (*names, block.api, service),
            lambda: pki.issue(
                authority, "kube-apiserver", names=names, addresses=[block.api, service], server=True, client=False
            ),
        )
        self._pair(
            "kubelet",
            authority,
            (self.node_name, block.node),
            lambda: pki.issue(
                authority,
                f"system:node:{self.node_name}",
                organizations=["system:nodes"],
                names=[self.node_name],
                addresses=[block.node],
                server=True,
                client=False,
            ),
        )
        self._pair(
            "kubelet-client",
            authority,
            (),
            lambda: pki.issue(authority, "kube-apiserver-kubelet-client", organizations=["system:masters"]),
        )
        self._token_key()
        self._kubeconfig(self.admin_kubeconfig, authority, "admin", "system:masters")
        self._kubeconfig(self.node_kubeconfig, authority, f"system:node:{self.node_name}", "system:nodes")

    def _pair(
        self, name: str, authority: pki.KeyPair | None, names: tuple[str, ...], make: Callable[[], pki.KeyPair]
    ) -> pki.KeyPair:
        crt, key = self.certificates / f"{name}.crt", self.certificates / f"{name}.key"
        if crt.exists() and key.exists():
            pair = pki.KeyPair(crt.read_text(), key.read_text())
            if usable(pair, authority, names):
                return pair
        pair = make()
        write_atomic(key, pair.key)
        write_atomic(crt, pair.certificate)
        log.info("certificate made", extra={"cluster": self.name, "certificate": name})
        return pair

    def _token_key(self) -> None:
        key_file, public_file = self.certificates / "sa.key", self.certificates / "sa.pub"
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

    def _kubeconfig(self, file: Path, authority: pki.KeyPair, user: str, organization: str) -> None:
        if file.exists() and self._current(file, authority):
            return
        pair = pki.issue(authority, user, organizations=[organization])
        write_atomic(file, kubeconfig(self.name, self.endpoint, authority.certificate, user, pair))
        log.info("kubeconfig written", extra={"cluster": self.name, "user": user})

    def _current(self, file: Path, authority: pki.KeyPair) -> bool:
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
        return server == self.endpoint and usable(pair, authority, ())


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
    return yaml.safe_dump(document, sort_keys=False)
