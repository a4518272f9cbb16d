"""Makes moto's made-up values a function of the journal.

moto draws ids and keys from one generator, and in some places from `os.urandom`, `uuid` and `random` directly. All of
them are led to the one generator, which is seeded for each call with the call's own journaled seed. What moto makes up
outside calls (the first touch of an account and region creates a default VPC) gets a seed from its name and the
journal's root seed, so that it does not matter which call comes first. RSA keys that moto generates (ACM, EC2 key
pairs, KMS asymmetric keys) are drawn inside OpenSSL and cannot be repeated: nothing of ours relies on them.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import uuid
from types import ModuleType
from typing import Any

from moto.core.base_backend import AccountSpecificBackend
from moto.moto_api._internal import mock_random

_seen_modules: set[str] = set()


def seed(value: bytes) -> None:
    mock_random.seed(value)


def lead_modules_to_generator() -> None:
    """Call after moto imported something: it does so when a service is used for the first time."""
    # moto.core only names its own dictionaries, at moments (imports) that a replay does not repeat.
    fresh = [name for name in sys.modules if name.startswith("moto.") and not name.startswith("moto.core")]
    for name in [name for name in fresh if name not in _seen_modules]:
        _seen_modules.add(name)
        module = sys.modules[name]
        for attribute, replacement in _REPLACEMENTS:
            original, substitute = replacement
            if getattr(module, attribute, None) is original:
                setattr(module, attribute, substitute)


def seed_backends_by_name(root_seed: bytes) -> None:
    """Every (service, account, region) is created with a generator of its own."""
    create = AccountSpecificBackend.__getitem__

    def get_or_create(self: Any, region: str) -> Any:
        if region in self.keys():
            return create(self, region)
        before = mock_random.getstate()
        name = f"{self.service_name}/{self.account_id}/{region}".encode()
        mock_random.seed(hashlib.sha256(root_seed + name).digest())
        try:
            return create(self, region)
        finally:
            mock_random.setstate(before)

    AccountSpecificBackend.__getitem__ = get_or_create  # type: ignore[method-assign]


class _Overlay(ModuleType):
    """A module with a few functions replaced, for one importer's eyes only."""

    def __init__(self, original: ModuleType, **replaced: Any) -> None:
        super().__init__(original.__name__)
        self.__dict__["_original"] = original
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)


_REPLACEMENTS: tuple[tuple[str, tuple[Any, Any]], ...] = (
    ("os", (os, _Overlay(os, urandom=mock_random.randbytes))),
    ("uuid", (uuid, _Overlay(uuid, uuid4=mock_random.uuid4, uuid1=mock_random.uuid1))),
    ("uuid4", (uuid.uuid4, mock_random.uuid4)),
    ("random", (random, mock_random)),
)
