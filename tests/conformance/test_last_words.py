"""What watches are told of an object's end."""

from __future__ import annotations

import pytest

from .wire import Http

GUARD = {"metadata": {"finalizers": ["demo.io/guard"], "labels": {"team": "red"}}}


@pytest.mark.parametrize("selector", ["", "labelSelector=team%3Dred"])
async def test_an_object_that_is_let_go_is_told_as_it_was_last_stored(
    http: Http, config_maps: str, selector: str
) -> None:
    """The write that takes the last finalizer away is never stored: nobody sees what else it would have changed."""
    (await http.post(config_maps, {"metadata": {"name": "a"} | GUARD["metadata"], "data": {"state": "last"}})).ok(201)
    marked = (await http.delete(f"{config_maps}/a")).ok(200)
    since = marked["metadata"]["resourceVersion"]
    change = {"metadata": {"finalizers": None, "labels": {"team": "blue"}}, "data": {"state": "never"}}
    async with http.watch(f"{config_maps}?resourceVersion={since}&{selector}") as watch:
        answer = (await http.patch(f"{config_maps}/a", change)).ok(200)
        event = await watch.next()
    assert answer["data"] == {"state": "never"} and "finalizers" not in answer["metadata"]
    assert answer["metadata"]["resourceVersion"] == since
    assert event["type"] == "DELETED"
    told = event["object"]
    assert int(told["metadata"].pop("resourceVersion")) > int(marked["metadata"].pop("resourceVersion"))
    assert told == marked
