"""The child's side of a fork: from a copy of the warm parent to a process of its own.

Order matters. First everything that ties it to the parent goes (session, signals, descriptors), then its identity is
put on disk (state file), and only then does it become what was asked for.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import random
import shutil
import signal
import sys
import termios
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from regional.core import process_title
from regional.core.process import start_ticks
from regional.core.spawn import SpawnRequest, publish, write_exit

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # a shell's codes


def become(
    request: SpawnRequest, ready: int, entry: Callable[[list[str]], int], streams: Sequence[int] = ()
) -> NoReturn:
    """Never returns and never raises: whatever happens ends in os._exit with an exit file."""
    code, problem = 1, ""
    try:
        try:
            _detach(request, ready, streams)
        except OSError as error:
            os.write(ready, f"cannot set up the process: {error}".encode())
            os._exit(1)
        if request.state_file and not _claim(request.state_file):
            os._exit(0)  # a twin from an earlier request is already running
        if request.argv[0] == "regionctl":
            os.close(ready)
            code = _run(request, entry)
        else:
            code, problem = _execute(request)
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    finally:
        if request.exit_file:
            with contextlib.suppress(OSError):
                write_exit(request.exit_file, code, problem=problem)
        os._exit(code)


def _detach(request: SpawnRequest, ready: int, streams: Sequence[int]) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as in any Python process; an exec resets it below
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(request.env)
    for standard, descriptor in enumerate(streams if request.streams else _log_streams(request)):
        os.dup2(descriptor, standard)
    if request.terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.closerange(3, ready)
    os.closerange(ready + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request.cwd)
    random.seed()


def _log_streams(request: SpawnRequest) -> tuple[int, int, int]:
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if request.log else null
    return null, output, output


def _claim(state_file: str) -> bool:
    start = start_ticks(os.getpid())
    assert start is not None
    return publish(state_file, {"pid": os.getpid(), "start": start})


def _run(request: SpawnRequest, entry: Callable[[list[str]], int]) -> int:
    process_title.show(request.argv, request.env)
    process_title.set_name(request.title or _short_name(request.argv))
    sys.argv = list(request.argv)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the standard streams live as long as the process
    sys.stdout = open(1, "w", buffering=1, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8")  # noqa: SIM115
    logging.getLogger().handlers.clear()
    gc.enable()
    try:
        code = entry(request.argv[1:])
    except SystemExit as stop:
        code = _exit_code(stop)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        sys.stderr.write(traceback.format_exc())
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code or 0


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _execute(request: SpawnRequest) -> tuple[int, str]:
    """Returns only if there is nothing to run: a shell's exit code, and why."""
    program = shutil.which(request.argv[0], path=request.env.get("PATH", os.defpath))
    code, problem = _NOT_FOUND, f"{request.argv[0]}: no such program on this pod's PATH"
    if program is not None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            os.execve(program, request.argv, request.env)
        except OSError as error:
            code, problem = _NOT_EXECUTABLE, f"{program}: {error.strerror}"
    os.write(2, f"{problem}\n".encode())
    return code, problem


def _short_name(argv: list[str]) -> str:
    """`regionctl serve maestro-agent …` is known as maestro-agent."""
    return argv[2] if argv[1:2] == ["serve"] and len(argv) > 2 else " ".join(argv[:2])
