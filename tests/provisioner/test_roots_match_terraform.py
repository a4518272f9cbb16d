"""The artefact is the interface: a root takes the same variables and gives the same outputs with both engines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from regional.core.paths import checkout
from regional.local.provisioner.inputs import variables
from regional.local.provisioner.root_table import ROOTS

CONFIG = checkout() / "terraform" / "config"
_TYPES: dict[str, object] = {"string": str, "number": int, "bool": bool, "list(string)": list[str], "any": Any}


def _blocks(file: Path, kind: str) -> dict[str, str]:
    """Name to body of every `kind "name" {…}` block; our files close each with a brace in the first column."""
    return dict(re.findall(rf'^{kind} "([^"]+)" {{\n(.*?)^}}', file.read_text(), re.M | re.S))


def _attribute(body: str, name: str) -> str | None:
    found = re.search(rf"^  {name}\s+= (.+)$", body, re.M)
    return found.group(1) if found else None


def _below_deploy(file: Path) -> str:
    return str(file.relative_to(checkout() / "deploy"))


def test_every_root_is_known_to_both() -> None:
    assert {path.name for path in CONFIG.iterdir() if path.is_dir()} == set(ROOTS)


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_accepts_exactly_terraforms_variables(name: str) -> None:
    declared = _blocks(CONFIG / name / "variables.tf", "variable")
    accepted = variables(ROOTS[name].inputs)
    assert set(accepted) == set(declared)
    for variable, body in declared.items():
        default = _attribute(body, "default")
        assert accepted[variable].required == (default is None), variable
        if default is not None:
            field = accepted[variable]
            ours = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            assert ours == json.loads(default), variable
        wanted = _TYPES[_attribute(body, "type") or "any"]
        given = accepted[variable].type
        assert getattr(given, "__origin__", given) in (wanted, getattr(wanted, "__origin__", wanted)), variable


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_puts_out_exactly_terraforms_outputs(name: str) -> None:
    declared = _blocks(CONFIG / name / "outputs.tf", "output")
    assert {field.encode_name for field in msgspec.structs.fields(ROOTS[name].outputs)} == set(declared)


@pytest.mark.parametrize("name", ROOTS)
def test_what_an_earlier_root_puts_out_fills_what_it_does_not_get_from_config(name: str) -> None:
    root = ROOTS[name]
    rendered = set(variables(root.inputs.__mro__[1]))
    minted = {"server_certificate_pem", "certificate_pem"}
    offered = {f.encode_name for earlier in root.earlier for f in msgspec.structs.fields(ROOTS[earlier].outputs)}
    needed = {name for name, field in variables(root.inputs).items() if field.required}
    assert needed - rendered - minted <= offered


@pytest.mark.parametrize("file", sorted((checkout() / "deploy").glob("*/*/terraform/**/*.json")), ids=_below_deploy)
def test_every_key_of_a_rendered_file_is_a_variable(file: Path) -> None:
    names = (
        ("network", "database", "certificate-authority", "broker", "api-gateway", "regional-cluster")
        if file.name == "regional.json"
        else ("maestro-agent-iot-regional", "maestro-agent-iot-management", "management-cluster")
    )
    keys = set(json.loads(file.read_text()))
    for name in names:
        assert keys <= set(_blocks(CONFIG / name / "variables.tf", "variable")), name
