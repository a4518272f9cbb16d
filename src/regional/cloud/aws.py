"""Clients for AWS's API, from the standard variables or from arguments, in this account or in another one.

botocore alone, without boto3: a step of a pipeline lives for a second and only needs clients. Calls are repeated for a
while when nobody answers, since the host that plays AWS on one machine may be restarting.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from regional.core.problems import UserError

ACCESS_ROLE = "OrganizationAccountAccessRole"
_SESSION_SECONDS = 3600


class Credentials(msgspec.Struct, frozen=True):
    access_key: str
    secret_key: str
    session_token: str = ""


class Aws:
    """One account's door. Not shared between threads while it makes clients."""

    def __init__(
        self,
        *,
        region: str = "",
        endpoint: str = "",
        credentials: Credentials | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self.region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
        self.endpoint = endpoint or environ.get("AWS_ENDPOINT_URL") or ""
        if credentials is None and environ.get("AWS_ACCESS_KEY_ID"):
            credentials = Credentials(
                environ["AWS_ACCESS_KEY_ID"],
                environ.get("AWS_SECRET_ACCESS_KEY", ""),
                environ.get("AWS_SESSION_TOKEN", ""),
            )
        self._credentials = credentials
        self._refresh: Callable[[], dict[str, str]] | None = None
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, *, region: str = "") -> Any:
        region = region or self.region
        if not region:
            raise UserError("no AWS region is set", hint="set AWS_REGION")
        if (service, region) not in self._clients:
            self._clients[service, region] = self._make_session().create_client(
                service, region_name=region, endpoint_url=self.endpoint or None, config=_config()
            )
        return self._clients[service, region]

    def account_id(self) -> str:
        return str(self.client("sts").get_caller_identity()["Account"])

    def assume(
        self, account_id: str, role: str = ACCESS_ROLE, external_id: str | None = None, session_name: str = "regional"
    ) -> Aws:
        """The same door in another account. Its credentials renew themselves for as long as ours are good."""
        request: dict[str, Any] = {
            "RoleArn": f"arn:aws:iam::{account_id}:role/{role}",
            "RoleSessionName": session_name,
            "DurationSeconds": _SESSION_SECONDS,
        }
        if external_id is not None:
            request["ExternalId"] = external_id
        sts = self.client("sts")

        def fetch() -> dict[str, str]:
            issued = sts.assume_role(**request)["Credentials"]
            return {
                "access_key": issued["AccessKeyId"],
                "secret_key": issued["SecretAccessKey"],
                "token": issued["SessionToken"],
                "expiry_time": issued["Expiration"].isoformat(),
            }

        other = Aws(region=self.region, endpoint=self.endpoint, environ={})
        other._refresh = fetch
        return other

    def frozen_credentials(self) -> Credentials:
        """The credentials as of now, for a process that we start."""
        found = self._make_session().get_credentials()
        if found is None:
            raise UserError("no AWS credentials are set", hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        frozen = found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def environment(self) -> dict[str, str]:
        """The standard variables with which another process gets this same door."""
        credentials = self.frozen_credentials()
        values = {
            "AWS_ACCESS_KEY_ID": credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
            "AWS_SESSION_TOKEN": credentials.session_token,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }
        return {name: value for name, value in values.items() if value}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _make_session(self) -> Any:
        if self._session is None:
            import botocore.credentials
            import botocore.session

            self._session = botocore.session.Session()
            self._session.register_component("data_loader", service_models())
            if self._refresh is not None:
                self._session._credentials = botocore.credentials.RefreshableCredentials.create_from_metadata(
                    self._refresh(), self._refresh, "sts-assume-role"
                )
            elif self._credentials is not None:
                known = self._credentials
                self._session.set_credentials(known.access_key, known.secret_key, known.session_token or None)
        return self._session


@functools.cache
def service_models() -> Any:
    """One reader of botocore's service descriptions for all sessions: parsing them is most of what a client costs."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def warm_up(services: Sequence[str]) -> None:
    """Read descriptions before a fork, so that the forks need not."""
    import botocore.session

    models = service_models()
    session = botocore.session.Session()
    session.register_component("data_loader", models)
    for service in services:
        for kind in ("service-2", "endpoint-rule-set-1"):
            models.load_service_model(service, kind)
    for shared in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        models.load_data(shared)


def _config() -> Any:
    from botocore.config import Config

    # Ten attempts with growing pauses outlast a restart of the host.
    return Config(connect_timeout=3, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 10})


def client(service: str, *, endpoint: str = "", region: str = "", credentials: Credentials | None = None) -> Any:
    """One client, for those who need no more."""
    return Aws(region=region, endpoint=endpoint, credentials=credentials).client(service)
