"""The Secrets Store CSI driver's role with its AWS provider: a SecretProviderClass becomes files.

Signed with botocore's signer and sent with aiohttp: a boto3 client would cost 11 MB for one kind of call.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import jmespath  # type: ignore[import-untyped]
import msgspec
import yaml
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from regional.kube.client import ApiError, Client
from regional.kube.node.volumes import VolumeProblem
from regional.kube.objects import Obj, name_of, spec_of

_API_VERSION = "secrets-store.csi.x-k8s.io/v1"
_TIMEOUT = aiohttp.ClientTimeout(total=10)


class AwsCredentials(msgspec.Struct):
    access_key: str
    secret_key: str
    region: str
    session_token: str = ""


class _JmesPath(msgspec.Struct, rename="camel"):
    path: str
    object_alias: str


class _Object(msgspec.Struct, rename="camel"):
    object_name: str
    object_type: str = ""
    object_alias: str = ""
    object_version: str = ""
    object_version_label: str = ""
    jmes_path: list[_JmesPath] = []


class AwsSecretsStore:
    def __init__(self, client: Client, endpoint: str, credentials_file: Path | None) -> None:
        self._client = client
        self._endpoint = endpoint
        self._credentials_file = credentials_file
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def files(self, namespace: str, provider_class: str) -> dict[str, bytes]:
        try:
            found = await self._client.get_or_none(_API_VERSION, "SecretProviderClass", provider_class, namespace)
        except ApiError as error:
            raise VolumeProblem(f'SecretProviderClass "{provider_class}": {error.message}') from error
        if found is None:
            raise VolumeProblem(f'SecretProviderClass "{provider_class}" not found')
        return await self.fetch(found)

    async def fetch(self, provider_class: Obj) -> dict[str, bytes]:
        wanted = parse_objects(provider_class)
        values = await asyncio.gather(*(self._secret(entry) for entry in wanted))
        files: dict[str, bytes] = {}
        for entry, value in zip(wanted, values, strict=True):
            files |= object_files(entry, value)
        return files

    async def _secret(self, wanted: _Object) -> bytes:
        call = {"SecretId": wanted.object_name}
        if wanted.object_version:
            call["VersionId"] = wanted.object_version
        if wanted.object_version_label:
            call["VersionStage"] = wanted.object_version_label
        try:
            answer = await self._call("GetSecretValue", call)
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise VolumeProblem(f"cannot reach Secrets Manager for {wanted.object_name}: {error!r}") from error
        if "SecretString" in answer:
            return str(answer["SecretString"]).encode()
        return msgspec.convert(answer.get("SecretBinary", ""), bytes, strict=False)

    async def _call(self, operation: str, body: dict[str, str]) -> dict[str, Any]:
        credentials = self._credentials()
        url = self._endpoint or f"https://secretsmanager.{credentials.region}.amazonaws.com"
        request = AWSRequest(
            "POST",
            url.rstrip("/") + "/",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"secretsmanager.{operation}"},
        )
        key = Credentials(credentials.access_key, credentials.secret_key, credentials.session_token or None)
        SigV4Auth(key, "secretsmanager", credentials.region).add_auth(request)
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        async with self._session.post(request.url, data=request.data, headers=dict(request.headers)) as response:
            raw = await response.read()
            answer: dict[str, Any] = msgspec.json.decode(raw) if raw.startswith(b"{") else {}
            if response.status != 200:
                kind = str(answer.get("__type", response.status)).rpartition("#")[2]
                message = answer.get("message") or answer.get("Message") or ""
                raise VolumeProblem(f"Secrets Manager: {kind} for {body['SecretId']}: {message}")
            return answer

    def _credentials(self) -> AwsCredentials:
        if self._credentials_file is None:
            raise VolumeProblem("this node has no AWS credentials (--aws-credentials)")
        try:
            return msgspec.json.decode(self._credentials_file.read_bytes(), type=AwsCredentials)
        except (OSError, msgspec.MsgspecError) as error:
            raise VolumeProblem(f"cannot read AWS credentials: {error}") from error


def parse_objects(provider_class: Obj) -> list[_Object]:
    name, spec = name_of(provider_class), spec_of(provider_class)
    if spec.get("provider") != "aws":
        raise VolumeProblem(f'SecretProviderClass "{name}": provider {spec.get("provider")!r} is not aws')
    if spec.get("secretObjects"):
        raise VolumeProblem(f'SecretProviderClass "{name}": secretObjects are not synced; use the mounted files')
    try:
        listed = yaml.safe_load((spec.get("parameters") or {}).get("objects") or "[]")
        wanted = msgspec.convert(listed, list[_Object])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise VolumeProblem(f'SecretProviderClass "{name}": parameters.objects: {error}') from error
    for entry in wanted:
        kind = entry.object_type or ("secretsmanager" if ":secretsmanager:" in entry.object_name else "")
        if kind != "secretsmanager":
            raise VolumeProblem(f'SecretProviderClass "{name}": objectType {kind!r} is not secretsmanager')
    return wanted


def object_files(wanted: _Object, value: bytes) -> dict[str, bytes]:
    """The whole secret under its alias or name (`/` becomes `_`, as the driver does), and each jmesPath's part."""
    files = {(wanted.object_alias or wanted.object_name).replace("/", "_"): value}
    if not wanted.jmes_path:
        return files
    try:
        document = msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise VolumeProblem(f"secret {wanted.object_name} is not JSON, so jmesPath cannot be used") from error
    for part in wanted.jmes_path:
        found = jmespath.search(part.path, document)
        if found is None:
            raise VolumeProblem(f"secret {wanted.object_name} has nothing at jmesPath {part.path}")
        files[part.object_alias] = found.encode() if isinstance(found, str) else msgspec.json.encode(found)
    return files
