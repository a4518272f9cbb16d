"""The numbered checks of docs/kubernetes.md: each is the subject of a test here."""

from __future__ import annotations

import ast
from pathlib import Path

HELD = set(range(1, 129))


def marked(path: Path) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.check":
            found |= {ast.literal_eval(argument) for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def test_every_check_is_held() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    assert HELD - set().union(*map(marked, files)) == set()
