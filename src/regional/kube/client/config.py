"""From a kubeconfig, or from what a pod is given, to a transport.

Only the credentials this project uses: client certificates and bearer tokens, inline or in files. Exec plugins and
auth providers are refused by name, because silently connecting as nobody would end in a puzzling 401.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from regional.core.mounts import mounted
from regional.core.problems import UserError
from regional.kube.client.transport import HttpTransport, TokenFile

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def kubeconfig_transport(path: str | Path, context: str | None = None) -> HttpTransport:
    document = _read(Path(path))
    base = Path(path).resolve().parent
    chosen = context or document.get("current-context") or ""
    binding = _named(document, "contexts", "context", chosen, path)
    cluster = _named(document, "clusters", "cluster", binding.get("cluster", ""), path)
    user = _named(document, "users", "user", binding.get("user", ""), path) if binding.get("user") else {}
    for foreign in ("exec", "auth-provider"):
        if foreign in user:
            raise UserError(f"{path}: users.{foreign} is not supported", hint="use a client certificate or a token")
    server = cluster.get("server")
    if not server:
        raise UserError(f"{path}: cluster {binding.get('cluster')!r} names no server")
    certificate = _bytes(user, "client-certificate", base)
    key = _bytes(user, "client-key", base)
    return HttpTransport(
        server,
        tls=tls_context(
            ca=_bytes(cluster, "certificate-authority", base),
            certificate=certificate,
            key=key,
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
        ),
        token=_token(user, base),
        server_name=cluster.get("tls-server-name"),
    )


def in_cluster_transport() -> HttpTransport:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise UserError("not in a pod: KUBERNETES_SERVICE_HOST is not set", hint="give a kubeconfig")
    directory = mounted(SERVICE_ACCOUNT)
    ca = directory / "ca.crt"
    if not ca.exists():
        raise UserError(f"no service account files at {directory}", hint="automountServiceAccountToken may be false")
    address = f"[{host}]" if ":" in host else host
    return HttpTransport(
        f"https://{address}:{port}", tls=tls_context(ca=ca.read_bytes()), token=TokenFile(directory / "token")
    )


def pod_namespace() -> str:
    """The namespace this process runs in, as its service account says; `default` outside a pod."""
    try:
        return (mounted(SERVICE_ACCOUNT) / "namespace").read_text().strip() or "default"
    except OSError:
        return "default"


def tls_context(
    *,
    ca: bytes | None = None,
    certificate: bytes | None = None,
    key: bytes | None = None,
    insecure: bool = False,
) -> ssl.SSLContext:
    if insecure:
        context = ssl._create_unverified_context()
    else:
        context = ssl.create_default_context(cadata=ca.decode() if ca else None)
    if certificate and key:
        # OpenSSL's chain loader takes only file names. The key touches disk in a private file for an instant.
        with tempfile.NamedTemporaryFile(prefix="kube-client-") as pair:
            pair.write(certificate.rstrip() + b"\n" + key)
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"kubeconfig {path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"kubeconfig {path} is empty")
    return document


def _named(document: dict[str, Any], section: str, field: str, name: str, path: str | Path) -> dict[str, Any]:
    for entry in document.get(section) or []:
        if entry.get("name") == name:
            section_of: dict[str, Any] = entry.get(field) or {}
            return section_of
    raise UserError(f"{path}: no entry {name!r} in {section}", hint="is current-context set?")


def _bytes(section: dict[str, Any], field: str, base: Path) -> bytes | None:
    if inline := section.get(f"{field}-data"):
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error as error:
            raise UserError(f"kubeconfig: {field}-data is not base64: {error}") from error
    name: str | None = section.get(field)
    if name:
        try:
            return (base / name).read_bytes()
        except OSError as error:
            raise UserError(f"kubeconfig: cannot read {field} {base / name}: {error.strerror}") from error
    return None


def _token(user: dict[str, Any], base: Path) -> Callable[[], str] | None:
    if name := user.get("tokenFile"):
        return TokenFile(base / name)
    if token := user.get("token"):
        return lambda: str(token)
    return None
