"""Applies a root with the real Terraform, in the root's own directory, its state in the target account's bucket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from regional.cloud.aws import ACCESS_ROLE
from regional.core import paths
from regional.core.files import write_json
from regional.core.problems import UserError
from regional.local.provisioner.authority import Authority, PrivateCa
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import CommonInputs, ManagementInputs
from regional.local.provisioner.outputs import bucket_name, ensure_bucket, state_key
from regional.local.provisioner.root_table import Root, target_account

log = logging.getLogger(__name__)


class TerraformEngine:
    def __init__(self, context: Context, program: str = "terraform") -> None:
        self._context = context
        self._program = program
        if shutil.which(program) is None:
            raise UserError("terraform is not on PATH", "install Terraform 1.11 or later, or use PROVISIONER=local")

    def signing(self, inputs: CommonInputs, ca_certificate: str) -> CloudSigning:
        return CloudSigning(self._context, inputs, ca_certificate)

    async def apply(self, root: Root, inputs: CommonInputs) -> dict[str, Any]:
        account = target_account(root, inputs)
        bucket = bucket_name(account, inputs.region)
        door = self._context.account(account, inputs.region)
        await asyncio.to_thread(ensure_bucket, door, bucket)
        directory = self._work_directory(root, inputs)
        with tempfile.TemporaryDirectory(prefix="terraform-") as scratch:
            variables = Path(scratch) / "inputs.tfvars.json"
            write_json(variables, msgspec.to_builtins(inputs))
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("TF_VAR_")},
                **self._context.central.environment(),
                "TF_DATA_DIR": str(Path(scratch) / "data"),
                "TF_IN_AUTOMATION": "1",
            }
            file = Path(scratch) / "backend.tfbackend"
            file.write_text(backend_configuration(root, inputs))
            await self._run(directory, environment, "init", "-input=false", f"-backend-config={file}")
            verb = "destroy" if inputs.delete else "apply"
            await self._run(directory, environment, verb, "-input=false", "-auto-approve", f"-var-file={variables}")
            if inputs.delete:
                return {}
            shown = await self._run(directory, environment, "output", "-json")
        return {name: entry["value"] for name, entry in json.loads(shown).items()}

    def _work_directory(self, root: Root, inputs: CommonInputs) -> Path:
        """A copy, so that what Terraform leaves beside its files never lands in the checkout."""
        copy = self._context.paths.pipelines / "terraform" / state_key(root.name, inputs, "")
        saved = copy / "config" / root.name / "errored.tfstate"
        if saved.exists():
            raise UserError(
                f"an earlier apply could not store its state; it is in {saved}",
                f"run `terraform state push {saved.name}` there, remove the file, and run again",
            )
        shutil.copytree(paths.checkout() / "terraform", copy, dirs_exist_ok=True)
        return copy / "config" / root.name

    async def _run(self, directory: Path, environment: dict[str, str], *arguments: str) -> str:
        log.info("terraform", extra={"command": arguments[0], "directory": directory.name})
        process = await asyncio.create_subprocess_exec(
            self._program,
            f"-chdir={directory}",
            *arguments,
            *(() if arguments[0] == "output" else ("-no-color",)),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if arguments[0] == "output" else None,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise UserError(f"terraform {arguments[0]} failed in {directory.name} with code {process.returncode}")
        return (output or b"").decode()


def backend_configuration(root: Root, inputs: CommonInputs) -> str:
    account = target_account(root, inputs)
    values = {
        "bucket": bucket_name(account, inputs.region),
        "key": state_key(root.name, inputs, ".tfstate"),
        "region": inputs.region,
    }
    role = f"arn:aws:iam::{account}:role/{ACCESS_ROLE}"
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([*lines, f"assume_role = {{ role_arn = {json.dumps(role)} }}"]) + "\n"


class CloudSigning:
    def __init__(self, context: Context, inputs: CommonInputs, ca_certificate: str) -> None:
        account = inputs.regional_aws_account_id if isinstance(inputs, ManagementInputs) else inputs.account_id
        client = context.account(account, inputs.region).client("acm-pca")
        self._authority = PrivateCa(client, ca_certificate)

    def authority(self, common_name: str) -> Authority:
        return self._authority

    def broker_trust(self) -> str:
        return amazon_root()


def amazon_root() -> str:
    """Amazon Root CA 1, which signs IoT's endpoints, out of botocore's bundle of public authorities."""
    import botocore

    bundle = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bundle.load_verify_locations(Path(botocore.__file__).with_name("cacert.pem"))
    for described, binary in zip(bundle.get_ca_certs(), bundle.get_ca_certs(binary_form=True), strict=True):
        if (("commonName", "Amazon Root CA 1"),) in described["subject"]:
            return ssl.DER_cert_to_PEM_cert(binary)
    raise UserError("Amazon Root CA 1 is not in botocore's bundle", "install another release of botocore")
