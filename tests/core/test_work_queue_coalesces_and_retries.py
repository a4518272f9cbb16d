from __future__ import annotations

import asyncio
import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from regional.core.clock import ManualClock
from regional.core.reconcile import WorkQueue, run_workers


async def test_many_adds_of_one_key_are_one_run() -> None:
    queue: WorkQueue[str] = WorkQueue()
    seen: list[str] = []

    async def reconcile(key: str) -> None:
        seen.append(key)

    for _ in range(100):
        queue.add("a")
    task = asyncio.create_task(run_workers("t", queue, reconcile))
    await asyncio.sleep(0.01)
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
    await asyncio.sleep(0.02)
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
        await asyncio.sleep(0.005)
        task.cancel()
        return seen

    seen = asyncio.run(scenario())
    assert set(seen) == set(keys)
    assert all(seen[key] <= keys.count(key) for key in seen)
