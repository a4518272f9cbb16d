"""Structured logs: one JSON object a line on stdout, with the resource's id when there is one.

`log.info("pod started", extra={"pod": "ns/name"})` puts `pod` beside the message. Values that look like secrets are
the caller's duty not to pass; nothing here dumps environments or bodies.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
# uvicorn's own words for start and stop are the roles' to say.
_NOISY = ("botocore", "boto3", "urllib3", "aiohttp.access", "uvicorn.access", "uvicorn.error", "asyncio", "werkzeug")
_encoder = msgspec.json.Encoder(enc_hook=str)


class JsonFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role
        self._second, self._written = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self._time(record.created),
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encoder.encode(line).decode()

    def _time(self, moment: float) -> str:
        """Many lines have their second in common."""
        milliseconds = int(moment * 1000)
        second = milliseconds // 1000
        if second != self._second:
            self._second, self._written = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._written}.{milliseconds % 1000:03}Z"


def setup_logging(role: str, level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(role))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What no line of ours has is not looked up: the caller's place in the source, thread and process.
    logging._srcfile = None  # type: ignore[assignment,unused-ignore]
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    _set_level(root, level.upper())
    for noisy in _NOISY:
        _set_level(logging.getLogger(noisy), "WARNING")


def _set_level(logger: logging.Logger, level: str) -> None:
    """Where it has another: each setting empties the caches of all loggers, and for that a fork of the warm parent
    would copy the pages that they share, about a megabyte."""
    if logging.getLevelName(logger.level) != level:
        logger.setLevel(level)
