"""The door's certificate and the authority of those who come in, read anew with each connection: both are replaced
while the server runs, and whoever is in stays in."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import msgspec

from regional.core import pki
from regional.core.mounts import mounted

log = logging.getLogger(__name__)

_Contents = tuple[bytes, bytes, bytes | None]
"""Key, certificate, authority of the clients."""


class Credentials(msgspec.Struct, frozen=True):
    """Files in PEM. With a client CA only clients with a certificate of it come in."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""

    def faults(self) -> str:
        if bool(self.certificate) != bool(self.key):
            return "a certificate and its key are given together or not at all"
        return "a client CA needs a server certificate and key" if self.client_ca and not self.key else ""

    def loaded(self) -> grpc.ServerCredentials | None:
        """Raises OSError, ValueError for files that are not there or do not belong together."""
        if not self.certificate:
            return None
        mounts = _Mounts(self)
        return grpc.dynamic_ssl_server_credentials(
            mounts.configuration(), mounts.changed, require_client_authentication=bool(self.client_ca)
        )


class _Mounts:
    def __init__(self, files: Credentials) -> None:
        self._files = files
        self._contents = self._read()
        self._complaint = ""

    def _read(self) -> _Contents:
        files = self._files
        key, certificate = mounted(files.key).read_bytes(), mounted(files.certificate).read_bytes()
        if not pki.belong_together(pki.KeyPair(certificate.decode(), key.decode())):
            raise ValueError("the certificate and the key do not belong together")
        return key, certificate, mounted(files.client_ca).read_bytes() if files.client_ca else None

    def configuration(self) -> Any:
        key, certificate, authority = self._contents
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)

    def changed(self) -> Any:
        """On a thread of gRPC's, before each handshake. None: as it was, also while files are being replaced."""
        try:
            contents = self._read()
            if contents == self._contents:
                return None
            self._contents = contents
            log.info("the gRPC door's certificate or its clients' authority has changed")
            self._complaint = ""
            return self.configuration()
        except (OSError, ValueError, TypeError) as error:  # the last of a key that is encrypted
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the gRPC door keeps its former certificate", extra={"reason": str(error)})
            return None
