"""A long list is one answer at one revision, but not one long pause for everybody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regional.kube.apiserver.rendering import PIECE

from .harness import Api, config_map, start_server

MAPS = "/api/v1/namespaces/default/configmaps"
COUNT = 3 * PIECE + 7

FORMS = {
    "objects": "application/json",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "metadata": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}


@pytest.mark.parametrize("form", FORMS)
async def test_others_are_served_while_a_long_list_is_made(tmp_path: Path, keys: Path, form: str) -> None:
    server = await start_server(tmp_path, keys)
    api = Api(server)
    await asyncio.gather(*(api.post(MAPS, config_map(f"m-{number:05}")) for number in range(COUNT)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.create_task(others())
    await asyncio.sleep(0)
    turns = 0
    answer = await api.get(MAPS, accept=FORMS[form])
    waiting.cancel()
    assert turns >= COUNT // PIECE
    items = answer.body["rows"] if form == "table" else answer.body["items"]
    names = [item["object" if form == "table" else "metadata"] for item in items]
    names = [(item.get("metadata") or item)["name"] for item in names]
    assert [name for name in names if name.startswith("m-")] == [f"m-{number:05}" for number in range(COUNT)]
    if form == "table":
        assert answer.body["columnDefinitions"] and answer.body["kind"] == "Table"
    assert answer.body["metadata"]["resourceVersion"] == str(server.store.revision)
    await server.stop()
