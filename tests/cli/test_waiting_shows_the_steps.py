"""`--wait`: steps as they happen, what is waited for when one takes its time, and ends that leave the region alone."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import time
from typing import Any

import click
import pytest

from regional.cli.waiting import Progress
from regional.cli.waiting import until as wait_until
from regional.clm.adapter.transport import bundle_id
from regional.core.problems import UserError
from tests.cli.conftest import Place, interrupted
from tests.clm.conftest import report, until
from tests.clm.test_a_cluster_becomes_real import Operator, register, sentinel_and_adapter
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro

DATA = {"bundle": "b", "version": "4.20.1", "endpoint": {"host": "127.0.0.9", "port": 6443}}


async def read_until(stream: asyncio.StreamReader | None, wanted: str) -> str:
    assert stream is not None
    text = ""
    async with asyncio.timeout(120):
        while wanted not in text:
            line = await stream.readline()
            assert line, f"no {wanted!r} in {text!r}"
            text += line.decode()
    return text


async def only_cluster(place: Place) -> dict[str, Any]:
    async def found() -> Any:
        return (await place.own_clm.list("Cluster"))["items"]

    (made,) = await until(found)
    return dict(made)


async def test_progress_goes_to_stderr_and_the_result_to_stdout(place: Place) -> None:
    waiting = asyncio.create_task(place.customer.run("cluster", "create", "demo", "--wait", "-o", "json"))
    made = await only_cluster(place)
    await place.clm.put_status("Cluster", made["id"], report(1, "False", data=DATA))
    await place.clm.put_status("Cluster", made["id"], report(1, "True", data=DATA))
    result = await waiting
    assert result.code == 0, result
    assert result.json()["status"]["phase"] == "Ready"
    steps = [line.split()[1] for line in result.err.splitlines() if line.startswith("✓")]
    assert steps == ["accepted", "placed", "published", "applied", "control", "Ready"]
    assert "on mc01" in result.err
    assert "4.20.1" in result.err


async def test_a_step_that_takes_its_time_says_what_it_waits_for(place: Place) -> None:
    process = await place.customer.start("cluster", "create", "demo", "--wait")
    made = await only_cluster(place)
    told = report(1, "False", data=DATA)
    message = "management cluster mc01 has not applied generation 1 yet: consumer mc01 never connected"
    for found in told["conditions"]:
        if found["type"] in ("Applied", "Available"):
            found |= {"status": "False", "reason": "WaitingForManagementCluster", "message": message}
    await place.clm.put_status("Cluster", made["id"], told)
    text = await read_until(process.stderr, "consumer mc01 never connected")
    assert "… applied" in text
    left = await interrupted(process)
    assert left.code == 130
    assert "still being created" in left.err
    assert "regionctl cluster wait demo --for ready" in left.err
    assert "Provisioning" in (await place.customer.succeed("cluster", "list")).out


async def test_without_a_place_the_reason_is_told_and_the_timeout_has_its_own_exit_code(place: Place) -> None:
    listed = await place.clm.find("ManagementCluster", "mc01")
    assert listed is not None
    await place.clm.patch("ManagementCluster", listed["id"], spec={"capacity": 0})
    accepted = await place.customer.succeed("cluster", "create", "demo")
    assert "full" in accepted.err
    assert "WaitingForPlacement" in (await place.customer.succeed("cluster", "list")).out
    result = await place.customer.run("cluster", "wait", "demo", "--timeout", "1s")
    assert result.code == 4
    assert "not ready after 1 s" in result.err
    assert "regionctl cluster describe demo" in result.err


async def test_a_terminal_shows_the_step_under_way_on_one_live_line(place: Place) -> None:
    async with place.customer.terminal("cluster", "create", "demo", "--wait") as terminal:
        await terminal.shows("… published")
        made = await only_cluster(place)
        await place.clm.put_status("Cluster", made["id"], report(1, "True", data=DATA))
        await terminal.shows("cluster demo is Ready: https://127.0.0.9:6443")
        assert await terminal.ends() == 0
    assert "\r\x1b[2K" in terminal.text


async def test_a_cluster_deleted_meanwhile_ends_the_wait_for_ready(place: Place) -> None:
    process = await place.customer.start("cluster", "create", "demo", "--wait")
    made = await only_cluster(place)
    await read_until(process.stderr, "placed")
    await place.own_clm.delete("Cluster", made["id"])
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode == 1
    assert "deleted" in err.decode()


async def test_delete_waits_until_nothing_is_left(place: Place) -> None:
    await place.customer.succeed("cluster", "create", "demo")
    made = await only_cluster(place)
    waiting = asyncio.create_task(place.customer.run("cluster", "delete", "demo", "--wait", "--yes"))

    async def deleting() -> bool:
        return bool((await place.clm.get("Cluster", made["id"])).get("deleted_time"))

    await until(deleting)
    assert not waiting.done()
    await place.clm.put_status("Cluster", made["id"], report(2, "False", finalized="True"))
    result = await waiting
    assert result.code == 0, result
    assert result.out == "cluster demo is deleted\n"


async def test_a_change_is_waited_for_in_its_own_generation(place: Place) -> None:
    await place.customer.succeed("cluster", "create", "demo")
    made = await only_cluster(place)
    await place.clm.put_status("Cluster", made["id"], report(1, "True", data=DATA))
    await place.customer.succeed("cluster", "wait", "demo")
    waiting = asyncio.create_task(place.customer.run("cluster", "update", "demo", "--set", "channel=fast", "--wait"))

    async def changed() -> bool:
        return bool((await place.clm.get("Cluster", made["id"]))["generation"] == 2)

    await until(changed)
    await asyncio.sleep(0.5)
    assert not waiting.done()  # ready for generation 1, not for this one
    await place.clm.put_status("Cluster", made["id"], report(2, "True", data=DATA))
    result = await waiting
    assert result.code == 0, result
    assert "✓ Ready" in result.err


async def test_the_whole_way_to_a_management_cluster_and_back(
    place_with_maestro: Place, maestro: Maestro, cluster: Cluster, region: Any, region_logs: Any
) -> None:
    place, shell = place_with_maestro, place_with_maestro.customer
    operator = Operator(cluster)
    await operator.prepare()
    client = place.maestro  # type: ignore[attr-defined]
    await register(client, "mc01")
    await place.clm.create("ManagementCluster", "mc01", {})
    async with sentinel_and_adapter(region, client, place.clm):
        waiting = asyncio.create_task(shell.run("cluster", "create", "demo", "--wait", "-v"))
        made = await only_cluster(place)
        bundle = bundle_id("mc01", f"cluster-{made['id']}")
        await until(lambda: client.get_bundle_or_none(bundle))
        why = (await place.operator.succeed("bundle", "describe", bundle)).out
        assert "no status has come back" in why
        assert "consumer mc01 never connected" in why
        assert not waiting.done()  # with the agent away it must not become Ready
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await operator.hosted(made["id"])
            await operator.make_available(made["id"])
            result = await waiting
            assert result.code == 0, result
            assert "cluster demo is Ready: https://127.0.0.9:6443" in result.out
            assert (await shell.succeed("cluster", "kubeconfig", "demo")).out == "kubeconfig"
            listed = (await place.operator.succeed("bundle", "list", "--to", "mc01")).out
            assert f"cluster-{made['id']}" in listed
            assert "True" in listed
            shown = (await place.operator.succeed("management-cluster", "describe", "mc01")).out
            assert "not applied: 0" in shown

            request_id = (await shell.succeed("cluster", "describe", "demo", "-o", "json")).json()["history"][-1][
                "request_id"
            ]
            assert request_id in result.err
            by_request = by_name = ""

            async def both_tell_the_same() -> bool:
                """Once the last of it has been written."""
                nonlocal by_request, by_name
                by_request = (await shell.succeed("trace", request_id)).out
                by_name = (await shell.succeed("trace", "demo")).out
                lines = by_request.splitlines()
                return "maestro.publish" in by_request and lines[1:] == by_name.splitlines()[1 : len(lines)]

            await until(both_tell_the_same, 120)
            for span in ("gateway.request", "platform_api.request", "clm.commit", "sentinel.event", "adapter.run"):
                assert span in by_request
            for span in ("maestro.commit", "maestro.publish", "agent.apply", "maestro.status", "clm.status"):
                assert span in by_request
            assert ", to Ready" in by_request
            assert "Where the time went" in by_request
            (document,) = (await shell.succeed("trace", request_id, "-o", "json")).json()
            assert document["ready"] is True
            assert abs(sum(share["seconds"] for share in document["shares"]) - document["seconds"]) < 0.01
            # The same from an id, with no API to ask: the logs know it.
            alone = shell.having(API_GATEWAY_URL=None)
            assert request_id in (await alone.succeed("trace", made["id"])).out

            deleted = await shell.run("cluster", "delete", "demo", "--wait", "--yes")
            assert deleted.code == 0, deleted
            assert await operator.hosted_or_none(made["id"]) is None


def test_an_interrupt_that_python_loses_in_a_destructor_still_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

    with pytest.raises(click.exceptions.Exit) as ended:
        wait_until(look, 600, Progress(io.StringIO()), late=UserError("late"), stopped="stopped watching")
    assert ended.value.exit_code == 130
    assert "stopped watching" in capsys.readouterr().err
