"""The keys of one control plane, made once and kept in Secrets of its namespace under the contract's names.

Nothing is made twice: a Secret that exists is used, whoever wrote it (an operator that was killed, a restore). A leaf
that does not fit (another address, another authority, a month to live) is issued again; authorities never are.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from regional.core import pki
from regional.core.clock import Clock
from regional.hypershift.kubeconfigs import kubeconfig
from regional.hypershift.manifests import published_names, service_network
from regional.hypershift.names import API_PORT, FIELD_MANAGER, KUBE_APISERVER, control_plane_namespace
from regional.hypershift.writing import Writer, mark
from regional.kube.client import Client, Informer
from regional.kube.objects import Obj, name_of, uid_of, version_of

LEAF_DAYS, RENEW = 365, timedelta(days=30)
_ALPHABET = "ABCDEFGHIJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
Data = dict[str, str]


class Authorities(msgspec.Struct, frozen=True):
    root: pki.KeyPair
    """Behind the API's own certificate."""
    signer: pki.KeyPair
    """Behind the certificates of administrators."""
    password: str

    def __repr__(self) -> str:
        return "Authorities(…)"


class Keys(msgspec.Struct, frozen=True):
    """What a control plane's pod and its clients need to know of each other."""

    root: pki.KeyPair
    signer: pki.KeyPair
    serving: pki.KeyPair
    admin: pki.KeyPair
    operator: pki.KeyPair
    password: str

    @property
    def serving_digest(self) -> str:
        return hashlib.sha256(self.serving.certificate.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return "Keys(…)"


class KeyRing:
    def __init__(self, client: Client, writer: Writer, cache: Informer, clock: Clock) -> None:
        self._client, self._writer, self._cache, self._clock = client, writer, cache, clock
        self._proven: dict[str, str] = {}  # leaf Secret's uid → its version and what was checked

    async def authorities(self, hosted: Obj) -> Authorities:
        """What depends on nothing, and is therefore made first."""
        root, signer, _, password = await asyncio.gather(
            self._once(hosted, "root-ca", lambda: _authority("root-ca")),
            self._once(hosted, "system-admin-signer", lambda: _authority("system-admin-signer")),
            self._once(hosted, "sa-signing-key", _signing_key),
            self._once(hosted, "kubeadmin-password", lambda: {"password": new_password()}),
        )
        return Authorities(_pair(root, "ca"), _pair(signer, "ca"), _decoded(password)["password"])

    async def keys(self, hosted: Obj, made: Authorities, address: str) -> Keys:
        """All keys of a control plane whose API answers at `address`."""
        names, addresses = _serving_names(hosted, address)

        def admin(user: str) -> Callable[[], pki.KeyPair]:
            return lambda: pki.issue(made.signer, user, organizations=["system:masters"], days=LEAF_DAYS)

        def serving() -> pki.KeyPair:
            return pki.issue(
                made.root, KUBE_APISERVER, names=names, addresses=addresses, server=True, client=False, days=LEAF_DAYS
            )

        pairs = await asyncio.gather(
            self._leaf(hosted, "kas-server-crt", made.root, (*names, *addresses), serving),
            self._leaf(hosted, "system-admin-client", made.signer, (), admin("system:admin")),
            self._leaf(hosted, "hcco-client", made.signer, (), admin("system:hosted-cluster-config")),
        )
        return Keys(made.root, made.signer, *pairs, made.password)

    async def kubeconfigs(self, hosted: Obj, keys: Keys, address: str) -> Obj:
        """The Secret `admin-kubeconfig`; the operator's own is beside it for whoever debugs."""
        server = f"https://{address}:{API_PORT}"
        texts = {
            "admin-kubeconfig": kubeconfig(server, keys.root, keys.admin, "admin"),
            "hcco-kubeconfig": kubeconfig(server, keys.root, keys.operator, "hcco"),
        }
        admin, _ = await asyncio.gather(
            *(
                self._writer.ensure(self._cache, self._secret(hosted, name, {"kubeconfig": text}))
                for name, text in texts.items()
            )
        )
        return admin

    async def _once(self, hosted: Obj, name: str, make: Callable[[], Data]) -> Obj:
        live = self._cache.get(control_plane_namespace(hosted), name)
        return live or await self._writer.create_once(self._cache, self._secret(hosted, name, make()))

    async def _leaf(
        self, hosted: Obj, name: str, authority: pki.KeyPair, names: Sequence[str], make: Callable[[], pki.KeyPair]
    ) -> pki.KeyPair:
        live = self._cache.get(control_plane_namespace(hosted), name)
        if live is None:
            live = await self._writer.create_once(self._cache, self._secret(hosted, name, _tls(make())))
        if self._fits(live, authority, names):
            return _pair(live, "tls")
        fresh = self._secret(hosted, name, _tls(make()))
        answer = await self._client.apply(fresh, field_manager=FIELD_MANAGER, force=True)
        self._cache.observe(answer)
        return _pair(answer, "tls")

    def _fits(self, secret: Obj, authority: pki.KeyPair, names: Sequence[str]) -> bool:
        """Checked once for each version of the Secret and each day: signatures cost more than they change."""
        today = self._clock.now().date()
        checked = f"{version_of(secret)} {today} {','.join(names)} {hash(authority.certificate)}"
        if self._proven.get(uid_of(secret)) == checked:
            return True
        if not fits(_pair(secret, "tls"), authority, names, self._clock.now()):
            return False
        self._proven[uid_of(secret)] = checked
        return True

    def forget(self, hosted: Obj) -> None:
        """The control plane is gone; so is what was proven of its Secrets."""
        namespace = control_plane_namespace(hosted)
        for secret in self._cache.in_namespace(namespace):
            self._proven.pop(uid_of(secret), None)

    @staticmethod
    def _secret(hosted: Obj, name: str, data: Data) -> Obj:
        namespace = control_plane_namespace(hosted)
        return mark(secret(namespace, name, data), hosted)


def secret(namespace: str, name: str, data: Data) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def fits(pair: pki.KeyPair, authority: pki.KeyPair, names: Sequence[str], now: datetime) -> bool:
    """Key and certificate belong together, the authority signed it, it has all names and a month to live."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), None)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
        alternatives: set[str] = set()
        if names:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            alternatives = {
                *extension.get_values_for_type(x509.DNSName),
                *(str(address) for address in extension.get_values_for_type(x509.IPAddress)),
            }
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    if certificate.public_key() != key.public_key() or certificate.not_valid_after_utc < now + RENEW:
        return False
    return set(names) <= alternatives


def new_password() -> str:
    """23 characters: four groups of five."""
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(4))


def _serving_names(hosted: Obj, address: str) -> tuple[list[str], list[str]]:
    namespace = control_plane_namespace(hosted)
    service, guest = f"{KUBE_APISERVER}.{namespace}", "kubernetes.default"
    published, numbers = published_names(hosted)
    names = ["localhost", KUBE_APISERVER, "kubernetes", service, guest]
    names += [f"{name}.svc{domain}" for name in (service, guest) for domain in ("", ".cluster.local")]
    first = str(next(ipaddress.ip_network(service_network(hosted), strict=False).hosts()))
    return sorted({*names, *published}), sorted({"127.0.0.1", address, first, *numbers})


def _authority(name: str) -> Data:
    made = pki.create_authority(name)
    return {"ca.crt": made.certificate, "ca.key": made.key}


def _signing_key() -> Data:
    key, pem = pki.new_key()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return {"service-account.key": pem, "service-account.pub": public.decode()}


def _tls(pair: pki.KeyPair) -> Data:
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def _decoded(live: Obj) -> Data:
    return {key: base64.b64decode(value).decode() for key, value in (live.get("data") or {}).items()}


def _pair(live: Obj, stem: str) -> pki.KeyPair:
    data = _decoded(live)
    try:
        return pki.KeyPair(data[f"{stem}.crt"], data[f"{stem}.key"])
    except KeyError as error:
        raise BadSecret(f"Secret {name_of(live)} of the control plane lacks {error}") from None


class BadSecret(Exception):
    """Somebody took something out of a Secret that cannot be made again."""
