"""Imported by the warm parent alone: reads and compiles what every API that it forks would read and compile again."""

from __future__ import annotations

import jwt

from regional.core import pki
from regional.kube.apiserver.bootstrapping import packaged
from regional.kube.schema.types import preload


def sign_once() -> None:
    """Cryptography looks its algorithms up at first use and keeps what it finds: a megabyte for each fork."""
    key = pki.new_key()[1]
    jwt.encode({}, key, algorithm="ES256")


preload()
packaged()
sign_once()
