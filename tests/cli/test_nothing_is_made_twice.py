"""Answers that get lost: a create that was carried out is not asked for again, nor taken for somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from regional.core import pki
from regional.maestro.client import MaestroClient
from tests.cli.conftest import NOWHERE, Identities, Place, running_place
from tests.clm.conftest import Region, add_management_cluster
from tests.cloud.conftest import Host


class LosesAnswers:
    """Carries requests out and, for the next `lose` of them that change something, loses the answer."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.lose = 0
        self.carry_out = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not self.lose:
            await self._app(scope, receive, send)
            return
        self.lose -= 1

        async def nowhere(_: Any) -> None:
            pass

        if self.carry_out:
            await self._app(scope, receive, nowhere)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send(
            {"type": "http.response.body", "body": b'{"kind": "Error", "code": "unavailable", "reason": "lost"}'}
        )


@pytest.fixture
async def lossy(
    region: Region, aws_host: Host, authority: pki.KeyPair, ada: Identities, olga: Identities, tmp_path: Path
) -> AsyncIterator[tuple[Place, LosesAnswers]]:
    wires: list[LosesAnswers] = []

    def wire(app: Any) -> LosesAnswers:
        wires.append(LosesAnswers(app))
        return wires[0]

    async with MaestroClient(NOWHERE) as nobody:
        async with running_place(region, nobody, aws_host, authority, (ada, olga), tmp_path, wire) as made:
            await add_management_cluster(made.clm)
            yield made, wires[0]


async def test_a_create_whose_answer_was_lost_is_found_by_its_request(lossy: tuple[Place, LosesAnswers]) -> None:
    place, wire = lossy
    wire.lose = 1
    made = (await place.customer.succeed("cluster", "create", "demo", "-o", "json")).json()
    assert made["name"] == "demo"
    (found,) = (await place.customer.succeed("cluster", "list", "-o", "json")).json()["items"]
    assert found["id"] == made["id"]


async def test_a_create_that_was_not_carried_out_is_asked_for_again(lossy: tuple[Place, LosesAnswers]) -> None:
    place, wire = lossy
    wire.lose, wire.carry_out = 2, False
    made = (await place.customer.succeed("cluster", "create", "demo", "-o", "json")).json()
    assert [c["id"] for c in (await place.own_clm.list("Cluster"))["items"]] == [made["id"]]


async def test_a_cluster_that_was_there_before_is_not_taken_for_the_new_one(lossy: tuple[Place, LosesAnswers]) -> None:
    place, wire = lossy
    await place.customer.succeed("cluster", "create", "demo")
    wire.lose = 1
    again = await place.customer.run("cluster", "create", "demo")
    assert again.code == 1
    assert "demo" in again.err
