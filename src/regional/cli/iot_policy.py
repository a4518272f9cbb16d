"""`regionctl maestro iot-policy`: what certificates may do at AWS IoT Core, as documents to be looked at or used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from regional.cli.output import region_option
from regional.core.problems import UserError


@click.command("iot-policy")
@click.argument("who", type=click.Choice(["server", "agent"]))
@region_option
@click.option("--environment", default="local", show_default=True, help="Environment of the declared region.")
@click.option("--account", help="Account that the broker is in, 12 digits; else as rendered, if it stands there.")
@click.option("--aws-region", help="Cloud region of the broker; else as rendered.")
@click.option("--partition", default="aws", show_default=True, help="aws, aws-cn or aws-us-gov.")
def iot_policy(
    who: str, region: str, environment: str, account: str | None, aws_region: str | None, partition: str
) -> int:
    """Print the AWS IoT policy of Maestro's server, or of agents, as provisioning attaches it to certificates.

    One document is for all agents of a region: IoT puts the name in a client's certificate into it. So a certificate
    opens its own client ids and topics and no others, and those of its region only.

    \b
    Examples:
      regionctl maestro iot-policy agent --environment integration --region us-east-1 --account 123456789012
      regionctl maestro iot-policy server --region local --account 123456789012 > server.json
      aws iot create-policy --policy-name maestro-server --policy-document file://server.json
    """
    from regional.core import paths
    from regional.local.provisioner import iot_records

    rendered = _rendered(paths.checkout() / "deploy" / environment / region / "terraform" / "regional.json")
    if account is not None and not re.fullmatch("[0-9]{12}", account):
        raise UserError(f"{account!r} is not an account: they have 12 digits", "--account 123456789012", 2)
    account = account or rendered.get("account_id", "")
    if not re.fullmatch("[0-9]{12}", account):
        raise UserError("which account is the broker in?", "say it: --account 123456789012", 2)
    aws_region = aws_region or rendered.get("region", "")
    if not aws_region:
        raise UserError(f"no region {region} is declared in {environment}", "say where: --aws-region us-east-1", 2)
    make = iot_records.server_policy if who == "server" else iot_records.agent_policy
    click.echo(json.dumps(make(aws_region, account, f"{environment}-{region}", partition), indent=2))
    return 0


def _rendered(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}
