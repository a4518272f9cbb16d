"""Runs a task for one event: parameters, preconditions, resources, and always a report of what became of it.

A precondition that is not met, or a failure on the way, skips what follows but not the report: CLM must be able to say
why a resource is not there yet. Only what makes a report impossible (CLM itself does not answer, a parameter is
missing) is raised.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from regional.clm.adapter.expressions import ExpressionError
from regional.clm.adapter.task import ApiCall, Check, Param, ResourceRule, Task, seconds
from regional.clm.adapter.template import TemplateError
from regional.clm.adapter.transport import (
    MaestroTransport,
    TransportError,
    as_work,
    nested,
    read_work,
)
from regional.clm.client import ClmClient, ClmError, ClmUnreachable
from regional.maestro.client import MaestroError

Document = dict[str, Any]

_ENVIRONMENT = ("POD_NAME", "POD_IP")  # a task sees no more of the process' environment than this


class ResourceGone(Exception):
    """The resource that the event is about is not there any more: nothing to do."""


class TaskFailed(Exception):
    """No report could be made."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run did, for the log and for deciding whether to try again soon."""

    succeeded: bool
    operations: dict[str, str]
    skipped: str = ""
    error: str = ""


class _Halt(Exception):
    def __init__(self, phase: str, step: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.phase, self.step, self.reason, self.message = phase, step, reason, message


class Engine:
    def __init__(self, task: Task, clm: ClmClient, transport: MaestroTransport, config: Mapping[str, Any]) -> None:
        self._task = task
        self._clm = clm
        self._transport = transport
        self._config = dict(config)

    async def run(self, event: Document, request_id: str) -> Outcome:
        run = _Run(self._task, self._clm, self._transport, request_id)
        run.variables |= {
            "event": {**(event.get("data") or {}), "request_id": request_id},
            "config": self._config,
            "env": {name: os.environ.get(name, "") for name in _ENVIRONMENT},
        }
        return await run.whole()


class _Run:
    def __init__(self, task: Task, clm: ClmClient, transport: MaestroTransport, request_id: str) -> None:
        self._task = task
        self._document = task.document
        self._clm = clm
        self._transport = transport
        self._request_id = request_id
        self._operations: dict[str, str] = {}
        # Reports carry the time at which the run began to look, so that a slow run cannot overrule a later one.
        self._began = datetime.now(UTC).isoformat()
        self.variables: Document = {"resources": {}, "adapter": {"observedTime": self._began}}

    async def whole(self) -> Outcome:
        try:
            for param in self._document.params:
                self.variables[param.name] = self._param(param)
        except ExpressionError as error:
            raise TaskFailed(f"parameter: {error}") from None
        skipped, halt = "", None
        try:
            skipped = await self._preconditions()
            if not skipped:
                for rule in self._document.resources:
                    await self._resource(rule)
        except _Halt as found:
            halt = found
        self._explain(skipped, halt)
        await self._post()
        return Outcome(halt is None, self._operations, skipped, "" if halt is None else halt.message)

    def _explain(self, skipped: str, halt: _Halt | None) -> None:
        adapter: Document = {
            "observedTime": self._began,
            "executionStatus": "success" if halt is None else "failed",
            "resourcesSkipped": bool(skipped),
            "skipReason": skipped,
            "errorReason": "" if halt is None else halt.reason,
            "errorMessage": "" if halt is None else halt.message,
        }
        if halt is not None:
            adapter["executionError"] = {"phase": halt.phase, "step": halt.step, "message": halt.message}
        self.variables["adapter"] = adapter

    # -- parameters and preconditions --------------------------------------------------------------------------------

    def _param(self, param: Param) -> Any:
        if isinstance(param.source, str):
            value: Any = self.variables
            for step in param.source.split("."):
                value = value.get(step) if isinstance(value, dict) else None
        else:
            value = self._task.evaluate(param.source.expression, self.variables)
        if value is None:
            value = param.default
        if value is None and param.required:
            raise TaskFailed(f"parameter {param.name!r} ({param.source}) is missing")
        return _converted(value, param)

    async def _preconditions(self) -> str:
        """Why not to go on; "" if all are met."""
        for precondition in self._document.preconditions:
            name = precondition.name
            answer: Document = {}
            if precondition.when and not self._is("preconditions", name, precondition.when.expression):
                self.variables[name] = answer
                self.variables |= {capture.name: capture.default for capture in precondition.capture}
                continue
            if precondition.api_call is not None:
                answer = await self._call("preconditions", name, precondition.api_call)
                self.variables[name] = answer
            for capture in precondition.capture:
                if capture.field:
                    found = _at(answer, capture.field)
                else:
                    found = self._evaluate("preconditions", name, capture.expression)
                self.variables[capture.name] = capture.default if found is None else found
            if not all(_holds(check, _at(self.variables, check.field)) for check in precondition.conditions):
                return f"precondition '{name}' is not met"
            if precondition.expression and self._evaluate("preconditions", name, precondition.expression) is not True:
                return f"precondition '{name}' is not met"
        return ""

    # -- resources ---------------------------------------------------------------------------------------------------

    async def _resource(self, rule: ResourceRule) -> None:
        try:
            consumer = self._task.render(rule.transport.maestro.target_cluster, self.variables)
            name = self._task.render(rule.discovery.by_name, self.variables)
            existing = await self._transport.find(consumer, name)
            delete, create = rule.lifecycle.delete, rule.lifecycle.create
            if delete is not None and self._is("resources", rule.name, delete.when.expression):
                found = await self._transport.delete(consumer, name, existing, self._request_id)
            elif existing is None and create and not self._is("resources", rule.name, create.when.expression):
                self._operations[rule.name] = "waiting"
                return
            else:
                work = read_work(self._task.render(rule.manifest, self.variables))
                if work["metadata"].get("name") != name:
                    raise TransportError("InvalidManifest", f"the ManifestWork is not named {name!r}")
                found = await self._transport.apply(consumer, work, existing, self._request_id)
        except TemplateError as error:
            raise _Halt("resources", rule.name, "TemplateError", str(error)) from None
        except TransportError as error:
            raise _Halt("resources", rule.name, error.reason, str(error)) from None
        except MaestroError as error:
            raise _Halt("resources", rule.name, "MaestroError", str(error)) from None
        self._operations[rule.name] = found.operation
        if found.bundle is not None:
            self._show(rule, found.bundle)

    def _show(self, rule: ResourceRule, bundle: Document) -> None:
        self.variables["resources"][rule.name] = as_work(bundle)
        for inside in rule.nested_discoveries:
            found = nested(bundle, self._task.render(inside.discovery.by_name, self.variables))
            if found is not None:
                self.variables["resources"][inside.name] = found

    # -- the report --------------------------------------------------------------------------------------------------

    async def _post(self) -> None:
        try:
            for payload in self._document.post.payloads:
                self.variables[payload.name] = self._build(payload.build)
            for action in self._document.post.post_actions:
                if action.when is None or self._is("post", action.name, action.when.expression):
                    await self._call("post", action.name, action.api_call)
        except _Halt as halt:
            raise TaskFailed(f"{halt.phase} {halt.step}: {halt.message}") from None
        except (ExpressionError, TemplateError) as error:
            raise TaskFailed(f"post: {error}") from None

    def _build(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            if set(tree) == {"expression"}:
                return self._task.evaluate(tree["expression"], self.variables)
            return {key: self._build(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self._build(value) for value in tree]
        return self._task.render(tree, self.variables) if isinstance(tree, str) else tree

    # -- parts -------------------------------------------------------------------------------------------------------

    def _evaluate(self, phase: str, step: str, expression: str) -> Any:
        try:
            return self._task.evaluate(expression, self.variables)
        except ExpressionError as error:
            raise _Halt(phase, step, "ExpressionError", str(error)) from None

    def _is(self, phase: str, step: str, expression: str) -> bool:
        return self._evaluate(phase, step, expression) is True

    async def _call(self, phase: str, step: str, call: ApiCall) -> Document:
        """A call of CLM's API. Raises ClmUnreachable when it stays away, ResourceGone when there is nothing to do."""
        try:
            url = self._task.render(call.url, self.variables)
            body = self._task.render(call.body, self.variables)
        except TemplateError as error:
            raise _Halt(phase, step, "TemplateError", str(error)) from None
        content = msgspec.json.decode(body) if body else None
        limit = seconds(call.timeout)
        for attempt in range(1, call.retry_attempts + 2):
            try:
                return await self._clm.call(call.method, url, content, request_id=self._request_id, timeout=limit)
            except ClmUnreachable:
                if attempt > call.retry_attempts:
                    raise
                await asyncio.sleep(_pause(call, attempt))
            except ClmError as error:
                if error.not_found:
                    raise ResourceGone(error.detail) from None
                raise _Halt(phase, step, "ApiCallFailed", str(error)) from None
        raise AssertionError


def _pause(call: ApiCall, attempt: int) -> float:
    match call.retry_backoff:
        case "constant":
            return 0.2
        case "linear":
            return 0.2 * attempt
        case _:
            return float(min(5.0, 0.1 * 2**attempt))


def _converted(value: Any, param: Param) -> Any:
    if value is None or isinstance(value, dict | list):
        return value
    try:
        match param.type:
            case "int" | "int64":
                return int(value)
            case "float" | "float64":
                return float(value)
            case "bool":
                return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
            case _:
                return str(value)
    except (ValueError, KeyError):
        raise TaskFailed(f"parameter {param.name!r} is no {param.type}: {value!r}") from None


def _at(document: Any, path: str) -> Any:
    for step in path.split("."):
        document = document.get(step) if isinstance(document, dict) else None
    return document


def _holds(check: Check, value: Any) -> bool:
    match check.operator:
        case "exists":
            return value is not None
        case "notExists":
            return value is None
        case "equals":
            return bool(value == check.value)
        case "notEquals":
            return bool(value != check.value)
        case "in":
            return value in (check.values or check.value or [])
        case _:
            return value not in (check.values or check.value or [])
