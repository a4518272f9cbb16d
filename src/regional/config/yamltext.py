"""YAML written so that Go and Python read the same thing, and the same value always gives the same bytes.

Go's YAML 1.1 takes plain `y`, `n`, `1234e56` and `0o14` for booleans and numbers where PyYAML sees strings and leaves
them unquoted; a pin of digits and one `e` would reach Argo CD as a number. Such strings are quoted here.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

# The last: commit hashes, all of them alike, so that a diff of pins is a diff of pins.
_QUOTED = re.compile(r"[yYnN]|[-+.]?[0-9][-+0-9a-fA-FxXoObB_.:]*|[0-9a-f]{40}")


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "'" if _QUOTED.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1 << 30
    )
    return text
