"""Task files: what an adapter does for a kind of resource, declared in YAML.

The language is the part of HyperFleet's adapter DSL that our files use. Anything else in a file (another transport, an
unknown key, an expression that does not compile) is refused when the adapter starts, with the file, the line and the
path, because a part that is silently ignored would be found much later and far away.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from regional.clm.adapter.expressions import Environment, ExpressionError, Program
from regional.clm.adapter.template import Template, TemplateError
from regional.core.problems import UserError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
BUILT_IN = ("resources", "adapter", "env", "event", "config")
_TYPES = ("bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint")  # CEL's own


class _Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class ApiCall(_Part):
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    url: str
    timeout: str = "10s"
    retry_attempts: int = 3
    retry_backoff: Literal["exponential", "linear", "constant"] = "exponential"
    body: str = ""


class Source(_Part):
    expression: str


class Param(_Part):
    name: str
    source: str | Source
    type: Literal["string", "int", "int64", "float", "float64", "bool"] = "string"
    required: bool = False
    default: Any = None
    description: str = ""


class Capture(_Part):
    name: str
    field: str = ""
    expression: str = ""
    default: Any = None
    description: str = ""


class Check(_Part):
    field: str
    operator: Literal["equals", "notEquals", "in", "notIn", "exists", "notExists"]
    value: Any = None
    values: list[Any] | None = None


class When(_Part):
    expression: str


class Precondition(_Part):
    """With `when` (ours; HyperFleet has it for post actions only) it is asked only if that holds, and captures have
    their defaults otherwise."""

    name: str
    when: When | None = None
    api_call: ApiCall | None = None
    capture: list[Capture] = []
    conditions: list[Check] = []
    expression: str = ""


class Target(_Part):
    target_cluster: str


class Transport(_Part):
    client: Literal["maestro"]
    maestro: Target


class Discovery(_Part):
    by_name: str


class NestedDiscovery(_Part):
    name: str
    discovery: Discovery


class CreateRule(_Part):
    when: When


class DeleteRule(_Part):
    when: When
    propagationPolicy: Literal["Background", "Foreground", "Orphan"] = "Foreground"


class ResourceLifecycle(_Part):
    create: CreateRule | None = None
    delete: DeleteRule | None = None


class ResourceRule(_Part):
    name: str
    transport: Transport
    manifest: str
    discovery: Discovery
    nested_discoveries: list[NestedDiscovery] = []
    lifecycle: ResourceLifecycle = msgspec.field(default_factory=ResourceLifecycle)


class Payload(_Part):
    name: str
    build: dict[str, Any]


class PostAction(_Part):
    name: str
    api_call: ApiCall
    when: When | None = None


class Post(_Part):
    payloads: list[Payload] = []
    post_actions: list[PostAction] = []


class Document(_Part):
    params: list[Param] = []
    preconditions: list[Precondition] = []
    resources: list[ResourceRule] = []
    post: Post = msgspec.field(default_factory=Post)


class Task:
    """A checked file: every expression and template in it is compiled."""

    def __init__(self, document: Document, programs: dict[str, Program], templates: dict[str, Template]) -> None:
        self.document = document
        self._programs = programs
        self._templates = templates

    def evaluate(self, expression: str, variables: dict[str, Any]) -> Any:
        return self._programs[expression].evaluate(variables)

    def render(self, text: str, variables: dict[str, Any]) -> str:
        return self._templates[text].render(variables)


def seconds(duration: str) -> float:
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration!r} is no duration such as 500ms, 10s or 1m")
    return float(found[1]) * _UNITS[found[2]]


def load_task(file: Path) -> Task:
    """Raises UserError that says where the file is wrong."""
    try:
        text = file.read_text()
    except OSError as error:
        raise UserError(f"cannot read the task file {file}: {error.strerror}") from None
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        content = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise UserError(f"{file}: {error}") from None
    try:
        document = msgspec.convert(content, Document)
        return _compiled(document)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise UserError(_located(file, root, path.strip("`").removeprefix("$"), message)) from None
    except _Fault as fault:
        raise UserError(_located(file, root, fault.path, fault.message)) from None


class _Fault(Exception):
    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def _located(file: Path, root: Any, path: str, message: str) -> str:
    """`FILE:LINE: PATH: MESSAGE`; the line is that of the deepest part of the path that is there."""
    node, line = root, 1
    for key, index in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", path):
        if isinstance(node, yaml.MappingNode) and key:
            found = next((pair for pair in node.value if pair[0].value == key), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        else:
            break
    return f"{file}:{line}: {path.lstrip('.') or 'the file'}: {message}"


def _compiled(document: Document) -> Task:
    compiler = _Compiler(document)
    compiler.check()
    return Task(document, compiler.programs, compiler.templates)


class _Compiler:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._environment = Environment(_names(document))
        self.programs: dict[str, Program] = {}
        self.templates: dict[str, Template] = {}

    def check(self) -> None:
        document = self._document
        for index, param in enumerate(document.params):
            if isinstance(param.source, Source):
                self._expression(param.source.expression, f".params[{index}].source.expression")
            elif not re.fullmatch(r"(event|env|config)(\.\w+)+", param.source):
                raise _Fault(f".params[{index}].source", "a source is event.…, env.…, config.… or an expression")
        for index, precondition in enumerate(document.preconditions):
            self._precondition(precondition, f".preconditions[{index}]")
        for index, resource in enumerate(document.resources):
            self._resource(resource, f".resources[{index}]")
        for index, payload in enumerate(document.post.payloads):
            self._tree(payload.build, f".post.payloads[{index}].build")
        for index, action in enumerate(document.post.post_actions):
            path = f".post.post_actions[{index}]"
            self._when(action.when, path)
            self._call(action.api_call, f"{path}.api_call")

    def _precondition(self, precondition: Precondition, path: str) -> None:
        self._when(precondition.when, path)
        if precondition.api_call is not None:
            self._call(precondition.api_call, f"{path}.api_call")
        for index, capture in enumerate(precondition.capture):
            if bool(capture.field) == bool(capture.expression):
                raise _Fault(f"{path}.capture[{index}]", "a capture has either a field or an expression")
            if capture.expression:
                self._expression(capture.expression, f"{path}.capture[{index}].expression")
            elif precondition.api_call is None:
                raise _Fault(f"{path}.capture[{index}].field", "there is no api_call to capture a field from")
        if precondition.expression:
            self._expression(precondition.expression, f"{path}.expression")

    def _resource(self, resource: ResourceRule, path: str) -> None:
        self._template(resource.transport.maestro.target_cluster, f"{path}.transport.maestro.target_cluster")
        self._template(resource.manifest, f"{path}.manifest")
        self._template(resource.discovery.by_name, f"{path}.discovery.by_name")
        for index, nested in enumerate(resource.nested_discoveries):
            self._template(nested.discovery.by_name, f"{path}.nested_discoveries[{index}].discovery.by_name")
        if resource.lifecycle.create is not None:
            self._when(resource.lifecycle.create.when, f"{path}.lifecycle.create")
        if resource.lifecycle.delete is not None:
            self._when(resource.lifecycle.delete.when, f"{path}.lifecycle.delete")

    def _tree(self, tree: Any, path: str) -> None:
        if isinstance(tree, dict):
            if set(tree) == {"expression"}:
                self._expression(tree["expression"], f"{path}.expression")
                return
            for key, value in tree.items():
                self._tree(value, f"{path}.{key}")
        elif isinstance(tree, list):
            for index, value in enumerate(tree):
                self._tree(value, f"{path}[{index}]")
        elif isinstance(tree, str):
            self._template(tree, path)

    def _when(self, when: When | None, path: str) -> None:
        if when is not None:
            self._expression(when.expression, f"{path}.when.expression")

    def _call(self, call: ApiCall, path: str) -> None:
        self._template(call.url, f"{path}.url")
        self._template(call.body, f"{path}.body")
        try:
            seconds(call.timeout)
        except ValueError as error:
            raise _Fault(f"{path}.timeout", str(error)) from None
        if not 0 <= call.retry_attempts <= 10:
            raise _Fault(f"{path}.retry_attempts", "there are 0 to 10 attempts")

    def _expression(self, text: Any, path: str) -> None:
        if not isinstance(text, str):
            raise _Fault(path, "an expression is a text")
        try:
            self.programs[text] = self._environment.compile(text)
        except ExpressionError as error:
            raise _Fault(path, str(error)) from None

    def _template(self, text: str, path: str) -> None:
        try:
            self.templates[text] = Template(text)
        except TemplateError as error:
            raise _Fault(path, str(error)) from None


def _names(document: Document) -> list[str]:
    """Everything that an expression may refer to. A name given twice would hide the first."""
    names: list[tuple[str, str]] = [(param.name, f".params[{i}].name") for i, param in enumerate(document.params)]
    for i, precondition in enumerate(document.preconditions):
        if precondition.api_call is not None:
            names.append((precondition.name, f".preconditions[{i}].name"))
        names += [
            (found.name, f".preconditions[{i}].capture[{j}].name") for j, found in enumerate(precondition.capture)
        ]
    names += [(found.name, f".post.payloads[{i}].name") for i, found in enumerate(document.post.payloads)]
    seen = {*BUILT_IN, *_TYPES}
    for name, path in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise _Fault(path, f"{name!r} is no name that an expression could use")
        if name in seen:
            raise _Fault(path, f"the name {name!r} is taken")
        seen.add(name)
    return sorted(seen - {*_TYPES})
