"""Rules as their authors write them, and as the engine must read them to do what Go's engine does."""

from __future__ import annotations

import re

_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAMED = re.compile(r"\bformat\s*\.\s*named\s*\(")
_FORMAT = r"format\s*\.\s*\w+\s*\(\s*\)|optional\.ofNonZeroValue\(format[^()]*\([^()]*\)\)\s*\.\s*value\(\)"
_VALIDATED = re.compile(rf"\b(?:{_FORMAT})\s*\.\s*validate\s*\(")
_RANGE = re.compile(r"\blists\s*\.\s*range\b")
_UNSERVED = re.compile(r"\.\s*(transformMap(?:Entry)?)\s*\(")


def adapted(rule: str) -> str:
    """The rule for our engine; RuntimeError if it asks for what the engine lacks."""
    bare = _bare(rule)
    if found := _UNSERVED.search(bare):
        raise RuntimeError(f"ERROR: <input>:1:{found.start(1)}: {found[1]} is not served here")
    if _RANGE.search(bare):  # the engine's own would fill the memory
        for found in reversed(list(_RANGE.finditer(bare))):
            rule = f"{rule[: found.start()]}lists.upTo{rule[found.end() :]}"
    return _with_optionals(rule) if "format" in bare else rule


def _bare(rule: str) -> str:
    """The rule with other letters in its texts, which are no code."""
    return _LITERAL.sub(lambda found: "'" + "x" * (len(found[0]) - 2) + "'", rule)


def _with_optionals(rule: str) -> str:
    """The rule with its calls of `format.named` and `validate` put into `optional.ofNonZeroValue`."""
    for call in (_NAMED, _VALIDATED):
        start = 0
        while True:
            bare = _bare(rule)
            found = call.search(bare, start)
            end = _closing(bare, found.end()) if found else 0
            if found is None or not end:
                break
            before = "optional.ofNonZeroValue("
            rule = f"{rule[: found.start()]}{before}{rule[found.start() : end]}){rule[end:]}"
            start = found.end() + len(before)
    return rule


def _closing(text: str, start: int) -> int:
    """Behind the parenthesis that closes the one before `start`; 0 if there is none."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return 0
