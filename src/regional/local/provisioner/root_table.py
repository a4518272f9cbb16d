"""Which roots there are, what goes in and comes out, and whose outputs fill whose variables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import CommonInputs, ManagementInputs, RegionalInputs
from regional.local.provisioner.roots import (
    api_gateway,
    broker,
    certificate_authority,
    database,
    maestro_agent_iot_management,
    maestro_agent_iot_regional,
    management_cluster,
    network,
    regional_cluster,
)

Apply = Callable[[Any, Context], Awaitable[msgspec.Struct]]


class Root(msgspec.Struct, frozen=True):
    name: str
    inputs: type[CommonInputs]
    outputs: type[msgspec.Struct]
    apply: Apply
    earlier: tuple[str, ...] = ()  # roots whose outputs fill its variables

    @property
    def about_region(self) -> bool:
        return issubclass(self.inputs, RegionalInputs)

    @property
    def in_regional_account(self) -> bool:
        return self.about_region or self.name == "maestro-agent-iot-regional"


def _root(name: str, module: Any, *earlier: str) -> Root:
    return Root(name, module.Inputs, module.Outputs, module.apply, earlier)


ROOTS: dict[str, Root] = {
    root.name: root
    for root in (
        _root("network", network),
        _root("database", database, "network"),
        _root("certificate-authority", certificate_authority),
        _root("broker", broker, "certificate-authority"),
        _root("api-gateway", api_gateway, "network"),
        _root("regional-cluster", regional_cluster, "network", "database", "broker", "api-gateway"),
        _root("maestro-agent-iot-regional", maestro_agent_iot_regional, "certificate-authority"),
        _root("maestro-agent-iot-management", maestro_agent_iot_management),
        _root("management-cluster", management_cluster, "maestro-agent-iot-management"),
    )
}


def target_account(root: Root, inputs: CommonInputs) -> str:
    if isinstance(inputs, ManagementInputs) and root.in_regional_account:
        return inputs.regional_aws_account_id
    return inputs.account_id
