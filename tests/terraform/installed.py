"""Is Terraform here, and a copy of the AWS provider? Users need neither; a test that does says what is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

_PROVIDER = "registry.terraform.io/hashicorp/aws"


def _candidates() -> Iterator[Path]:
    for name in ("TF_PLUGIN_DIR", "TF_PLUGIN_CACHE_DIR"):
        if value := os.environ.get(name):
            yield Path(value)
    yield Path.home() / ".terraform.d" / "plugins"
    for place in ("/usr/share/terraform", "/usr/local/share/terraform", "/opt"):
        if Path(place).is_dir():
            yield from sorted(Path(place).iterdir())


def terraform_environment() -> dict[str, str]:
    """Variables with which `terraform init` works offline; skips the test if it cannot."""
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed on this machine")
    plugins = next((place for place in _candidates() if (place / _PROVIDER).is_dir()), None)
    if plugins is None:
        pytest.skip("terraform is installed, but no directory has the AWS provider (set TF_PLUGIN_DIR)")
    environment = {**os.environ, "TF_CLI_ARGS_init": f"-plugin-dir={plugins}", "CHECKPOINT_DISABLE": "1"}
    if not Path(environment.get("TF_CLI_CONFIG_FILE", os.devnull)).exists():
        del environment["TF_CLI_CONFIG_FILE"]
    return environment
