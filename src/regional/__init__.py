"""regional: regions of hosted control planes. One package per box of docs/architecture.md."""

import logging
from collections.abc import Mapping
from typing import Any

__version__ = "0.1.0"

_RESERVED = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class _TolerantLogger(logging.Logger):
    """The standard logger raises when a field beside a message has one of its own names (`name`, `process`, …). A log
    line must never be able to stop what it tells about, so such a field gets an underscore instead."""

    def makeRecord(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        # (name, level, fn, lno, msg, args, exc_info, func, extra, sinfo)
        extra: Mapping[str, object] | None = args[8] if len(args) > 8 else kwargs.get("extra")
        if extra and not _RESERVED.isdisjoint(extra):
            extra = {f"{key}_" if key in _RESERVED else key: value for key, value in extra.items()}
            if len(args) > 8:
                args = (*args[:8], extra, *args[9:])
            else:
                kwargs["extra"] = extra
        return super().makeRecord(*args, **kwargs)


# Here, because every module's logger is made when it is imported, and this is imported before all of them.
logging.setLoggerClass(_TolerantLogger)
