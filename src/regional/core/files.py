"""Files that survive a crash in the middle: write beside, flush, rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from regional.core.problems import UserError

T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    """What `write_json` wrote. Raises FileNotFoundError, or UserError if somebody else has been at the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise UserError(
            f"{path} is damaged: {error}", "restore it from a copy, or start afresh with `regionctl down --purge`"
        ) from None


def write_atomic(path: Path, data: bytes | str, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Any, mode: int = 0o600) -> None:
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n", mode)
