"""What a cluster on this machine is made of before it runs: its certificates, kubeconfigs and flags.

Nothing is made twice, and nothing that a killed run left half made is kept (`kube.keys`).
"""

from __future__ import annotations

import base64
import ipaddress
from pathlib import Path

from regional.kube.keys import API_NAMES, KeyFiles
from regional.local.addresses import API_PORT, Block


class ClusterDirectory:
    """<cluster>/pki, admin.kubeconfig, node.kubeconfig and data/, for the cluster at `block`."""

    def __init__(self, directory: Path, name: str, block: Block) -> None:
        self.directory = directory
        self.name = name
        self.block = block

    @property
    def certificates(self) -> Path:
        return self.directory / "pki"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def node_name(self) -> str:
        return f"{self.name}-node-1"

    @property
    def endpoint(self) -> str:
        return f"https://{self.block.api}:{API_PORT}"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def node_kubeconfig(self) -> Path:
        return self.directory / "node.kubeconfig"

    @property
    def aws_credentials(self) -> Path:
        return self.directory / "aws-credentials.json"

    def authority_data(self) -> str:
        return base64.b64encode((self.certificates / "ca.crt").read_bytes()).decode()

    def ensure(self) -> None:
        for directory in (self.directory, self.certificates, self.data):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o700)
        block, service = self.block, str(next(ipaddress.ip_network(self.block.service_cidr).hosts()))
        keys = KeyFiles(self.certificates, self.name)
        authority = keys.authority("ca", f"{self.name}-ca")
        keys.server("apiserver", authority, "kube-apiserver", names=API_NAMES, addresses=[block.api, service])
        node = f"system:node:{self.node_name}"
        keys.server(
            "kubelet",
            authority,
            node,
            organizations=["system:nodes"],
            names=[self.node_name],
            addresses=[block.node],
        )
        keys.client("kubelet-client", authority, "kube-apiserver-kubelet-client", ["system:masters"])
        keys.token_key()
        keys.kubeconfig(self.admin_kubeconfig, self.endpoint, authority, "admin", ["system:masters"])
        keys.kubeconfig(self.node_kubeconfig, self.endpoint, authority, node, ["system:nodes"])
