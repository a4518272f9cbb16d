"""Telling the region of what belongs to it, through its own API: accounts that may use it, clusters that host others.

Each is a request signed in the region's own account, which runs the region. Steps come here as soon as they can, so the
API may still be on its way up: for a while no answer means "ask again". What is registered already is left as it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from regional.cloud.aws import Aws
from regional.cloud.parameters import resolve_tree
from regional.core.problems import UserError
from regional.gateway.client import ApiClient, ApiError, ApiUnreachable
from regional.local.provisioner.inputs import CommonInputs, ManagementInputs, RegionalInputs, variables
from regional.local.provisioner.outputs import load_outputs

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0


def register_account(central: Aws, var_file: Path, account_id: str, *, privileged: bool) -> None:
    inputs = rendered_inputs(central, var_file, RegionalInputs)
    body = {"accountId": account_id, "privileged": privileged}
    with region_api(central, inputs, inputs.account_id) as api:
        _create(api, "/api/v0/accounts", body, f"account {account_id}")


def register_management_cluster(central: Aws, var_file: Path) -> None:
    inputs = rendered_inputs(central, var_file, ManagementInputs)
    assert isinstance(inputs, ManagementInputs)
    body = {
        "name": inputs.cluster_id,
        "labels": {"cluster_type": "management", "cluster_id": inputs.cluster_id},
        "region": inputs.region,
        "accountId": inputs.account_id,
        "capacity": inputs.hosted_cluster_capacity,
    }
    with region_api(central, inputs, inputs.regional_aws_account_id) as api:
        _create(api, "/api/v0/management_clusters", body, f"management cluster {inputs.cluster_id}")


def _create(api: ApiClient, path: str, body: Mapping[str, Any], what: str) -> None:
    try:
        api.call("POST", path, body, patience=PATIENCE_SECONDS)
        log.info("registered", extra={"what": what})
    except ApiUnreachable as error:
        raise UserError(
            f"{what} could not be registered within {PATIENCE_SECONDS:.0f} s: {error.reason}",
            "see `regionctl status`, then run the pipeline again",
        ) from None
    except ApiError as error:
        if error.status != 409:
            faults = "; ".join(str(fault.get("message", "")) for fault in error.errors)
            raise UserError(
                f"{what} was refused ({error.status}): {faults or error.reason}",
                f"its request id is {error.request_id}",
            ) from None
        log.info("known already", extra={"what": what})


@contextmanager
def region_api(central: Aws, inputs: CommonInputs, regional_account: str) -> Iterator[ApiClient]:
    """The region's API, called by the region's own account."""
    door = central.assume(regional_account, session_name="register")
    door.region = inputs.region
    region = CommonInputs(**{name: getattr(inputs, name) for name in CommonInputs.__struct_fields__})
    try:
        outputs = load_outputs(door, regional_account, "api-gateway", region)
        if outputs is None:
            raise UserError(f"region {inputs.region_alias} has no edge yet", "provision api-gateway first")
        api = ApiClient(
            outputs["invoke_url"],
            inputs.region,
            door.frozen_credentials(),
            ca_file=os.environ.get("AWS_CA_BUNDLE", ""),
        )
        try:
            yield api
        finally:
            api.close()
    finally:
        door.close()


def rendered_inputs(central: Aws, var_file: Path, kind: type[RegionalInputs] | type[ManagementInputs]) -> Any:
    try:
        given = msgspec.json.decode(var_file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"cannot read {var_file}: {error}", "run `regionctl config render`") from None
    known = variables(kind)
    resolved = resolve_tree(central, {name: value for name, value in given.items() if name in known})
    try:
        return msgspec.convert(resolved, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{var_file}: {error}", "correct config.yaml and render again") from None
