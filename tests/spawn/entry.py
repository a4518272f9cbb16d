"""What the warm parent of these tests runs for `regionctl …`: tiny roles, each showing one behaviour of a process."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from regional.core import pki

pki.new_key()  # the region's warm parent has made one, too, before it forks


def main(argv: list[str]) -> int:
    match argv:
        case ["exit", code]:
            return int(code)
        case ["quit", code]:
            sys.exit(int(code))
        case ["raise"]:
            raise RuntimeError("something unexpected")
        case ["say", *words]:
            print(" ".join(words))
            return 0
        case ["environment", path]:
            lines = [f"{key}={value}" for key, value in sorted(os.environ.items())]
            Path(path).write_text("\n".join([f"cwd={Path.cwd()}", f"session={os.getsid(0) == os.getpid()}", *lines]))
            return 0
        case ["descriptors", path]:
            Path(path).write_text(
                "\n".join(str(p.readlink()) for p in Path("/proc/self/fd").iterdir() if p.is_symlink())
            )
            return 0
        case ["key", path]:
            Path(path).write_text(pki.new_key()[1])
            return 0
        case ["sleep", seconds]:
            time.sleep(float(seconds))
            return 0
        case ["stubborn"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("ignoring SIGTERM", flush=True)
            while True:
                time.sleep(60)
    raise ValueError(f"no such role: {argv}")
