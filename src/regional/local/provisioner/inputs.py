"""What goes into the roots: the keys of the rendered files, as Terraform's variables.tf declare them.

Field for variable, default for default; a test compares them. Unknown keys of a rendered file are reported and left
alone, as Terraform does; unknown `--var`s are an error.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

AccountId = Annotated[str, msgspec.Meta(pattern="^[0-9]{12}$")]
# A DNS label that can neither pass for a replica of Maestro's server nor for another agent at the broker.
ClusterId = Annotated[
    str, msgspec.Meta(pattern=r"^(?!maestro-server)(?!.*-work-agent-client$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
]
Slug = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class CommonInputs(msgspec.Struct, kw_only=True, frozen=True):
    generated: Any = msgspec.field(default=None, name="_generated")
    account_id: AccountId
    region: Slug
    alias: Slug
    region_alias: Slug
    environment: Slug
    app_code: str
    service_phase: str
    cost_center: str
    delete: bool = False

    @property
    def region_id(self) -> str:
        """The region deployment, unique in an account: topics and client ids at the broker carry it."""
        return f"{self.environment}-{self.region_alias}"

    @property
    def tags(self) -> dict[str, str]:
        return {
            "environment": self.environment,
            "region_alias": self.region_alias,
            "app_code": self.app_code,
            "service_phase": self.service_phase,
            "cost_center": self.cost_center,
        }


class RegionalInputs(CommonInputs, kw_only=True, frozen=True):
    management_cluster_account_ids: list[str] = []

    @property
    def name(self) -> str:
        """Prefix of every name; the environment is in it because two environments may share a region's name."""
        return f"{self.environment}-{self.alias}"

    @property
    def authority_name(self) -> str:
        return f"{self.name} broker"


class ManagementInputs(CommonInputs, kw_only=True, frozen=True):
    cluster_id: ClusterId
    regional_aws_account_id: AccountId
    hosted_cluster_capacity: int = 100

    @property
    def name(self) -> str:
        return f"{self.environment}-{self.region_alias}-{self.cluster_id}"

    @property
    def handover_secret(self) -> str:
        return f"maestro/agent-handover/{self.cluster_id}"


def variables(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}
