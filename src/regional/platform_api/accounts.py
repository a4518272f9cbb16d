"""Which accounts may use the region, and which may run it. CLM keeps them; the region's own account is in the settings.

Answers are remembered for a few seconds: an account that was withdrawn is refused soon, one that was just added is let
in at once by the replica that added it and a second later by the others.
"""

from __future__ import annotations

import time

import msgspec

from regional.clm.client import ClmClient
from regional.platform_api.errors import ApiError

KIND = "Account"
KNOWN_SECONDS = 5.0
UNKNOWN_SECONDS = 1.0
_LIMIT = 10_000


class Standing(msgspec.Struct, frozen=True):
    provisioned: bool
    privileged: bool


_NOBODY = Standing(False, False)


class Accounts:
    def __init__(self, clm: ClmClient, own: frozenset[str]) -> None:
        self._clm = clm
        self._own = own
        self._known: dict[str, tuple[Standing, float]] = {}

    async def demand(self, account: str, *, privileged: bool) -> None:
        standing = await self._standing(account)
        if not standing.provisioned:
            raise ApiError(403, "account-not-allowed", f"account {account} is not provisioned in this region")
        if privileged and not standing.privileged:
            raise ApiError(403, "not-privileged", f"account {account} may not manage the region")

    def forget(self, account: str) -> None:
        self._known.pop(account, None)

    async def _standing(self, account: str) -> Standing:
        if account in self._own:
            return Standing(True, True)
        now = time.monotonic()
        standing, until = self._known.get(account, (_NOBODY, 0.0))
        if now < until:
            return standing
        found = await self._clm.find(KIND, account)
        standing = _NOBODY if found is None else Standing(True, found["spec"].get("privileged") is True)
        if len(self._known) >= _LIMIT:
            self._known.clear()
        self._known[account] = standing, now + (KNOWN_SECONDS if found else UNKNOWN_SECONDS)
        return standing
