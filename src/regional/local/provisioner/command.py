"""`regionctl provision`: what a pipeline's step runs.

    regionctl provision --root network --var-file deploy/local/local/terraform/regional.json
        [--var key=value …] [--result-file output=path …] [--renew | --retire]

The engine is chosen by PROVISIONER=local|terraform, the region of this machine by REGION, the control plane of its
clusters by KUBE=embedded|real.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regional.cloud.aws import Aws
from regional.core import loop
from regional.core.files import write_atomic
from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import variables
from regional.local.provisioner.provision import find_root, provision

log = logging.getLogger(__name__)


class Request(msgspec.Struct, kw_only=True):
    root: str
    region: str  # the region of this machine (its directory), not the AWS region
    var_files: list[Path]
    overrides: dict[str, str] = {}
    result_files: dict[str, Path] = {}  # output name to the file that gets it, as a Tekton task's results
    renew: bool = False
    retire: bool = False


def provision_command(request: Request, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Runs the request to its end; returns the outputs. Log lines say each real action."""
    environ = os.environ if environ is None else environ
    engine = environ.get("PROVISIONER", "local")
    if engine not in ("local", "terraform"):
        raise UserError(f"PROVISIONER is {engine!r}", "it is `local` or `terraform`")
    kube = environ.get("KUBE") or "embedded"
    if kube not in ("embedded", "real"):
        raise UserError(f"KUBE is {kube!r}", "it is `embedded` or `real`")
    inputs = read_inputs(request)
    missing = sorted(set(request.result_files) - {f.encode_name for f in _outputs(request.root)})
    if missing:
        raise UserError(f"{request.root} has no output {', '.join(missing)}")
    aws = Aws(environ=environ, region=environ.get("AWS_REGION", "") or str(inputs.get("region", "")))
    context = Context(
        RegionPaths(request.region),
        aws,
        engine="terraform" if engine == "terraform" else "local",
        kube="real" if kube == "real" else "embedded",
        renew=request.renew,
        retire=request.retire,
    )
    try:
        outputs = loop.run(provision(request.root, inputs, context))
    finally:
        context.close()
        aws.close()
    for name, file in request.result_files.items():
        write_atomic(file, as_result(outputs.get(name)), mode=0o644)
    return outputs


def read_inputs(request: Request) -> dict[str, Any]:
    """The var files, later over earlier, then the overrides, typed as the root's variables are."""
    known = variables(find_root(request.root).inputs)
    inputs: dict[str, Any] = {}
    for file in request.var_files:
        try:
            inputs |= msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}", "run `regionctl config render`") from None
        except msgspec.DecodeError as error:
            raise UserError(f"{file} is not a JSON object: {error}", "run `regionctl config render`") from None
    if unknown := sorted(set(request.overrides) - set(known)):
        raise UserError(f"{request.root} has no variable {', '.join(unknown)}", f"variables: {', '.join(known)}")
    for name, text in request.overrides.items():
        inputs[name] = text if _is_text(known[name]) else _decoded(name, text)
    return inputs


def parse_pairs(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """`key=value` arguments of a repeated flag."""
    parsed = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UserError(f"{flag} {pair}: expected key=value", exit_code=2)
        parsed[name] = value
    return parsed


def as_result(value: Any) -> str:
    """Tekton results are text; lists and maps are JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _outputs(root: str) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(find_root(root).outputs)


def _is_text(field: msgspec.structs.FieldInfo) -> bool:
    return isinstance(msgspec.inspect.type_info(field.type), msgspec.inspect.StrType)


def _decoded(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UserError(f"--var {name}: {error}", "lists and numbers are given as JSON") from None
