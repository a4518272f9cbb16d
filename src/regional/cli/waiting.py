"""`--wait`: the steps of a resource as they happen, on stderr, and what it waits for when a step takes its time.

The region's own timeline says when a step was taken, so what is shown does not depend on when we asked. On a terminal
the step under way is one live line; elsewhere each step is a line, and a wait that lasts is told now and then.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from types import FrameType
from typing import Any, TextIO

import click

from regional.cli.customer import TIMED_OUT, Session, in_words
from regional.cli.output import printable
from regional.core.problems import UserError

Document = dict[str, Any]

STEPS = {
    "Cluster": ("accepted", "placed", "published", "applied", "control plane", "Ready"),
    "NodePool": ("accepted", "published", "applied", "Ready"),
}
_WAITS = {
    "placed": "a management cluster with room",
    "published": "the adapter to hand it to Maestro",
    "applied": "its management cluster to apply it",
    "control plane": "the control plane to become available",
    "Ready": "the last report to be committed",
    "gone": "its management cluster to take everything down",
}
SLOW_SECONDS = 5.0
_TELL_AGAIN = 30.0
_INTERVALS = ((10.0, 0.15), (60.0, 0.4), (float("inf"), 1.0))  # (until so many seconds, ask so often)
_GONE = 404


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
        try:
            seconds = float(text[:-1]) * factor if factor else float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < 1e9:
            self.fail(f"{value!r} is not a duration such as 90s, 10m or 1h", param, ctx)
        return seconds


def wait_options(function: Any) -> Any:
    function = click.option(
        "--timeout", type=Duration(), default="10m", show_default=True, help="How long --wait waits: 90s, 10m, 1h."
    )(function)
    return click.option("--wait", is_flag=True, help="Stay until it is done and show the steps on stderr.")(function)


class Progress:
    """One line a step. `live` rewrites the line of the step that is under way."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._clock = clock
        self._drawn = False
        self._step_since = clock()
        self._said: tuple[str, float] = ("", 0.0)
        self.started = clock()

    @property
    def elapsed(self) -> float:
        return self._clock() - self.started

    def step(self, name: str, seconds: float, note: str = "") -> None:
        self._clear()
        mark = click.style("✓", fg="green") if self._live else "✓"
        click.echo(f"{mark} {name:<14}{seconds:8.2f} s  {note}".rstrip(), file=self._stream)
        self._step_since, self._said = self._clock(), ("", 0.0)

    def waiting(self, name: str, message: str) -> None:
        now = self._clock()
        slow = now - self._step_since >= SLOW_SECONDS
        text = printable(message) or f"waits for {_WAITS.get(name, 'the next step')}"
        if self._live:
            shown = f"… {name:<14}{self.elapsed:8.1f} s  {text if slow else ''}".rstrip()
            self._draw(shown)
        elif slow and (text != self._said[0] or now - self._said[1] >= _TELL_AGAIN):
            self._said = (text, now)
            click.echo(f"… {name:<14}{self.elapsed:8.1f} s  {text}", file=self._stream)

    def close(self) -> None:
        self._clear()

    def _draw(self, text: str) -> None:
        import shutil

        width = shutil.get_terminal_size().columns
        shown = text if len(text) < width else text[: max(1, width - 2)] + "…"
        self._stream.write(f"\r\x1b[2K{shown}")
        self._stream.flush()
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._drawn = False


