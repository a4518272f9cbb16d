"""The roots as Terraform itself sees them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from regional.core.paths import checkout
from tests.terraform.installed import terraform_environment

TERRAFORM = checkout() / "terraform"
_VALUES = {"string": '"example"', "number": "1", "bool": "true", "list(string)": '["example"]', "any": '"example"'}
_SPECIAL = {"account_id": '"111111111111"', "regional_aws_account_id": '"222222222222"', "vpc_cidr": '"10.0.0.0/16"'}


def test_files_are_formatted() -> None:
    environment = terraform_environment()
    result = subprocess.run(
        ["terraform", "fmt", "-recursive", "-check", "-diff", str(TERRAFORM)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_all_roots_are_valid(tmp_path: Path) -> None:
    """All of them at once, each as a module of one configuration: starting the provider is what takes the time."""
    environment = terraform_environment()
    shutil.copytree(TERRAFORM, tmp_path / "terraform")
    (tmp_path / "main.tf").write_text("\n".join(_call(root) for root in sorted((TERRAFORM / "config").iterdir())))
    for command in (["init", "-backend=false", "-input=false"], ["validate", "-json"]):
        result = subprocess.run(
            ["terraform", *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(result.stdout)
    # A backend means something in a root only; here every root is a module.
    others = [d for d in found["diagnostics"] if d["summary"] != "Backend configuration ignored"]
    assert others == []


def _call(root: Path) -> str:
    declared = re.findall(r'^variable "([^"]+)" {.*?type\s+= (\S+)$', (root / "variables.tf").read_text(), re.M | re.S)
    arguments = "".join(f"  {name} = {_SPECIAL.get(name, _VALUES[kind])}\n" for name, kind in declared)
    return f'module "{root.name}" {{\n  source = "./terraform/config/{root.name}"\n{arguments}}}\n'
