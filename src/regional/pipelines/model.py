"""Tekton's v1 objects, as far as we use them. A field that is not here is refused by `catalog`, never ignored."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

API_VERSION = "tekton.dev/v1"
Value = str | list[str]


class _Base(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    pass


class Metadata(_Base):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ParamSpec(_Base):
    name: str
    type: Literal["string", "array"] = "string"
    description: str = ""
    default: Value | None = None

    @property
    def is_array(self) -> bool:
        return self.type == "array" or isinstance(self.default, list)


class Param(_Base):
    name: str
    value: Value


class TaskResult(_Base):
    name: str
    type: Literal["string"] = "string"
    description: str = ""


class WorkspaceDeclaration(_Base):
    """Of a Task (a directory its steps see) or of a Pipeline (a directory its run must be given)."""

    name: str
    description: str = ""
    optional: bool = False
    read_only: bool = False


class EnvVar(_Base):
    name: str
    value: str = ""


class Step(_Base):
    name: str
    image: str
    command: list[str]
    args: list[str] = []
    env: list[EnvVar] = []
    working_dir: str = ""
    on_error: Literal["stopAndFail", "continue"] = "stopAndFail"
    # A process on this machine has no container limits; these matter on a cluster and are passed by here.
    compute_resources: Any = None
    security_context: Any = None
    image_pull_policy: str = ""


class TaskSpec(_Base):
    steps: list[Step]
    display_name: str = ""
    description: str = ""
    params: list[ParamSpec] = []
    results: list[TaskResult] = []
    workspaces: list[WorkspaceDeclaration] = []


class Task(_Base):
    api_version: str
    kind: Literal["Task"]
    metadata: Metadata
    spec: TaskSpec


class TaskRef(_Base):
    name: str
    kind: Literal["Task"] = "Task"


class When(_Base):
    input: str
    operator: Literal["in", "notin"]
    values: list[str]


class Matrix(_Base):
    params: list[Param]


class WorkspaceUse(_Base):
    name: str
    workspace: str = ""


class PipelineTask(_Base):
    name: str
    task_ref: TaskRef
    display_name: str = ""
    params: list[Param] = []
    run_after: list[str] = []
    when: list[When] = []
    matrix: Matrix | None = None
    retries: int = 0
    timeout: str = ""
    workspaces: list[WorkspaceUse] = []


class PipelineResult(_Base):
    name: str
    value: str
    type: Literal["string"] = "string"
    description: str = ""


class PipelineSpec(_Base):
    tasks: list[PipelineTask]
    display_name: str = ""
    description: str = ""
    params: list[ParamSpec] = []
    workspaces: list[WorkspaceDeclaration] = []
    results: list[PipelineResult] = []
    finally_: list[PipelineTask] = msgspec.field(default_factory=list, name="finally")


class Pipeline(_Base):
    api_version: str
    kind: Literal["Pipeline"]
    metadata: Metadata
    spec: PipelineSpec


class PipelineRef(_Base):
    name: str


class Timeouts(_Base):
    pipeline: str = ""


class PipelineRunSpec(_Base):
    pipeline_ref: PipelineRef
    params: list[Param] = []
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    # How a cluster binds directories and pods; here the caller gives the directories.
    workspaces: list[Any] = []
    task_run_template: Any = None


class PipelineRun(_Base):
    api_version: str
    kind: Literal["PipelineRun"]
    metadata: Metadata
    spec: PipelineRunSpec


KINDS: dict[str, type[Task] | type[Pipeline] | type[PipelineRun]] = {
    "Task": Task,
    "Pipeline": Pipeline,
    "PipelineRun": PipelineRun,
}
