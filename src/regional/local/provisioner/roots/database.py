"""The region's PostgreSQL: one server on this machine, a database and a user each for Maestro and for CLM.

Passwords live in Secrets Manager only. A secret that exists is the truth, and the database is set to it again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

import asyncpg
import msgspec

from regional.cloud.aws import Aws
from regional.cloud.secrets import get_secret, put_secret
from regional.local.provisioner import records
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs
from regional.local.provisioner.postgres import PORT, Server, ensure_database, lay_out
from regional.local.supervisor_client import ServiceSpec

log = logging.getLogger(__name__)

SERVICES = ("clm", "maestro")


class Inputs(RegionalInputs, kw_only=True, frozen=True):
    vpc_id: str
    private_subnet_ids: list[str]
    engine_version: str = "18.1"
    instance_class: str = "db.t4g.micro"
    multi_az: bool = False
    deletion_protection: bool = True


class Outputs(msgspec.Struct, kw_only=True):
    database_identifiers: list[str]
    database_security_group_id: str
    maestro_db_secret_arn: str
    clm_db_secret_arn: str


class Credentials(msgspec.Struct):
    host: str
    port: int
    dbname: str
    username: str
    password: str


async def apply(inputs: Inputs, context: Context) -> Outputs:
    aws = context.account(inputs.account_id, inputs.region)
    address = context.database_address()
    server = Server.at(context.paths.postgres, address)
    passwords, outputs = (
        await asyncio.gather(asyncio.to_thread(_record, aws, inputs, address), _run(context, server))
    )[0]
    for service in SERVICES:
        await _when_open(server, service, passwords[service])
    return outputs


async def _run(context: Context, server: Server) -> None:
    await lay_out(server)
    await context.supervisor.ensure(service_spec(server), timeout=60)
    log.info("PostgreSQL runs", extra={"address": f"{server.address}:{PORT}"})


def service_spec(server: Server) -> ServiceSpec:
    return ServiceSpec(
        name="postgres",
        description="PostgreSQL, the region's database server",
        kind="exec",
        argv=server.argv,
        env={"CONFIGURATION_DIGEST": server.digest()},
        user=server.user,
        cwd="/",
        address=f"{server.address}:{PORT}",
        ready=f"postgres:{server.address}:{PORT}",
        stop_signal="INT",  # fast shutdown: ends sessions, writes a checkpoint
        stop_grace=10.0,
    )


async def _when_open(server: Server, service: str, password: str) -> None:
    """The port opens before recovery after a crash is over."""
    for _ in range(600):
        try:
            return await ensure_database(server, service, password)
        except (asyncpg.CannotConnectNowError, ConnectionError):
            await asyncio.sleep(0.1)
    return await ensure_database(server, service, password)


def _record(aws: Aws, inputs: Inputs, address: str) -> tuple[dict[str, str], Outputs]:
    passwords = {}
    for service in SERVICES:
        passwords[service] = _credentials(aws, service, address)
        records.ensure_database_instance(
            aws,
            f"{inputs.name}-{service}",
            service,
            {
                "EngineVersion": inputs.engine_version,
                "DBInstanceClass": inputs.instance_class,
                "MultiAZ": inputs.multi_az,
                "DeletionProtection": inputs.deletion_protection,
                # RDS wants a password for the record; the real one is in the secret and in the server alone.
                "MasterUserPassword": secrets.token_urlsafe(16),
            },
            inputs.tags,
        )
    group = records.ensure_security_group(
        aws, inputs.vpc_id, f"{inputs.name}-database", f"Databases of {inputs.name}", inputs.tags
    )
    arns = {s: str(aws.client("secretsmanager").describe_secret(SecretId=secret_name(s))["ARN"]) for s in SERVICES}
    return passwords, Outputs(
        database_identifiers=[f"{inputs.name}-{service}" for service in SERVICES],
        database_security_group_id=group,
        maestro_db_secret_arn=arns["maestro"],
        clm_db_secret_arn=arns["clm"],
    )


def secret_name(service: str) -> str:
    return f"{service}/db-credentials"


def _credentials(aws: Aws, service: str, address: str) -> str:
    """The service's password, kept if there is one. The secret is written before the database learns of it."""
    stored = get_secret(aws, secret_name(service))
    password = (
        msgspec.json.decode(stored, type=Credentials).password if stored is not None else secrets.token_urlsafe(24)
    )
    wanted = Credentials(address, PORT, service, service, password)
    if put_secret(aws, secret_name(service), msgspec.to_builtins(wanted)):
        log.info("database credentials stored", extra={"secret": secret_name(service)})
    return password
