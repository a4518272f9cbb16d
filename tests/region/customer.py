"""A customer of a live region, with what `regionctl env` gives them and nothing else."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

from regional.cloud.aws import Credentials
from regional.gateway.client import Answer, ApiClient, ApiError
from tests.region.conftest import LiveRegion


def shell_settings(region: LiveRegion) -> dict[str, str]:
    """The variables of `eval "$(regionctl env)"`; PATH is the shell's own matter."""
    lines = region.regionctl("env", "--region", region.name).stdout.splitlines()
    words = [shlex.split(line)[1] for line in lines if line.startswith("export ")]
    return {name: value for name, _, value in (word.partition("=") for word in words) if name != "PATH"}


class Customer:
    def __init__(self, region: LiveRegion) -> None:
        known = shell_settings(region)
        credentials = Credentials(known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"])
        self.api = ApiClient(known["API_GATEWAY_URL"], known["AWS_REGION"], credentials, ca_file=known["AWS_CA_BUNDLE"])

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        """Status and body, whatever the answer is; one that never came is a status of its own (0)."""
        try:
            answer: Answer = self.api.call(method, f"/api/v0{path}", body, query=query)
        except ApiError as error:
            return error.status, {"code": error.code, "reason": error.reason, "errors": error.errors}
        try:
            return answer.status, answer.json()
        except ValueError:
            return answer.status, answer.body.decode()

    def get(self, path: str, **query: str) -> Any:
        status, body = self.ask("GET", path, **query)
        assert status == 200, body
        return body

    def until(self, path: str, good: Callable[[Any], bool], what: str, seconds: float = 120) -> Any:
        """The resource once it is as it should be."""
        deadline = time.monotonic() + seconds
        while True:
            status, body = self.ask("GET", path)
            if status == 200 and good(body):
                return body
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}: {json.dumps(body)[:2000]}"
            time.sleep(0.1)

    def until_gone(self, path: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while (found := self.ask("GET", path))[0] != 404:
            assert time.monotonic() < deadline, f"{path} is not gone after {seconds} s: {json.dumps(found[1])[:2000]}"
            time.sleep(0.1)

    def bundle_of(self, work: dict[str, Any], good: Callable[[dict[str, Any]], bool], seconds: float = 120) -> Any:
        return self.until(f"/resource_bundles/{work['id']}", good, f"bundle {work['name']}", seconds)


def condition(holder: dict[str, Any] | None, kind: str) -> str:
    return next((found["status"] for found in (holder or {}).get("conditions") or [] if found["type"] == kind), "")


def is_ready(resource: dict[str, Any]) -> bool:
    return bool(resource["status"]["phase"] == "Ready")
