"""A resource and what its adapter reports are read one after the other; what changes in between makes no picture that
never was."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from regional.clm.client import ClmClient
from tests.clm.conftest import report

from .conftest import Front


async def test_a_cluster_is_not_ready_before_its_control_plane_is(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await front.accept("POST", "/api/v0/clusters", {"name": "demo"})
    await front.clm.put_status("Cluster", made["id"], report(1, "False"))
    heard = asyncio.Event()
    call = ClmClient.call

    async def changing_in_between(clm: ClmClient, method: str, path: str, *rest: Any, **more: Any) -> Any:
        """The report that makes it Ready comes right after the reports were read, and before the cluster is, if the
        reader lets that happen."""
        if method == "GET" and path.endswith("/statuses"):
            answer = await call(clm, method, path, *rest, **more)
            await call(front.clm, "PUT", path, report(1))
            heard.set()
            return answer
        if method == "GET" and path.endswith(made["id"]):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await heard.wait()
        return await call(clm, method, path, *rest, **more)

    monkeypatch.setattr(ClmClient, "call", changing_in_between)
    seen = await front.accept("GET", f"/api/v0/clusters/{made['id']}")
    steps = [entry["step"] for entry in seen["status"]["timeline"]]
    assert heard.is_set()
    assert seen["status"]["phase"] != "Ready" or "control plane" in steps
