"""docs/platform-api.md names every operation, with who may call it."""

from __future__ import annotations

import re

from regional.core.paths import checkout
from regional.platform_api.app import OPERATIONS
from regional.platform_api.bodies import BODY_BYTES, DEPTH

GUIDE = (checkout() / "docs" / "platform-api.md").read_text()


def test_the_table_is_the_api_s_own() -> None:
    rows = re.findall(r"^\| `([A-Z]+ /\S*)` \| (\w+) \| (.*) \|$", GUIDE, re.MULTILINE)
    assert rows == [(f"{known.method} {known.path}", known.who, known.summary) for known in OPERATIONS]


def test_the_limits_are_the_api_s_own() -> None:
    assert (BODY_BYTES, DEPTH) == (1 << 20, 64)
    assert "at most 1 MiB and 64 levels" in GUIDE
