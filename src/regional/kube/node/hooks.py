"""Commands run beside a container: exec probes and preStop hooks. They are forks of the warm parent too, with the
container's own environment, so a probe never costs the start of an interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from pathlib import Path

from regional.core.spawn import SpawnError, SpawnRequest, spawn, wait_exit
from regional.kube.node.containers import Container, Launch
from regional.kube.node.probes import Probe
from regional.kube.objects import Obj

_OUTPUT_BYTES = 1024


async def run_beside(
    container: Container, launch: Launch, spawner: Path, argv: list[str], seconds: float
) -> tuple[int, str]:
    """Exit code and the beginning of the output; -1 if it could not be run or took too long."""
    base = container.directory.path / f"exec-{secrets.token_hex(4)}"
    output, ended = base.with_suffix(".out"), base.with_suffix(".end")
    request = SpawnRequest(argv, launch.env, launch.cwd, str(output), str(ended), title=argv[0] if argv else "")
    try:
        process = await spawn(spawner, request)
        try:
            async with asyncio.timeout(seconds):
                code = (await wait_exit(process, ended)).code
        except TimeoutError:
            process.signal(signal.SIGKILL)
            return -1, f"took longer than {seconds:g} s"
        return code, output.read_bytes()[:_OUTPUT_BYTES].decode(errors="replace").strip()
    except (OSError, SpawnError) as error:
        return -1, str(error)
    finally:
        for leftover in (output, ended):
            with contextlib.suppress(OSError):
                leftover.unlink()


async def run_prestop(
    container: Container, hook: Obj, launch: Launch | None, spawner: Path, address: str, seconds: float
) -> str:
    """Empty when it went well, otherwise what to tell in an event."""
    if "sleep" in hook:
        await container.ended_within(min(float(hook["sleep"].get("seconds", 0)), seconds))
        return ""
    if "exec" in hook:
        if launch is None:
            return "the container's environment could not be rebuilt"
        code, output = await run_beside(container, launch, spawner, list(hook["exec"].get("command") or []), seconds)
        return "" if code == 0 else f"exit code {code}: {output}"
    if "httpGet" in hook:

        async def never(_argv: list[str], _seconds: float) -> tuple[int, str]:
            raise AssertionError("an HTTP hook runs nothing")

        ports = {p["name"]: int(p["containerPort"]) for p in container.spec.get("ports") or [] if p.get("name")}
        outcome = await Probe("Liveness", hook | {"timeoutSeconds": seconds}, address, ports, never).look()
        return "" if outcome.ok else outcome.message
    return f"preStop {', '.join(hook)} is not supported"
