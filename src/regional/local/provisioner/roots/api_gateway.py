"""The region's edge: here a process of ours that plays API Gateway, with a certificate of the region's own authority.

The way to the Platform API is a name of the Regional Cluster, which its node keeps in a hosts file, in the role of the
load balancer's name in the VPC: so the edge stands before there is a cluster, and follows when the Service moves. There
is no load balancer on one machine, hence no target group for the cluster to register its pods with.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path

import msgspec

from regional.cloud.aws import Aws
from regional.cloud.secrets import put_secret
from regional.core import pki
from regional.core.files import write_atomic
from regional.core.paths import RegionPaths
from regional.local.provisioner import edge, records
from regional.local.provisioner.authority import FileAuthority, lasts
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs
from regional.local.provisioner.roots.regional_cluster import DIRECTORY as REGIONAL_CLUSTER
from regional.local.supervisor_client import ServiceSpec

log = logging.getLogger(__name__)

PORT = 8443
SERVICE = "gateway"
CONFIG_SECRET = "platform-api/config"


class Inputs(RegionalInputs, kw_only=True, frozen=True):
    vpc_id: str
    private_subnet_ids: list[str]
    platform_api_port: int = 8000


class Outputs(msgspec.Struct, kw_only=True):
    invoke_url: str
    rest_api_id: str
    deployment_id: str
    api_target_group_arn: str
    api_security_group_id: str
    gateway_secret_arn: str
    platform_api_config_secret_arn: str


class EdgeFiles:
    """What lies in the region's directory about its edge."""

    def __init__(self, paths: RegionPaths) -> None:
        self.directory = paths.root / "gateway"
        self.certificate = self.directory / "tls.crt"
        self.key = self.directory / "tls.key"
        self.secret = self.directory / "gateway.secret"
        self.authority = self.directory / "ca.crt"
        self.trust = self.directory / "ca-bundle.crt"  # what callers' tools are pointed to
        self.authority_directory = paths.root / "pki" / "gateway"


async def apply(inputs: Inputs, context: Context) -> Outputs:
    aws = context.account(inputs.account_id, inputs.region)
    address = context.gateway_address()
    files = EdgeFiles(context.paths)
    recorded, secret = await asyncio.to_thread(_record, aws, inputs)
    digest = _write_files(files, address, secret, context.paths.region)
    upstream = f"http://platform-api.platform-api.svc:{inputs.platform_api_port}"
    spec = _service(files, address, upstream, digest, inputs.region, context)
    await context.supervisor.ensure(spec)
    log.info("gateway runs", extra={"address": spec.address})
    return Outputs(
        invoke_url=f"https://{spec.address}/{edge.STAGE}",
        rest_api_id="",  # nothing of API Gateway's own is here
        deployment_id="",
        api_target_group_arn="",
        **recorded,
    )


def _record(aws: Aws, inputs: Inputs) -> tuple[dict[str, str], str]:
    group = records.ensure_security_group(
        aws, inputs.vpc_id, f"{inputs.name}-api", f"Load balancer of the Platform API of {inputs.name}", inputs.tags
    )
    secret_place = records.ensure_secret_place(
        aws, edge.GATEWAY_SECRET, "Shared by the gateway and the Platform API", inputs.tags
    )
    config_place = records.ensure_secret_place(aws, CONFIG_SECRET, "Settings of the Platform API", inputs.tags)
    put_secret(aws, CONFIG_SECRET, {"privilegedAccounts": inputs.account_id})
    outputs = {
        "api_security_group_id": group,
        "gateway_secret_arn": secret_place,
        "platform_api_config_secret_arn": config_place,
    }
    return outputs, edge.gateway_secret(aws)


def _write_files(files: EdgeFiles, address: str, secret: str, region: str) -> str:
    """Everything the process reads; the digest of it makes a change start it again."""
    authority = FileAuthority(files.authority_directory, f"{region} gateway")
    if authority.ensure():
        log.info("certificate authority made", extra={"authority": authority.name})
    files.directory.mkdir(parents=True, exist_ok=True)
    files.directory.chmod(0o700)
    pair = _certificate(files, address, authority)
    texts = {
        files.authority: authority.certificate,
        files.trust: _public_authorities() + authority.certificate,
        files.key: pair.key,
        files.certificate: pair.certificate,
        files.secret: secret,
    }
    for file, text in texts.items():
        if not file.exists() or file.read_text() != text:
            write_atomic(file, text)
            log.info("gateway file written", extra={"file": file.name})
    return hashlib.sha256(pair.certificate.encode()).hexdigest()[:16]


def _certificate(files: EdgeFiles, address: str, authority: FileAuthority) -> pki.KeyPair:
    if files.certificate.exists() and files.key.exists():
        pair = pki.KeyPair(files.certificate.read_text(), files.key.read_text())
        if lasts(pair.certificate, address, authority.certificate) and pki.belong_together(pair):
            return pair
    return pki.issue(authority.pair(), address, addresses=[address], server=True, client=False)


def _public_authorities() -> str:
    """The machine's own, so that a shell whose tools trust our bundle can still reach the rest of the world."""
    for candidate in (ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt"):
        if candidate and Path(candidate).is_file():
            text = Path(candidate).read_text()
            return text if text.endswith("\n") else text + "\n"
    return ""


def _service(files: EdgeFiles, address: str, upstream: str, digest: str, region: str, context: Context) -> ServiceSpec:
    return ServiceSpec(
        name=SERVICE,
        description="the region's edge: TLS, AWS signatures",
        kind="fork",
        argv=[
            *("regionctl", "serve", "gateway"),
            *("--address", address, "--port", str(PORT)),
            *("--certificate", str(files.certificate), "--key", str(files.key)),
            *("--upstream", upstream),
            *("--aws-endpoint", context.central.endpoint),
            *("--lookup-token-file", str(context.paths.aws / "lookup-token")),
            *("--secret-file", str(files.secret)),
            *("--region", region),
        ],
        env={
            "HOSTS_FILE": str(context.paths.node(REGIONAL_CLUSTER) / "hosts"),
            "CONFIGURATION_DIGEST": digest,
        },
        address=f"{address}:{PORT}",
        ready=f"https://{address}:{PORT}/",
    )
