"""`provision`: one root, applied once, whatever the engine.

Safe to kill anywhere and to run again: a lock per root that dies with its holder, everything found before it is made,
outputs stored last.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from regional.cloud.parameters import resolve_tree
from regional.core.problems import UserError
from regional.local.provisioner import certificates, edge
from regional.local.provisioner.certificates import Bundle, Signing
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import CommonInputs, ManagementInputs, RegionalInputs, variables
from regional.local.provisioner.local_engine import LocalEngine
from regional.local.provisioner.locks import one_at_a_time
from regional.local.provisioner.outputs import load_outputs, save_outputs, state_key
from regional.local.provisioner.root_table import ROOTS, Root, target_account
from regional.local.provisioner.terraform_engine import TerraformEngine

log = logging.getLogger(__name__)


class Engine(Protocol):
    def signing(self, inputs: CommonInputs, ca_certificate: str) -> Signing: ...

    async def apply(self, root: Root, inputs: CommonInputs) -> dict[str, Any]: ...


async def provision(root: str, inputs: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Apply a root with the rendered inputs (plus overrides) and return its outputs.

    Variables that nobody gave and that an earlier root puts out are taken from that root's stored outputs.
    """
    definition = find_root(root)
    given = await asyncio.to_thread(resolve_tree, context.central, dict(inputs))
    known = variables(definition.inputs)
    if unknown := sorted(set(given) - set(known)):
        log.warning("the rendered file has keys that the root does not use", extra={"keys": unknown, "root": root})
    given = {name: value for name, value in given.items() if name in known}
    base = _parse(RegionalInputs if definition.about_region else ManagementInputs, given, root)
    engine: Engine = LocalEngine(context) if context.engine == "local" else TerraformEngine(context)
    log.info("provisioning", extra={"root": root, "state": state_key(root, base, ""), "engine": context.engine})
    lock = state_key(root, base, "").replace("/", "_")  # in the place of Terraform's state lock
    async with one_at_a_time(context.paths.pipelines / "locks" / f"{lock}.lock"):
        given = await asyncio.to_thread(_fill_from_earlier, definition, given, base, context)
        bundle = None if base.delete else await asyncio.to_thread(_mint, definition, given, base, context, engine)
        outputs = await engine.apply(definition, _parse(definition.inputs, given, root))
        await asyncio.to_thread(_finish, definition, base, context, bundle, outputs)
    log.info("provisioned", extra={"root": root})
    return outputs


def find_root(name: str) -> Root:
    if name not in ROOTS:
        near = difflib.get_close_matches(name, ROOTS, 1)
        raise UserError(
            f"there is no root named {name}", f"did you mean {near[0]}?" if near else f"roots: {', '.join(ROOTS)}"
        )
    return ROOTS[name]


def _parse(kind: type[CommonInputs], given: dict[str, Any], root: str) -> Any:
    fields = variables(kind)
    missing = [name for name, field in fields.items() if field.required and name not in given]
    if missing:
        raise UserError(
            f"{root} needs {', '.join(missing)}", "give them in the rendered file, or provision the roots before it"
        )
    try:
        return msgspec.convert({name: given[name] for name in fields if name in given}, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"inputs of {root}: {error}", "correct config.yaml and render again") from None


def _fill_from_earlier(root: Root, given: dict[str, Any], inputs: CommonInputs, context: Context) -> dict[str, Any]:
    filled = dict(given)
    for name in root.earlier:
        for key, value in (_earlier(name, inputs, context) or {}).items():
            if key in variables(root.inputs) and key not in filled:
                filled[key] = value
    return filled


def _earlier(name: str, inputs: CommonInputs, context: Context) -> dict[str, Any] | None:
    earlier = ROOTS[name]
    account = inputs.account_id
    about = inputs
    if isinstance(inputs, ManagementInputs) and earlier.in_regional_account:
        account = inputs.regional_aws_account_id
        if earlier.about_region:  # stored under the region's key, not under the cluster's
            about = CommonInputs(**{f: getattr(inputs, f) for f in CommonInputs.__struct_fields__})
    return load_outputs(context.account(account, inputs.region), account, name, about)


def _mint(root: Root, given: dict[str, Any], inputs: CommonInputs, context: Context, engine: Engine) -> Bundle | None:
    """The keys that this root's certificates need, made before it is applied; adds the certificate to `given`."""
    if root.name == "broker" and "server_certificate_pem" not in given:
        regional = context.account(inputs.account_id, inputs.region)
        signing = engine.signing(inputs, given.get("ca_certificate_pem", ""))
        bundle = certificates.server_bundle(regional, signing, renew=context.renew)
        given["server_certificate_pem"] = bundle.certificate
        return bundle
    if root.name == "maestro-agent-iot-regional" and "certificate_pem" not in given:
        assert isinstance(inputs, ManagementInputs)
        broker_host = (_earlier("broker", inputs, context) or {}).get("broker_host")
        if broker_host is None:
            raise UserError("the region has no broker yet", "provision broker first")
        regional = context.account(inputs.regional_aws_account_id, inputs.region)
        signing = engine.signing(inputs, given.get("ca_certificate_pem", ""))
        recorded = (_earlier(root.name, inputs, context) or {}).get("certificate_arn", "")
        newest, former = certificates.agent_certificates(
            regional, inputs, signing, broker_host, recorded, renew=context.renew, retire=context.retire
        )
        given |= {"certificate_pem": newest, "former_certificates_pem": former}
    return None


def _finish(root: Root, inputs: CommonInputs, context: Context, bundle: Bundle | None, outputs: dict[str, Any]) -> None:
    account = target_account(root, inputs)
    door = context.account(account, inputs.region)
    if bundle is not None:
        certificates.store_server_bundle(door, bundle)
    if root.name == "maestro-agent-iot-management" and not inputs.delete:
        assert isinstance(inputs, ManagementInputs)
        regional = context.account(inputs.regional_aws_account_id, inputs.region)
        certificates.carry_over(regional, door, inputs)
    if root.name == "api-gateway" and outputs.get("rest_api_id"):
        edge.publish_stage(door, outputs["rest_api_id"], outputs["deployment_id"])
    save_outputs(door, account, root.name, inputs, outputs)
