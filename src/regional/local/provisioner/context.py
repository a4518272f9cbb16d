"""What a root needs around it: the region's directories, its supervisor, its addresses, and AWS accounts to act in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from regional.cloud.aws import Aws
from regional.core.paths import RegionPaths
from regional.local.addresses import Addresses
from regional.local.provisioner.mosquitto import Authorities
from regional.local.supervisor_client import SupervisorClient, socket_path

EngineName = Literal["local", "terraform"]
KubeName = Literal["embedded", "real"]

BROKER_ADDRESS, DATABASE_ADDRESS, GATEWAY_ADDRESS, REGION_BLOCK = 2, 1, 4, "region"


class Context:
    def __init__(
        self,
        paths: RegionPaths,
        central: Aws,
        *,
        supervisor: SupervisorClient | None = None,
        engine: EngineName = "local",
        kube: KubeName = "embedded",
        renew: bool = False,
        retire: bool = False,
    ) -> None:
        self.paths = paths
        self.central = central
        self.supervisor = supervisor or SupervisorClient.of(paths)
        self.addresses = Addresses(paths)
        self.engine = engine
        self.kube = kube
        self.renew = renew  # mint new certificates even if the present ones are good
        self.retire = retire  # withdraw an agent's former certificates
        self._accounts: dict[tuple[str, str], Aws] = {}

    def account(self, account_id: str, region: str) -> Aws:
        """That account's own door, through the role that Organizations makes in every account."""
        if (account_id, region) not in self._accounts:
            door = self.central.assume(account_id, session_name="provision")
            door.region = region
            self._accounts[account_id, region] = door
        return self._accounts[account_id, region]

    @property
    def authorities(self) -> Authorities:
        return Authorities(self.paths.root / "pki" / "broker", self.paths.region)

    @property
    def warm_socket(self) -> Path:
        return socket_path(self.paths).with_name("warm.sock")

    def database_address(self) -> str:
        return self.addresses.block(REGION_BLOCK).infra(DATABASE_ADDRESS)

    def broker_address(self) -> str:
        return self.addresses.block(REGION_BLOCK).infra(BROKER_ADDRESS)

    def gateway_address(self) -> str:
        return self.addresses.block(REGION_BLOCK).infra(GATEWAY_ADDRESS)

    def close(self) -> None:
        for door in self._accounts.values():
            door.close()
