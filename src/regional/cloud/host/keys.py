"""The gateway's private look-up: who owns an access key, and with which secret are its requests signed.

AWS does this inside; a gateway that verifies signatures on one machine has to ask somebody. Answers only to the bearer
of the look-up token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class KeyOwner(msgspec.Struct, rename="camel", omit_defaults=True):
    secret_key: str
    account: str
    arn: str
    user_id: str
    session_token: str = ""


def find_owner(access_key: str) -> KeyOwner | None:
    from moto.iam.models import iam_backends
    from moto.sts.models import sts_backends

    backends: Iterator[tuple[str, str, Any]] = iam_backends.iter_backends()
    for account, partition, iam in backends:
        key = iam.access_keys.get(access_key)
        if key is None:
            continue
        role = sts_backends[account][partition].get_assumed_role_from_access_key(access_key)
        if role is not None:
            return KeyOwner(key.secret_access_key, account, role.arn, role.user_id, role.session_token)
        return _user(iam, account, key)
    return None


def _user(iam: Any, account: str, key: Any) -> KeyOwner | None:
    user = iam.get_user_from_access_key_id(key.access_key_id)
    if user is None or key.status != "Active":
        return None
    return KeyOwner(key.secret_access_key, account, user.arn, user.id)
