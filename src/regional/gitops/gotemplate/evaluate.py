"""Runs a parsed template on its data, with Go's rules for what a missing key is worth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from regional.gitops.gotemplate.functions import FUNCTIONS, Function
from regional.gitops.gotemplate.parser import Node, Operand, Parser, Pipe
from regional.gitops.gotemplate.values import MISSING, StringMap, TemplateError, text, truth, type_name

_OPTIONS = {"default": "default", "invalid": "default", "zero": "zero", "error": "error"}
_NOTHING: Any = object()  # no value was piped in; a missing value may well be


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Template:
    def __init__(self, source: str, options: Iterable[str] = ()) -> None:
        self._source = source
        self._missing = "default"
        for option in options:
            name, _, value = option.partition("=")
            if name != "missingkey" or value not in _OPTIONS:
                raise TemplateError(f"unrecognized option: {option}")
            self._missing = _OPTIONS[value]
        self._nodes = Parser(source, FUNCTIONS).parse()
        self._chains = _chains(self._nodes)

    def execute(self, data: Any) -> str:
        if self._chains is not None and (plain := _filled(self._chains, data)) is not None:
            return plain
        out: list[str] = []
        self._run(self._nodes, data, [("$", data)], out)
        return "".join(out)

    def _run(self, nodes: list[Node], dot: Any, scope: list[tuple[str, Any]], out: list[str]) -> None:
        for node in nodes:
            if node.kind == "text":
                out.append(node.text)
            elif node.kind == "break":
                raise _Break
            elif node.kind == "continue":
                raise _Continue
            else:
                assert node.pipe is not None
                if node.kind == "action":
                    value = self._pipe(node.pipe, dot, scope)
                    if not node.pipe.declares:
                        out.append(text(value))
                elif node.kind == "range":
                    self._range(node, dot, scope, out)
                else:
                    self._branch(node, dot, scope, out)

    def _branch(self, node: Node, dot: Any, scope: list[tuple[str, Any]], out: list[str]) -> None:
        mark = len(scope)
        assert node.pipe is not None
        value = self._pipe(node.pipe, dot, scope)
        if truth(value):
            self._run(node.body, value if node.kind == "with" else dot, scope, out)
        else:
            self._run(node.otherwise, dot, scope, out)
        del scope[mark:]

    def _range(self, node: Node, dot: Any, scope: list[tuple[str, Any]], out: list[str]) -> None:
        assert node.pipe is not None
        names = node.pipe.declares
        value = self._pipe(Pipe(node.pipe.commands), dot, scope)
        items: list[tuple[Any, Any]]
        if isinstance(value, dict):
            items = [(key, value[key]) for key in sorted(value)]
        elif isinstance(value, list | tuple):
            items = list(enumerate(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            items = [(number, number) for number in range(value)]
        elif value is None or value is MISSING:
            items = []
        else:
            raise TemplateError(f"range can't iterate over {text(value)}")
        if not items:
            self._run(node.otherwise, dot, scope, out)
        for key, item in items:
            mark = len(scope)
            bound = (item,) if len(names) == 1 else (key, item)
            scope.extend(zip(names, bound, strict=False))
            try:
                self._run(node.body, item, scope, out)
            except _Break:
                break
            except _Continue:
                pass
            finally:
                del scope[mark:]

    def _pipe(self, pipe: Pipe, dot: Any, scope: list[tuple[str, Any]]) -> Any:
        value: Any = _NOTHING
        for command in pipe.commands:
            value = self._command(command, dot, scope, value)
        for name in pipe.declares:
            if pipe.assigns:
                scope[self._find(scope, name)] = (name, value)
            else:
                scope.append((name, value))
        return value

    def _command(self, command: list[Operand], dot: Any, scope: list[tuple[str, Any]], piped: Any) -> Any:
        head, rest = command[0], command[1:]
        if head.kind == "word":
            return self._call(FUNCTIONS[head.value], head, rest, dot, scope, piped)
        if rest or piped is not _NOTHING:
            raise self._located(head, f"can't give argument to non-function {head.source}")
        if head.kind == "nil":
            raise self._located(head, "nil is not a command")
        return self._value(head, dot, scope)

    def _call(
        self,
        function: Function,
        head: Operand,
        rest: Sequence[Operand],
        dot: Any,
        scope: list[tuple[str, Any]],
        piped: Any,
    ) -> Any:
        if function.name in ("and", "or"):
            return self._short_circuit(function.name, head, rest, dot, scope, piped)
        arguments = [self._value(operand, dot, scope) for operand in rest]
        if piped is not _NOTHING:
            arguments.append(piped)
        try:
            return function(arguments)
        except TemplateError as error:
            raise self._located(head, str(error)) from None
        except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, re.error) as error:
            raise self._located(head, f"error calling {function.name}: {error}") from None

    def _short_circuit(
        self,
        name: str,
        head: Operand,
        rest: Sequence[Operand],
        dot: Any,
        scope: list[tuple[str, Any]],
        piped: Any,
    ) -> Any:
        if not rest and piped is _NOTHING:
            raise self._located(head, f"wrong number of args for {name}: want at least 1 got 0")
        value: Any = None
        for operand in rest:
            value = self._value(operand, dot, scope)
            if truth(value) == (name == "or"):
                return value
        return value if piped is _NOTHING else piped

    def _value(self, operand: Operand, dot: Any, scope: list[tuple[str, Any]]) -> Any:
        if operand.kind in ("literal", "nil"):
            return operand.value
        if operand.kind == "word":
            return self._call(FUNCTIONS[operand.value], operand, (), dot, scope, _NOTHING)
        if operand.kind == "pipe":
            value = self._pipe(operand.value, dot, scope)
        elif operand.kind == "variable":
            value = scope[self._find(scope, operand.value, operand)][1]
        else:
            value = dot
        for name in operand.fields:
            value = self._field(operand, value, name)
        return value

    def _field(self, operand: Operand, receiver: Any, name: str) -> Any:
        if receiver is MISSING:
            if self._missing == "error":
                raise self._located(operand, f'nil data; no entry for key "{name}"')
            return MISSING
        if receiver is None:
            raise self._located(operand, f"nil pointer evaluating interface {{}}.{name}")
        if not isinstance(receiver, dict):
            raise self._located(operand, f"can't evaluate field {name} in type {type_name(receiver)}")
        if name in receiver:
            return receiver[name]
        if self._missing == "error":
            raise self._located(operand, f'map has no entry for key "{name}"')
        if self._missing == "zero":
            return "" if isinstance(receiver, StringMap) else None
        return MISSING

    def _find(self, scope: list[tuple[str, Any]], name: str, operand: Operand | None = None) -> int:
        for position in range(len(scope) - 1, -1, -1):
            if scope[position][0] == name:
                return position
        raise TemplateError(f'template: :{self._place(operand)}: undefined variable "{name}"')

    def _place(self, operand: Operand | None) -> str:
        offset = operand.offset if operand else 0
        line = self._source.count("\n", 0, offset) + 1
        return f"{line}:{offset - (self._source.rfind(chr(10), 0, offset) + 1)}"

    def _located(self, operand: Operand, message: str) -> TemplateError:
        return TemplateError(f'template: :{self._place(operand)}: executing "" at <{operand.source}>: {message}')


def _chains(nodes: Sequence[Node]) -> list[str | list[str]] | None:
    """Text and `{{ .a.b }}` alone, which most templates are: the text, and the names to follow."""
    found: list[str | list[str]] = []
    for node in nodes:
        if node.kind == "text":
            found.append(node.text)
            continue
        commands = node.pipe.commands if node.kind == "action" and node.pipe and not node.pipe.declares else []
        if len(commands) != 1 or len(commands[0]) != 1 or commands[0][0].kind != "field":
            return None
        found.append(commands[0][0].fields)
    return found


def _filled(chains: Sequence[str | list[str]], data: Any) -> str | None:
    """None as soon as something is not there, or is no text: Go has rules for that."""
    out: list[str] = []
    for part in chains:
        value: Any = part
        if not isinstance(part, str):
            value = data
            for name in part:
                if not isinstance(value, dict) or name not in value:
                    return None
                value = value[name]
            if type(value) is not str:
                return None
        out.append(value)
    return "".join(out)


@lru_cache(maxsize=4096)
def _compiled(source: str, options: tuple[str, ...]) -> Template:
    return Template(source, options)


def render(source: str, data: Any, options: Iterable[str] = ()) -> str:
    """Text without an action is itself; errors say which template failed, as Argo CD's do."""
    if "{{" not in source:
        return source
    try:
        return _compiled(source, tuple(options)).execute(data)
    except RecursionError:
        raise TemplateError(f"failed to execute go template {source}: nested too deeply") from None
    except TemplateError as error:
        raise TemplateError(f"failed to execute go template {source}: {error}") from None
