"""`regionctl serve gateway` as the supervisor runs it, and its client as commands and pipelines use it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regional.cloud.aws import Credentials
from regional.core import pki
from regional.gateway.client import ApiClient, ApiError, ApiUnreachable, base_url
from tests.cloud.conftest import TOKEN, Host

from .conftest import REGION, SECRET, Identities, free_address

_PROGRAM = "import sys; from regional.gateway.main import main; sys.exit(main(sys.argv[1:]))"
_UPSTREAM = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
async def say(request):
    if request.url.path.endswith("/refused"):
        return JSONResponse({"kind": "Error", "code": "no", "reason": "because", "errors": [{"field": "a"}]}, 400)
    body = (await request.body()).decode()
    return JSONResponse({"path": request.url.path, "query": request.url.query, "body": body,
                         "account": request.headers["x-amz-account-id"], "id": request.headers["x-request-id"]})
app = Starlette(routes=[Route("/{rest:path}", say, methods=["GET", "POST"])])
uvicorn.run(app, host=sys.argv[1], port=8000, log_level="error")
"""


class Running:
    def __init__(self, address: str, directory: Path, host: Host, authority: pki.KeyPair) -> None:
        self.address, self.ca = address, directory / "ca"
        pair = pki.issue(authority, "gateway", addresses=[address], server=True, client=False)
        texts = {
            "crt": pair.certificate,
            "key": pair.key,
            "ca": authority.certificate,
            "secret": SECRET,
            "token": TOKEN,
        }
        for name, text in texts.items():
            (directory / name).write_text(text)
        flags = {
            "address": address,
            "certificate": directory / "crt",
            "key": directory / "key",
            "upstream": f"http://{address}:8000",
            "aws-endpoint": host.url,
            "lookup-token-file": directory / "token",
            "secret-file": directory / "secret",
            "region": REGION,
        }
        self.log = directory / "log"
        arguments = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments], stdout=log, stderr=log)
        self.upstream = subprocess.Popen([sys.executable, "-c", _UPSTREAM, address])

    def door(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.address}:8083{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def client(self, credentials: Credentials, url: str = "") -> ApiClient:
        return ApiClient(url or f"{self.address}:8443", REGION, credentials, ca_file=str(self.ca))

    def stop(self) -> int:
        self.upstream.kill()
        self.upstream.wait()
        self.process.terminate()
        return self.process.wait(120)


@pytest.fixture
def running(tmp_path: Path, aws_host: Host, authority: pki.KeyPair) -> Iterator[Running]:
    made = Running(free_address(8443, 8000, 8083), tmp_path, aws_host, authority)
    deadline = time.monotonic() + 60
    while made.door("/readyz")[0] != 200:
        assert made.process.poll() is None, made.log.read_text()
        assert time.monotonic() < deadline, made.log.read_text()
        time.sleep(0.05)
    yield made
    made.stop()


def test_it_serves_is_watched_and_leaves_in_order(running: Running, identities: Identities) -> None:
    for credentials in (identities.user, identities.session):
        client = running.client(credentials)
        said = client.call(
            "POST",
            "/api/v0/x y/50%/ü",
            {"a": "ü"},
            query={"q": "a b&c=d/e", "empty": ""},
            patience=60,
            request_id="id-1",
        ).json()
        assert said["account"] == identities.account
        assert said["path"] == "/api/v0/x y/50%/ü"
        assert said["query"] == "q=a%20b%26c%3Dd%2Fe&empty="
        assert json.loads(said["body"]) == {"a": "ü"}
        assert said["id"] == "id-1"
        assert client.get("/api/v0/a%2Fb%20c")["path"] == "/api/v0/a/b c"
        client.close()
    assert running.door("/healthz") == (200, "ok")
    metrics = running.door("/metrics")[1]
    assert 'gateway_requests_total{method="POST",status="200"}' in metrics
    assert "gateway_connections" in metrics
    assert running.stop() == 0
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    (span,) = [line for line in lines if line.get("span") and line["request_id"] == "id-1"][:1]
    assert (span["span"], span["status"], span["role"]) == ("gateway.request", 200, "gateway")
    for secret in (SECRET, TOKEN, identities.user.secret_key, identities.session.session_token):
        assert secret not in running.log.read_text()


def test_what_the_client_makes_of_refusals(running: Running, identities: Identities) -> None:
    client = running.client(identities.user)
    client.get("/api/v0/live", patience=60)
    with pytest.raises(ApiError) as refused:
        client.get("/api/v0/refused")
    error = refused.value
    assert (error.status, error.code, error.reason, error.errors) == (400, "no", "because", [{"field": "a"}])
    assert error.request_id
    stranger = running.client(Credentials("AKIANOBODYNOBODY0000", "x"))
    with pytest.raises(ApiError) as unknown:
        stranger.get("/api/v0/live")
    assert (unknown.value.status, unknown.value.code) == (403, "")
    assert "security token" in unknown.value.reason
    running.upstream.kill()
    running.upstream.wait()
    with pytest.raises(ApiUnreachable) as away:
        client.get("/api/v0/live")
    assert away.value.status == 502
    running.stop()
    with pytest.raises(ApiUnreachable) as gone:
        client.get("/api/v0/live")
    assert gone.value.status == 0
    for used in (client, stranger):
        used.close()


def test_every_way_of_writing_the_base_works(running: Running, identities: Identities) -> None:
    host = f"{running.address}:8443"
    for given in (host, f"https://{host}", f"https://{host}/prod", f"https://{host}/prod/", f"{host}/prod"):
        assert base_url(given) == f"https://{host}/prod"
        client = running.client(identities.user, given)
        assert client.get("/api/v0/live", patience=60)["path"] == "/api/v0/live"
        client.close()


def test_a_door_that_is_taken_is_said_in_one_line(running: Running, tmp_path: Path) -> None:
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60}
    with running.log.open() as log:
        assert log.read()
    flags = ["--address", running.address, "--certificate", str(tmp_path / "crt"), "--key", str(tmp_path / "key")]
    flags += ["--upstream", "http://127.0.0.1:1", "--aws-endpoint", "http://127.0.0.1:1", "--region", REGION]
    flags += ["--lookup-token-file", str(tmp_path / "token"), "--secret-file", str(tmp_path / "secret")]
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, *flags], **options)
    assert ended.returncode != 0
    assert "cannot listen" in ended.stderr + ended.stdout
