"""A request once it is read: who, where, and what they said. Handlers see nothing else of HTTP."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.datastructures import QueryParams

from regional.clm.api.caller import Caller
from regional.clm.entities import Entity


class Where(msgspec.Struct, frozen=True):
    """What a path names; no entity means any kind."""

    entity: Entity | None = None
    resource_id: str = ""
    owner_id: str = ""
    adapter: str = ""

    @property
    def kind(self) -> str:
        return self.entity.kind if self.entity is not None else "Resource"


class Call(msgspec.Struct, frozen=True):
    caller: Caller
    where: Where
    query: QueryParams
    document: dict[str, Any]
    if_match: str = ""
    began: float = msgspec.field(default_factory=time.perf_counter)  # once the body was read

    @property
    def tenant(self) -> str:
        """Whose resources are in view; "" for all."""
        return "" if self.caller.system else self.caller.tenant
