"""What a resource remembers of its past is bounded, by number, by age and by size; who asks for more lists again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from regional.kube.apiserver import shelf as shelves
from regional.kube.apiserver.entries import entry_of
from regional.kube.apiserver.shelf import RING_BYTES, RING_EVENTS, RING_LEAST, RING_LIMIT, RING_SECONDS, Shelf, event_of

from .harness import Api, config_map, start_server

MAPS = "/api/v1/namespaces/default/configmaps"


def fill(shelf: Shelf, count: int, *, size: int = 10, seconds_each: float = 0.0) -> None:
    for revision in range(1, count + 1):
        obj = {"metadata": {"name": "one", "uid": "u", "resourceVersion": str(revision)}, "data": {"x": "x" * size}}
        event = event_of("MODIFIED", revision, entry_of(obj, ()), None)
        shelf.record(msgspec.structs.replace(event, moment=revision * seconds_each))


def test_young_events_are_kept_up_to_a_number() -> None:
    shelf = Shelf("things", 0)
    fill(shelf, RING_LIMIT + 500)
    assert len(list(shelf.after(0))) == RING_LIMIT
    assert shelf.floor == 500


def test_old_events_go_but_for_the_last_thousand() -> None:
    shelf = Shelf("things", 0)
    fill(shelf, RING_EVENTS + 300, seconds_each=RING_SECONDS)
    assert len(list(shelf.after(0))) == RING_EVENTS
    assert shelf.floor == 300


def test_large_events_go_when_they_fill_the_memory() -> None:
    shelf = Shelf("things", 0)
    fill(shelf, 400, size=1 << 18)
    kept = list(shelf.after(0))
    assert RING_LEAST <= len(kept) < 400
    assert sum(len(event.entry.body) for event in kept) <= RING_BYTES
    assert shelf.floor == kept[0].revision - 1


async def test_watch_from_before_the_ring_is_told_to_list_again(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelves, "RING_BYTES", 20_000)
    monkeypatch.setattr(shelves, "RING_LEAST", 3)
    server = await start_server(tmp_path, keys)
    api = Api(server)
    first = (await api.post(MAPS, config_map("big", {"n": "0"}))).body["metadata"]["resourceVersion"]
    for number in range(12):
        assert (await api.patch(f"{MAPS}/big", {"data": {"n": str(number), "x": "x" * 4_000}})).status == 200
    event = await (await api.watch(f"{MAPS}?resourceVersion={first}")).next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    await server.stop()
