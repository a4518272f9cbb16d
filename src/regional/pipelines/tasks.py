"""Step programs that are not Terraform. Each may be killed and run again at any point.

The CLI mounts them under `regionctl task …`; results go to the files that Tekton names.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from regional.cloud.accounts import account_id_parameter, mint_account
from regional.cloud.aws import Aws
from regional.cloud.parameters import put_parameter
from regional.core.files import write_atomic
from regional.core.problems import UserError

log = logging.getLogger(__name__)

ORGANISATION_ROOT = "regional"


class MintAccount(msgspec.Struct, kw_only=True):
    environment: str
    region: str  # the region deployment's name
    cluster_id: str = ""  # of a Management Cluster; empty for the region's own account
    email_domain: str = "accounts.example.com"

    @property
    def account_name(self) -> str:
        return f"{self.environment}-{self.region}-{self.cluster_id or 'regional'}"

    @property
    def email(self) -> str:
        return f"{self.account_name}@{self.email_domain}"

    @property
    def unit(self) -> str:
        """One unit per region, so that trust can be given to a region by its path."""
        return f"{ORGANISATION_ROOT}/{self.environment}/{self.environment}-{self.region}"


def run_mint_account(request: MintAccount, aws: Aws, result_files: Mapping[str, Path] | None = None) -> str:
    """The account's number, also written to SSM and to the result file `account-id`."""
    files = dict(result_files or {})
    if unknown := sorted(files.keys() - {"account-id"}):
        raise UserError(f"mint-account has no result {', '.join(unknown)}", hint="its result is account-id")
    account_id = mint_account(aws, request.account_name, request.email, request.unit)
    parameter = account_id_parameter(request.environment, request.region, request.cluster_id)
    changed = put_parameter(aws, parameter, account_id)
    log.info(
        "account minted" if changed else "account known",
        extra={
            "account": account_id,
            "account_name": request.account_name,
            "unit": request.unit,
            "parameter": parameter,
        },
    )
    if file := files.get("account-id"):
        write_atomic(file, account_id, mode=0o644)
    return account_id
