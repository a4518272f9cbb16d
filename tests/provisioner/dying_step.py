"""A provisioning step that is killed by -9 after it has said a number of things. Run as a program by tests.

python -m tests.provisioner.dying_step LINES REQUEST   (REQUEST: JSON of provisioner.command.Request; LINES 0: never)
"""

from __future__ import annotations

import logging
import os
import signal
import sys

import msgspec

from regional.local.provisioner.command import Request, provision_command


class Die(logging.Handler):
    def __init__(self, lines: int) -> None:
        super().__init__()
        self._left = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    logger = logging.getLogger("regional.local.provisioner")
    logger.setLevel(logging.INFO)
    logger.addHandler(Die(int(sys.argv[1])))
    provision_command(msgspec.json.decode(sys.argv[2], type=Request, dec_hook=lambda kind, value: kind(value)))


if __name__ == "__main__":
    main()