class Wait:
    """One resource until it is Ready or gone. Trouble with the API is waited out like everything else."""

    def __init__(self, session: Session, document: Document, timeout: float, progress: Progress | None = None) -> None:
        self._session = session
        self._document = document
        self._timeout = timeout
        self._progress = progress or Progress()
        self._noun = "cluster" if document["kind"] == "Cluster" else "node pool"
        self._word = "cluster" if document["kind"] == "Cluster" else "nodepool"
        self._path = f"/api/v0/{self._word}s/{document['id']}"

    def ready(self, *, since: str = "") -> Document:
        """`since` is the moment of the change that is waited for; its creation unless said otherwise."""
        since = since or self._document["created_at"]
        steps = _Steps(self._document["kind"], since, self._progress)
        return self._run("ready", lambda: self._look_ready(steps))

    def gone(self) -> None:
        self._run("deleted", self._look_gone)

    def _look_ready(self, steps: _Steps) -> Document | None:
        found = self._get()
        if found is None:
            raise UserError(f"{self._noun} {self._document['name']} is gone: somebody deleted it")
        if found.get("deleted_at"):
            hint = f"regionctl {self._word} wait {self._document['name']} --for deleted"
            raise UserError(f"{self._noun} {self._document['name']} is being deleted", hint)
        done = is_ready(found)
        steps.show(found, done)
        return found if done else None

    def _look_gone(self) -> Document | None:
        found = self._get()
        if found is None:
            self._progress.step("gone", self._progress.elapsed)
            return self._document
        self._progress.waiting("gone", str(found["status"].get("message", "")))
        return None

    def _get(self) -> Document | None:
        from regional.gateway.client import ApiError

        try:
            return dict(self._session.call("GET", self._path).json())
        except ApiError as error:
            if error.status == _GONE:
                return None
            raise

    def _run(self, goal: str, look: Callable[[], Document | None]) -> Document:
        late = UserError(
            f"{self._noun} {self._document['name']} is not {goal} after {self._timeout:g} s; the region goes on",
            f"what it waits for: regionctl {self._word} describe {self._named()}",
            TIMED_OUT,
        )
        return until(look, self._timeout, self._progress, late=late, stopped=self._how_to_go_on(goal))

    def _how_to_go_on(self, goal: str) -> str:
        name = self._document["name"]
        doing = "being deleted" if goal == "deleted" else "being created"
        again = f"regionctl {self._word} wait {self._named()} --for {goal}"
        return f"stopped watching; {self._noun} {name} is still {doing}. Go on watching: {again}"

    def _named(self) -> str:
        """A pool's name means something only in its cluster; its id always does."""
        return str(self._document["name"] if self._document["kind"] == "Cluster" else self._document["id"])


class _Steps:
    """Which steps have been shown. Those before `since` belong to an earlier change."""

    def __init__(self, kind: str, since: str, progress: Progress) -> None:
        self._since = datetime.fromisoformat(since)
        self._wanted = list(STEPS[kind])
        self._progress = progress
        self._accepted = progress.elapsed

    def show(self, document: Document, done: bool) -> None:
        status = document["status"]
        taken = {entry["step"]: datetime.fromisoformat(entry["time"]) for entry in status.get("timeline") or []}
        taken["accepted"] = max(taken.get("accepted", self._since), self._since)
        while self._wanted:
            step = self._wanted[0]
            moment = taken.get(step)
            if step == "Ready" and not done:
                break  # a control plane that was ready before this change
            if moment is None or moment < self._since:
                if not any(later in taken and taken[later] >= self._since for later in self._wanted[1:]):
                    break
                self._wanted.pop(0)  # passed without a mark of its own
                continue
            self._progress.step(step, self._offset(moment), _note(step, document))
            self._wanted.pop(0)
        if self._wanted and not done:
            self._progress.waiting(self._wanted[0], str(status.get("message", "")))

    def _offset(self, moment: datetime) -> float:
        """Seconds since the command began: the region's own clock from the moment it accepted the change."""
        return self._accepted + max(0.0, (moment - self._since).total_seconds())


def _note(step: str, document: Document) -> str:
    status = document["status"]
    if step == "placed":
        return f"on {(status.get('placementRef') or {}).get('managementCluster', '')}"
    if step == "accepted":
        return str(document["id"])
    if step == "Ready":
        return str(status.get("version", ""))
    return ""


def is_ready(document: Document) -> bool:
    """Ready for the present spec, not for one before it."""
    status = document["status"]
    synced = any(c["type"] == "Synced" and c["status"] == "True" for c in status["conditions"])
    return status["phase"] == "Ready" and synced and status["observedGeneration"] >= document["generation"]


def _interval(elapsed: float) -> float:
    return next(pause for until, pause in _INTERVALS if elapsed < until)


@contextlib.contextmanager
def _kept_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C is remembered: one that comes while Python runs a destructor is otherwise printed and lost."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def until(
    look: Callable[[], Document | None], timeout: float, progress: Progress, *, late: UserError, stopped: str
) -> Document:
    """What `look` finds, sooner or later. `late` is raised when the time is over, `stopped` said after Ctrl-C."""
    from regional.gateway.client import ApiUnreachable

    deadline = time.monotonic() + timeout
    try:
        with _kept_interrupts() as interrupted:
            while not interrupted.is_set():
                trouble: UserError | None = None
                try:
                    found = look()
                    if found is not None:
                        return found
                except ApiUnreachable as error:
                    trouble = in_words(error)
                    progress.waiting("…", f"asking again: {trouble.message}")
                pause = _interval(progress.elapsed)
                if time.monotonic() + pause >= deadline:
                    raise UserError(trouble.message, trouble.hint, TIMED_OUT) if trouble else late
                time.sleep(pause)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        progress.close()
        click.echo(stopped, err=True)
        raise click.exceptions.Exit(130) from None
    finally:
        progress.close()
