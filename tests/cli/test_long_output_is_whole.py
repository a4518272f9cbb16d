"""What a command prints for programs arrives whole, however little the pipe takes at a time."""

from __future__ import annotations

import io
import json
import sys

import pytest

from regional.cli.output import print_value


class Drip(io.RawIOBase):
    """A pipe without a buffer before it, as with PYTHONUNBUFFERED: takes a part, and says how much."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)[:7]  # type: ignore[call-overload]
        self.taken += part
        return len(part)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_write_that_takes_a_part_is_followed_by_the_rest(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    pipe = Drip()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, write_through=True))
    print_value(["x" * 100], form)
    text = pipe.taken.decode()
    assert text.endswith("\n")
    assert "x" * 100 in text
    assert form == "yaml" or json.loads(text) == ["x" * 100]
