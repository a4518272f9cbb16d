"""Applies a root on this machine: its parts run under the region's supervisor, its records lie in the AWS host."""

from __future__ import annotations

from typing import Any

import msgspec

from regional.core.problems import UserError
from regional.local.provisioner.authority import Authority
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import CommonInputs
from regional.local.provisioner.root_table import Root


class LocalEngine:
    def __init__(self, context: Context) -> None:
        self._context = context

    def signing(self, inputs: CommonInputs, ca_certificate: str) -> LocalSigning:
        return LocalSigning(self._context)

    async def apply(self, root: Root, inputs: CommonInputs) -> dict[str, Any]:
        if inputs.delete:
            raise UserError(
                f"{inputs.region_alias}/{inputs.alias} is marked for deletion",
                "on one machine a region is removed as a whole: `regionctl down --purge`",
            )
        outputs = await root.apply(inputs, self._context)
        result: dict[str, Any] = msgspec.to_builtins(outputs)
        return result


class LocalSigning:
    def __init__(self, context: Context) -> None:
        self._authorities = context.authorities
        if not self._authorities.agents.exists:
            raise UserError("the region has no certificate authority yet", "provision certificate-authority first")

    def authority(self, common_name: str) -> Authority:
        return self._authorities.signer_of(common_name)

    def broker_trust(self) -> str:
        return self._authorities.agents.certificate
