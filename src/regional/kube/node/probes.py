"""Probes: is it up, is it ready, is it alive.

One task per probe that sleeps between looks. Until the first success a container is looked at far more often than its
period says (from 20 ms, growing): that only makes a pod ready sooner, never less ready. Failures count at the period's
own pace. An HTTP probe is one short connection that reads a status line: probes are most of an idle node's work.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from regional.core.clock import Clock
from regional.kube.node.grpc_health import HealthProblem, check_health
from regional.kube.node.quantities import go_duration
from regional.kube.objects import Obj

Kind = Literal["Startup", "Liveness", "Readiness"]
Exec = Callable[[list[str], float], Awaitable[tuple[int, str]]]
_FIRST_LOOK, _GROWTH, _EAGER_SECONDS = 0.02, 1.25, 60.0


class Outcome(msgspec.Struct, frozen=True):
    ok: bool
    message: str = ""
    code: int = 0  # of HTTP

    @property
    def answered(self) -> bool:
        return self.ok or self.code > 0


class Probe(msgspec.Struct):
    kind: Kind
    spec: Obj
    host: str
    ports: dict[str, int]  # the container's named ports
    run: Exec

    @property
    def period(self) -> float:
        return float(self.spec.get("periodSeconds") or 10)

    @property
    def timeout(self) -> float:
        return float(self.spec.get("timeoutSeconds") or 1)

    async def look(self) -> Outcome:
        """What it finds, in kubelet's words."""
        try:
            if "httpGet" in self.spec:
                return await self._http(self.spec["httpGet"])
            if "tcpSocket" in self.spec:
                return await self._tcp(self.spec["tcpSocket"])
            if "grpc" in self.spec:
                return await self._grpc(self.spec["grpc"])
            code, output = await self.run(list(self.spec["exec"].get("command") or []), self.timeout)
            return Outcome(code == 0, output if code else "")
        except ValueError as error:
            return Outcome(False, str(error))

    async def _http(self, target: Obj) -> Outcome:
        tls: ssl.SSLContext | None = None
        if str(target.get("scheme") or "HTTP").upper() == "HTTPS":
            tls = _any_certificate()
        host, port = target.get("host") or self.host, self.port(target["port"])
        path = "/" + str(target.get("path") or "").removeprefix("/")
        url = f"{'https' if tls else 'http'}://{host}:{port}{path}"
        try:
            async with asyncio.timeout(self.timeout):
                code = await _status_code(host, port, tls, path, target.get("httpHeaders") or [])
        except TimeoutError:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            return Outcome(False, f'Get "{url}": {late}')
        except (OSError, ValueError, IndexError) as error:
            return Outcome(False, f'Get "{url}": {_failed_dial(host, port, error)}')
        # The body is not repeated: it may hold what is nobody's business.
        ok = 200 <= code < 400
        return Outcome(ok, "" if ok else f"HTTP probe failed with statuscode: {code}", code)

    async def _tcp(self, target: Obj) -> Outcome:
        host, port = target.get("host") or self.host, self.port(target["port"])
        try:
            async with asyncio.timeout(self.timeout):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return Outcome(False, f"dial tcp {host}:{port}: i/o timeout")
        except OSError as error:
            return Outcome(False, _failed_dial(host, port, error))
        writer.close()
        return Outcome(True)

    async def _grpc(self, target: Obj) -> Outcome:
        address, limit = f"{self.host}:{int(target['port'])}", go_duration(self.timeout)
        try:
            async with asyncio.timeout(self.timeout):
                said = await check_health(self.host, int(target["port"]), str(target.get("service") or ""))
        except TimeoutError:
            return Outcome(False, f"timeout: health rpc did not complete within {limit}")
        except HealthProblem as problem:
            return Outcome(False, f"error: health rpc probe failed: {problem}")
        except OSError:
            text = f'timeout: failed to connect service "{address}" within {limit}: context deadline exceeded'
            return Outcome(False, text)
        return Outcome(said == "SERVING", "" if said == "SERVING" else f'service unhealthy (responded with "{said}")')

    def port(self, wanted: int | str) -> int:
        if isinstance(wanted, int) or wanted.isdigit():
            return int(wanted)
        if wanted not in self.ports:
            raise ValueError(f"the container has no port named {wanted!r}")
        return self.ports[wanted]


def probe_of(kind: Kind, container: Obj, host: str, run: Exec) -> Probe | None:
    spec = container.get(f"{kind.lower()}Probe")
    if not spec:
        return None
    ports = {port["name"]: int(port["containerPort"]) for port in container.get("ports") or [] if port.get("name")}
    return Probe(kind, spec, host, ports, run)


async def _status_code(host: str, port: int, tls: ssl.SSLContext | None, path: str, headers: list[Obj]) -> int:
    """0 if what answers does not speak HTTP."""
    named = {header["name"].lower() for header in headers}
    usual = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.35", "Accept": "*/*"}
    lines = [f"{name}: {value}" for name, value in usual.items() if name.lower() not in named]
    lines += [f"{header['name']}: {header['value']}" for header in headers]
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", *lines, "Connection: close", "", ""]).encode())
        line = await reader.readline()
        return int(line.split(maxsplit=2)[1]) if line.startswith(b"HTTP/") else 0
    finally:
        writer.close()


def _failed_dial(host: str, port: int, error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {host}:{port}: connect: connection refused"
    return str(error) or "EOF"


async def keep_looking(
    probe: Probe,
    clock: Clock,
    verdict: Callable[[bool], None],
    complain: Callable[[str], None],
    *,
    passed: bool = False,
) -> None:
    """Tell `verdict` about changes only, after the probe's thresholds, and `complain` about each failure that counts.

    A startup probe ends with its first success.

    `passed` says that the container is known to pass already (it was adopted), so there is no hurry.
    """
    success_needed = int(probe.spec.get("successThreshold") or 1)
    failure_needed = int(probe.spec.get("failureThreshold") or 3)
    await clock.sleep(float(probe.spec.get("initialDelaySeconds") or 0))
    eager_until = clock.monotonic() + (0 if passed else _EAGER_SECONDS)
    pause, count_at = _FIRST_LOOK, clock.monotonic() + probe.period
    successes = failures = 0
    state: bool | None = True if passed else None
    while True:
        outcome = await probe.look()
        now = clock.monotonic()
        eager = state is None and now < eager_until
        if outcome.ok:
            successes, failures = successes + 1, 0
            if successes >= success_needed and state is not True:
                state = True
                verdict(True)
            if state and probe.kind == "Startup":
                return
        else:
            successes = 0
            if not eager or now >= count_at:
                failures, count_at = failures + 1, now + probe.period
                complain(outcome.message)
                if failures >= failure_needed and (state is not False or probe.kind != "Readiness"):
                    state = False
                    verdict(False)
        if state is None and now < eager_until:
            pause = min(pause * _GROWTH, probe.period)
            await clock.sleep(min(pause, max(_FIRST_LOOK, count_at - now)))
        else:
            await clock.sleep(probe.period)


@functools.cache
def _any_certificate() -> ssl.SSLContext:
    """kubelet does not verify either: a probe asks whether somebody answers, not who."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
