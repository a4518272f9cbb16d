from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from regional.core.clock import ManualClock
from regional.core.queue_metrics import exposition
from regional.core.reconcile import SCAN_STEP, WorkQueue, run_workers


async def at_rest(queue: WorkQueue[Any]) -> None:
    """Every key has been taken and every pass is over, and nobody is about to begin another."""
    for _ in range(10):
        while queue.stats.passes < queue.stats.added:
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_many_adds_of_one_key_are_one_run() -> None:
    queue: WorkQueue[str] = WorkQueue()
    seen: list[str] = []

    async def reconcile(key: str) -> None:
        seen.append(key)

    for _ in range(100):
        queue.add("a")
    task = asyncio.create_task(run_workers("t", queue, reconcile))
    await at_rest(queue)
    task.cancel()
    assert seen == ["a"]


async def test_an_add_during_a_run_is_not_lost_and_not_concurrent() -> None:
    queue: WorkQueue[str] = WorkQueue()
    running = 0
    runs = 0

    async def reconcile(key: str) -> None:
        nonlocal running, runs
        running += 1
        assert running == 1
        runs += 1
        if runs == 1:
            queue.add(key)
        await asyncio.sleep(0)
        running -= 1

    queue.add("a")
    task = asyncio.create_task(run_workers("t", queue, reconcile, workers=4))
    await at_rest(queue)
    task.cancel()
    assert runs == 2


async def test_failures_back_off_in_virtual_time() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock, base=1.0, cap=8.0)
    moments: list[float] = []

    async def reconcile(_: str) -> None:
        moments.append(clock.monotonic())
        raise ValueError("not yet")

    queue.add("a")
    task = asyncio.create_task(run_workers("t", queue, reconcile, clock=clock))
    await clock.advance(40)
    task.cancel()
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    assert gaps[:4] == [2.0, 4.0, 8.0, 8.0]


async def test_the_earlier_of_two_moments_wins_whichever_was_set_first() -> None:
    for moments in ((0.5, 60.0), (60.0, 0.5)):
        clock = ManualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        for seconds in moments:
            queue.add_after("a", seconds)
        await clock.advance(0.4)
        assert len(queue) == 0
        await clock.advance(0.2)
        assert len(queue) == 1
        assert await queue.take() == "a"
        queue.done("a")
        await clock.advance(100)
        assert len(queue) == 0, "the later moment was not taken by the pass before it"


async def test_a_look_that_is_asked_for_during_a_pass_is_not_put_off_by_its_end() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    moments: list[float] = []

    async def reconcile(key: str) -> float:
        moments.append(clock.monotonic())
        if len(moments) == 1:
            queue.add_after(key, 0.5)
        return 60.0

    queue.add("a")
    task = asyncio.create_task(run_workers("t", queue, reconcile, clock=clock))
    await clock.advance(130)
    task.cancel()
    assert moments == [0.0, 0.5, 60.5, 120.5]


async def test_a_pass_takes_the_pending_moment_with_it() -> None:
    """Or a key that is looked at for other reasons would be looked at twice as often for ever after."""
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    moments: list[float] = []

    async def reconcile(_: str) -> float:
        moments.append(clock.monotonic())
        return 60.0

    queue.add("a")
    task = asyncio.create_task(run_workers("t", queue, reconcile, clock=clock))
    await clock.advance(50)
    queue.add("a")
    await clock.advance(70)
    task.cancel()
    assert moments == [0.0, 50.0, 110.0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 4))
def test_every_key_added_is_seen_whatever_the_order(keys: list[int], workers: int) -> None:
    async def scenario() -> Counter[int]:
        queue: WorkQueue[int] = WorkQueue()
        seen: Counter[int] = Counter()

        async def reconcile(key: int) -> None:
            await asyncio.sleep(0)
            seen[key] += 1

        task = asyncio.create_task(run_workers("t", queue, reconcile, workers=workers))
        for key in keys:
            queue.add(key)
            await asyncio.sleep(0)
        await at_rest(queue)
        task.cancel()
        return seen

    seen = asyncio.run(scenario())
    assert set(seen) == set(keys)
    assert all(seen[key] <= keys.count(key) for key in seen)


async def test_ten_thousand_keys_do_not_hold_the_loop() -> None:
    """Neither the scan that brings them nor passes that find nothing to do: others have their turn in between."""
    clock = ManualClock()
    queue: WorkQueue[int] = WorkQueue(clock)
    count, done = 10_000, 0
    brought, passed = [0], [0]  # after each turn of the loop

    async def reconcile(_: int) -> None:
        nonlocal done
        done += 1

    def scanned() -> range:
        return range(count)

    task = asyncio.create_task(
        run_workers("t", queue, reconcile, workers=4, resync=scanned, resync_seconds=60.0, clock=clock)
    )
    await asyncio.sleep(0)
    await clock.advance(60.0)
    for _ in range(100 * count):
        await asyncio.sleep(0)
        brought.append(queue.stats.added)
        passed.append(done)
        if done == count:
            break
    task.cancel()
    assert done == count
    assert max(after - before for before, after in itertools.pairwise(brought[1:])) <= SCAN_STEP
    assert max(after - before for before, after in itertools.pairwise(passed[1:])) <= 4


async def test_queues_show_their_depth_latency_and_failures_by_controller() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock, base=1.0)
    begun, go = asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> None:
        begun.set()
        await go.wait()
        if key == "bad":
            raise ValueError("no")

    for key in ("bad", "good", "good"):
        queue.add(key)
    await clock.advance(2.0)
    task = asyncio.create_task(run_workers("shown", queue, reconcile))
    await begun.wait()
    assert 'workqueue_depth{name="shown"} 1' in exposition()
    assert 'workqueue_adds_total{name="shown"} 2' in exposition()
    await clock.advance(0.5)
    go.set()
    while queue.stats.passes < 2:
        await asyncio.sleep(0)
    shown = exposition().splitlines()
    assert 'workqueue_depth{name="shown"} 0' in shown
    assert 'workqueue_retries_total{name="shown"} 1' in shown
    assert 'workqueue_queue_duration_seconds_sum{name="shown"} 4.5' in shown
    assert 'workqueue_work_duration_seconds_sum{name="shown"} 0.5' in shown
    assert 'workqueue_work_duration_seconds_count{name="shown"} 2' in shown
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "shown" not in exposition()


async def test_keys_that_wait_aside_take_turns_with_the_others() -> None:
    queue: WorkQueue[str] = WorkQueue(aside=lambda key: key.startswith("delete"))
    for number in range(100):
        queue.add(f"delete{number}")
        queue.add(f"delete{number}")
    queue.add("create0")
    queue.add("create1")
    assert len(queue) == 102
    order = [await queue.take() for _ in range(102)]
    assert {"create0", "create1"} <= set(order[:4])
    assert [key for key in order if key.startswith("delete")] == [f"delete{number}" for number in range(100)]


async def test_a_key_that_changes_its_kind_while_it_waits_is_taken_once() -> None:
    doomed: set[str] = set()
    queue: WorkQueue[str] = WorkQueue(aside=doomed.__contains__)
    queue.add("a")
    doomed.add("a")
    queue.add("a")
    assert len(queue) == 1
    assert await queue.take() == "a"
    queue.add("a")
    queue.done("a")
    assert len(queue) == 1, "once more, for what came during the pass"
