"""Commands run beside a container: exec probes and preStop hooks. They are forks of the warm parent too, with the
container's own environment, so a probe never costs the start of an interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import signal
from pathlib import Path

from regional.core.spawn import SpawnError, SpawnRequest, spawn, wait_exit
from regional.kube.node.containers import Container, Launch
from regional.kube.node.probes import Probe
from regional.kube.node.quantities import go_duration
from regional.kube.objects import Obj

_OUTPUT_BYTES = 10 * 1024
_HTTP_SECONDS = 60.0


async def run_beside(
    container: Container, launch: Launch, spawner: Path, argv: list[str], seconds: float | None
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
            return -1, f'command timed out: "{shlex.join(argv)}" timed out after {go_duration(seconds or 0)}'
        except asyncio.CancelledError:
            process.signal(signal.SIGKILL)
            raise
        return code, output.read_bytes()[:_OUTPUT_BYTES].decode(errors="replace").strip()
    except (OSError, SpawnError) as error:
        return -1, str(error)
    finally:
        for leftover in (output, ended):
            with contextlib.suppress(OSError):
                leftover.unlink()


async def run_hook(
    container: Container, hook: Obj, launch: Launch | None, spawner: Path, address: str, seconds: float | None
) -> str:
    """Empty when it went well, otherwise why not. `seconds` are all that it has; None: a hook without a limit."""
    if "sleep" in hook:
        pause = float(hook["sleep"].get("seconds", 0))
        await container.ended_within(pause if seconds is None else min(pause, seconds))
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
        outcome = await Probe(
            "Liveness", hook | {"timeoutSeconds": seconds or _HTTP_SECONDS}, address, ports, never
        ).look()
        # Any answer will do: kubelet asks an HTTP hook whether it was heard, not what it thinks.
        return "" if outcome.answered else outcome.message
    return f"a hook of kind {', '.join(hook)} is not supported"
