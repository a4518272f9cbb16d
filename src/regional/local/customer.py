"""An account to try the region with: minted like any other, with one access key that the owner of this machine keeps.

The key lies in the region's directory, for its owner only, and nowhere else. A key whose secret nobody has, because the
step that made it was killed before it wrote it down, is removed by the next run.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import msgspec
from botocore.exceptions import ClientError

from regional.cloud.accounts import mint_account
from regional.cloud.aws import Aws, Credentials
from regional.cloud.parameters import put_parameter
from regional.core.files import write_json
from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.pipelines.tasks import ORGANISATION_ROOT

log = logging.getLogger(__name__)

DEFAULT = "customer"
_USER = "owner"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


class CustomerKey(msgspec.Struct):
    account_id: str
    access_key: str
    secret_key: str
    region: str

    def __repr__(self) -> str:
        return f"CustomerKey({self.account_id})"

    def credentials(self) -> Credentials:
        return Credentials(self.access_key, self.secret_key)


class MintCustomer(msgspec.Struct, kw_only=True):
    environment: str
    region: str  # the region deployment's name
    customer: str = DEFAULT
    email_domain: str = "accounts.example.com"

    @property
    def account_name(self) -> str:
        return f"{self.environment}-{self.region}-customer-{self.customer}"

    @property
    def unit(self) -> str:
        """Outside the region's own unit: nothing that trusts a region by its path trusts its customers."""
        return f"{ORGANISATION_ROOT}/{self.environment}/customers"

    @property
    def parameter(self) -> str:
        return f"/infra/{self.environment}/{self.region}/customers/{self.customer}/account_id"


def key_file(paths: RegionPaths, customer: str = DEFAULT) -> Path:
    return paths.root / "customers" / f"{customer}.json"


def load_key(paths: RegionPaths, customer: str = DEFAULT) -> CustomerKey | None:
    try:
        return msgspec.json.decode(key_file(paths, customer).read_bytes(), type=CustomerKey)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def mint_customer(request: MintCustomer, central: Aws, paths: RegionPaths) -> str:
    """The account's number. Its key is in `key_file` when this returns."""
    if not _NAME.fullmatch(request.customer):
        raise UserError(
            f"{request.customer!r} is not a customer's name", "up to 32 lower-case letters, digits, hyphens"
        )
    email = f"{request.account_name}@{request.email_domain}"
    account_id = mint_account(central, request.account_name, email, request.unit)
    put_parameter(central, request.parameter, account_id)
    log.info("customer's account known", extra={"account": account_id, "account_name": request.account_name})
    inside = central.assume(account_id, session_name="mint-customer")
    try:
        _ensure_key(inside, account_id, key_file(paths, request.customer))
    finally:
        inside.close()
    return account_id


def _ensure_key(inside: Aws, account_id: str, file: Path) -> None:
    client = inside.client("iam")
    try:
        client.create_user(UserName=_USER)
        log.info("user made", extra={"user": _USER})
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityAlreadyExists":
            raise
    allowed = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    client.put_user_policy(UserName=_USER, PolicyName="call-regions", PolicyDocument=policy)
    keys = [key["AccessKeyId"] for key in client.list_access_keys(UserName=_USER)["AccessKeyMetadata"]]
    if file.exists():
        stored = msgspec.json.decode(file.read_bytes(), type=CustomerKey)
        if stored.access_key in keys and stored.account_id == account_id:
            return
    for key in keys:
        client.delete_access_key(UserName=_USER, AccessKeyId=key)
    made = client.create_access_key(UserName=_USER)["AccessKey"]
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(file, CustomerKey(account_id, made["AccessKeyId"], made["SecretAccessKey"], inside.region))
    log.info("access key made", extra={"access_key": made["AccessKeyId"]})
