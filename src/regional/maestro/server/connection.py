"""The database as the server's parts use it: one pool that may be away, and one way to say so."""

from __future__ import annotations

from typing import Any

import asyncpg

from regional.core.database import Database

FAILURES = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a connection whose server died in the middle of a word
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server is being shut down
    asyncpg.CannotConnectNowError,
    asyncpg.InsufficientResourcesError,  # its disk is full, or it has too many connections
    asyncpg.ReadOnlySQLTransactionError,  # this one is a replica, or about to become one: another has taken over
    asyncpg.PostgresSystemError,  # of its own files
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UndefinedTableError,  # somebody has emptied it; whoever holds a session makes the tables anew
    asyncpg.InternalServerError,  # of a statement in whose middle its table went away
)


class DatabaseAway(OSError):
    """No connection now; whoever asked may ask again."""


def pool_of(database: Database) -> Any:
    if database.pool is None:
        raise DatabaseAway(database.dependency.reason or "the database is not connected")
    return database.pool
