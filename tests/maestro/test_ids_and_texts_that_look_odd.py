"""Names that would collide with a path of the API, and texts that only look as if they held what no database keeps."""

from __future__ import annotations

import json
import uuid

import pytest

from regional.maestro.client import MaestroError
from regional.maestro.protocol.events import CREATE
from tests.maestro.harness import Maestro, config_map
from tests.maestro.test_clients_come_in_by_grpc import REFUSED, speaking


async def test_no_bundle_takes_the_id_of_the_watchs_path(maestro: Maestro) -> None:
    """It could be made, and then neither read, changed nor deleted over REST."""
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        with pytest.raises(MaestroError, match="id is 'watch'") as caught:
            await client.create_bundle("mc01", [config_map("a")], id="watch")
        assert caught.value.status == 400
        code, text = await channel.refusal(CREATE, resource_id="watch", manifests=[config_map("a")])
        assert "resourceid is 'watch'" in text and code is REFUSED.INVALID_ARGUMENT
        assert (await client.list_bundles())["total"] == 0


@pytest.mark.parametrize("text", ["menu0000", r"a path of C:\u0000", r"\\u0000"])
async def test_a_text_that_only_looks_like_a_nul_is_taken_at_either_door(maestro: Maestro, text: str) -> None:
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        by_rest = await client.create_bundle("mc01", [config_map("a", {"key": text})])
        by_grpc = str(uuid.uuid4())
        await channel.publish(CREATE, by_grpc, [config_map("b", {"key": text})], metadata=json.dumps({"name": "b"}))
        for bundle_id in (by_rest["id"], by_grpc):
            (manifest,) = (await client.get_bundle(bundle_id))["manifests"]
            assert manifest["data"] == {"key": text}


async def test_a_nul_is_refused_wherever_it_stands_in_an_event(maestro: Maestro) -> None:
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        for given in (
            {"manifests": [config_map("a", {"key": "\x00"})]},
            {"manifests": [config_map("a")], "metadata": json.dumps({"annotations": {"a": "\x00"}})},
        ):
            code, text = await channel.refusal(CREATE, resource_id=str(uuid.uuid4()), **given)
            assert "NUL" in text and code is REFUSED.INVALID_ARGUMENT
