"""Over HTTP: what agents have that nobody knows here, and the question to all of them what they have."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from regional.maestro.protocol.events import timestamp
from regional.maestro.server.agent_works import AgentWorks
from regional.maestro.server.rest.errors import json_response
from regional.maestro.server.resync import Resync
from regional.maestro.server.source import Source


class AgentWorkRoutes:
    def __init__(self, works: AgentWorks, resync: Resync, source: Source) -> None:
        self._works, self._resync, self._source = works, resync, source

    async def list(self, request: Request) -> Response:
        rows, total = await self._works.unknown(request.query_params.get("consumer_name", ""))
        items = [
            {
                "id": row["id"],
                "kind": "AgentWork",
                "consumer_name": row["consumer_name"],
                "version": row["version"],
                **({} if row["known_version"] is None else {"known_version": row["known_version"]}),
                "seen_at": timestamp(row["seen_at"]),
            }
            for row in rows
        ]
        return json_response({"kind": "AgentWorkList", "page": 1, "size": len(items), "total": total, "items": items})

    async def ask(self, _: Request) -> Response:
        """Agents that are asked for their statuses also say at once what works they have."""
        self._source.once_at_a_time("statuses", self._resync.ask_everyone)
        return json_response({"kind": "Resync", "asked": True}, 202)
