"""Consumers over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from regional.core.database import Database
from regional.maestro.server.admission import checked_consumer, checked_consumer_patch
from regional.maestro.server.connection import pool_of
from regional.maestro.server.consumers import (
    SHOWN,
    WITH_BACKLOG,
    ConsumerExists,
    ConsumerInUse,
    Consumers,
    backlog_of,
)
from regional.maestro.server.model import Backlog, consumer_of
from regional.maestro.server.refusals import Refusal
from regional.maestro.server.rest.bodies import body_of
from regional.maestro.server.rest.errors import json_response
from regional.maestro.server.rest.listing import answer, page_of
from regional.maestro.server.rest.search import CONSUMERS
from regional.maestro.server.rest.views import consumer_view, now, plain

log = logging.getLogger(__name__)

LARGEST_BODY = 256 * 1024


class ConsumerRoutes:
    def __init__(self, database: Database, consumers: Consumers, created: Callable[[str], Awaitable[None]]) -> None:
        self._database, self._consumers, self._created = database, consumers, created

    async def list(self, request: Request) -> Response:
        page = page_of(request, CONSUMERS, "r.created_at asc")
        return await answer(
            pool_of(self._database),
            page,
            kind="ConsumerList",
            table="consumers",
            columns=SHOWN,
            joins=WITH_BACKLOG,
            show=_with_additions if page.additions else _plain,
        )

    async def create(self, request: Request) -> Response:
        body = checked_consumer(await body_of(request, LARGEST_BODY))
        try:
            consumer = await self._consumers.create(body.name, body.labels)
        except ConsumerExists as error:
            raise Refusal(6, str(error)) from None
        await self._created(consumer.name)
        log.info("consumer created", extra={"consumer": consumer.name, "id": consumer.id})
        return json_response(consumer_view(consumer, Backlog(), now()), 201)

    async def get(self, request: Request) -> Response:
        found = await self._consumers.get(request.path_params["id"])
        if found is None:
            raise _unknown(request)
        return json_response(consumer_view(*found, now()))

    async def patch(self, request: Request) -> Response:
        patch = checked_consumer_patch(await body_of(request, LARGEST_BODY))
        if patch.labels is not None:
            await self._consumers.relabel(request.path_params["id"], patch.labels)
        return await self.get(request)

    async def delete(self, request: Request) -> Response:
        try:
            await self._consumers.delete(request.path_params["id"])
        except ConsumerInUse as error:
            raise Refusal(4, str(error)) from None
        return Response(status_code=204, headers={"Content-Type": "application/json"})


def _unknown(request: Request) -> Refusal:
    return Refusal(7, f"Consumer with id='{request.path_params['id']}' not found")


def _with_additions(row: Any) -> bytes:
    return msgspec.json.encode(consumer_view(consumer_of(row), backlog_of(row), now()))


def _plain(row: Any) -> bytes:
    return msgspec.json.encode(plain(consumer_view(consumer_of(row), backlog_of(row), now())))
