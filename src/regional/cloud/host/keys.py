"""The gateway's private look-up: who owns an access key, and with which secret are its requests signed.

AWS does this inside; a gateway that verifies signatures on one machine has to ask somebody. Answers only to the bearer
of the look-up token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec


class KeyOwner(msgspec.Struct, rename="camel", omit_defaults=True):
    secret_key: str
    account: str
    arn: str
    user_id: str
    session_token: str = ""


class Issued(NamedTuple):
    """A key that moto gave out, in moto's own objects: of a session with its role, or of a user if it is active."""

    account: str
    key: Any
    role: Any | None
    user: Any | None


def issued(access_key: str) -> Issued | None:
    from moto.iam.models import iam_backends
    from moto.sts.models import sts_backends

    backends: Iterator[tuple[str, str, Any]] = iam_backends.iter_backends()
    for account, partition, iam in backends:
        key = iam.access_keys.get(access_key)
        if key is None:
            continue
        role = sts_backends[account][partition].get_assumed_role_from_access_key(access_key)
        user = iam.get_user_from_access_key_id(access_key) if role is None and key.status == "Active" else None
        return Issued(account, key, role, user)
    return None


def find_owner(access_key: str) -> KeyOwner | None:
    found = issued(access_key)
    if found is None:
        return None
    account, secret, role, user = found.account, found.key.secret_access_key, found.role, found.user
    if role is not None:
        return KeyOwner(secret, account, role.arn, role.user_id, role.session_token)
    return KeyOwner(secret, account, user.arn, user.id) if user is not None else None
