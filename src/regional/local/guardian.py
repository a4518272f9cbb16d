"""The guardian: the smallest process that can restart a supervisor, and the one that reaps what others leave behind.

It imports only the standard library's smallest parts, so that it costs little and hardly ever has a reason to die. As a
child subreaper it becomes the parent of every orphan below it: pods whose warm parent was killed, services whose
supervisor was killed. Run as a script, not as a module of the package, to keep the imports away.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def start(region: str, supervisor_pid: int = 0) -> int:
    """Start a guardian in a session of its own; it starts the supervisor unless told of a living one."""
    log = os.environ.get("REGIONAL_GUARDIAN_LOG", os.devnull)
    # posix_spawn rather than Popen: nobody waits for it, and it must not be tied to whoever started it.
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-S", __file__, region, str(supervisor_pid)],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _say(text: str) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f'{{"time":"{moment}","role":"guardian","msg":"{text}"}}', flush=True)


def _start_supervisor(region: str) -> int:
    command = [sys.executable, "-m", "regional.local.supervisor", "--region", region, "--guardian", str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True).pid


def _wait(pid: int) -> int | None:
    """Wait for the supervisor, reaping everything else on the way. Its exit code; None if it was not our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    code: int | None = None
    try:
        while True:
            ended = {fd for fd, _ in poll.poll()}
            if wake_read in ended:
                os.read(wake_read, 4096)
            while True:
                try:
                    reaped, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if reaped == 0:
                    break
                if reaped == pid:
                    code = os.waitstatus_to_exitcode(status)
            if descriptor in ended:
                return code
    finally:
        signal.set_wakeup_fd(-1)
        for fd in (descriptor, wake_read, wake_write):
            os.close(fd)


def _note_identity() -> None:
    """Pid and start time, as core.process has them: `down` must find a guardian whose supervisor is gone."""
    if path := os.environ.get("REGIONAL_GUARDIAN_REF"):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        scratch = Path(f"{path}.{os.getpid()}")
        scratch.write_text(f'{{"pid":{os.getpid()},"start":{int(fields[19])}}}')
        scratch.replace(path)


def _wanted() -> bool:
    """`down` removes this mark before it does anything else."""
    return Path(os.environ.get("REGIONAL_RUNNING_MARK", os.devnull)).exists()


def guard(region: str, supervisor_pid: int) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _note_identity()
    delay = 0.1
    pid = supervisor_pid or _start_supervisor(region)
    while True:
        started = time.monotonic()
        code = _wait(pid)
        if code == 0 or not _wanted():
            return 0
        delay = 0.1 if time.monotonic() - started > 10 else min(5.0, delay * 2)
        _say(f"supervisor ended with {code}; starting it again in {delay:.1f} s")
        time.sleep(delay)
        if not _wanted():
            return 0
        pid = _start_supervisor(region)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1], int(sys.argv[2])))
