from __future__ import annotations

import json
import logging

import pytest

from regional.core.logs import JsonFormatter, setup_logging


def test_fields_stand_beside_the_message(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("regional.test.fields")
    with caplog.at_level("INFO"):
        log.info("pod started", extra={"pod": "ns/name"})
    line = json.loads(JsonFormatter("node").format(caplog.records[0]))
    assert line["msg"] == "pod started" and line["pod"] == "ns/name" and line["role"] == "node"


@pytest.mark.parametrize("taken", ["name", "process", "module", "message", "args"])
def test_a_field_with_a_reserved_name_never_raises(caplog: pytest.LogCaptureFixture, taken: str) -> None:
    log = logging.getLogger("regional.test.reserved")
    with caplog.at_level("INFO"):
        log.info("told", extra={taken: "x"})
    assert json.loads(JsonFormatter("r").format(caplog.records[0]))[f"{taken}_"] == "x"


def test_a_fork_that_logs_as_its_parent_does_leaves_other_loggers_alone() -> None:
    """Their caches lie in pages that forks of the warm parent share as long as nobody writes there."""
    root, other = logging.getLogger(), logging.getLogger("regional.test.other")
    handlers, level = root.handlers[:], root.level
    try:
        setup_logging("parent")
        other.isEnabledFor(logging.DEBUG)
        setup_logging("child")
        assert other._cache == {logging.DEBUG: False}  # type: ignore[attr-defined]
        setup_logging("child", "debug")
        assert other.isEnabledFor(logging.DEBUG)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
