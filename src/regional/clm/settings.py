"""What CLM's three roles have in common: one database."""

from __future__ import annotations

from regional.clm.migrations import MIGRATIONS as MIGRATIONS
from regional.core.database import Database
from regional.core.role import RoleSettings


class ClmSettings(RoleSettings, kw_only=True, frozen=True):
    db_credentials_dir: str = "/mnt/secrets-store"
    db_sslmode: str = "require"


def database_of(settings: ClmSettings, role: str) -> Database:
    return Database(settings.db_credentials_dir, sslmode=settings.db_sslmode, application=role)
