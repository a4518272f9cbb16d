"""A cluster that foreign clients can reach: the real API over TLS, its controllers, a stand-in for a node's reports,
and a shell with kubectl and Helm that knows only the kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

from regional.core.paths import tools
from regional.kube.apiserver.front import listening
from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.kube.controllers import ControllerSettings, run_all
from tests.kube_api.harness import make_pki, start_server
from tests.kube_controllers.harness import Kubelet, eventually

_turns = itertools.count()


def own_address() -> str:
    """A loopback address that no other test of this machine uses: of this process, and of this turn in it."""
    number, turn = os.getpid(), next(_turns) % 8
    return f"127.{214 + turn}.{number % 250}.{1 + number // 250 % 250}"


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._env = {
            "PATH": f"{tools() / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(self.kubeconfig),
        }

    async def run(self, command: str, *, stdin: str = "", fails: bool = False, **env: str) -> str:
        process = await asyncio.create_subprocess_shell(
            command,
            env=self._env | env,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(120):
            output, _ = await process.communicate(stdin.encode())
        assert (process.returncode != 0) == fails, f"{command}\n{output.decode()}"
        return output.decode()

    async def until(self, command: str, *wanted: str, fails: bool = False) -> str:
        """Run it again and again until its output has every text: for what a controller brings about."""

        async def check() -> str:
            output = await self.run(command, fails=fails)
            assert all(text in output for text in wanted), output
            return output or " "

        return str(await eventually(check, f"{command} says {wanted}", seconds=120))


class Cluster:
    def __init__(self, shell: Shell, client: Client, kubelet: Kubelet, address: str, pki: Path) -> None:
        self.shell, self.client, self.kubelet, self.address, self.pki = shell, client, kubelet, address, pki

    @property
    def kubeconfig(self) -> str:
        return str(self.shell.kubeconfig)


def write_kubeconfig(file: Path, url: str, pki: Path, user: str = "admin") -> None:
    def inline(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    keys = f"client-certificate-data: {inline(f'{user}.crt')}, client-key-data: {inline(f'{user}.key')}"
    file.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: t
contexts: [{{name: t, context: {{cluster: t, user: t}}}}]
clusters: [{{name: t, cluster: {{server: "{url}", certificate-authority-data: {inline("ca.crt")}}}}}]
users: [{{name: t, user: {{{keys}}}}}]
"""
    )


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Cluster]:
    address = own_address()
    pki = make_pki(folder / "pki", address)
    server = await start_server(folder / "data", pki, address=address, port=6443)
    write_kubeconfig(folder / "kubeconfig", f"https://{address}:6443", pki)
    client = Client(LocalTransport(server.handle), user_agent="tests")
    kubelet = Kubelet(client)
    # A test on a slow machine outlives a node's lease, and this node renews none.
    settings = ControllerSettings(root_ca=(pki / "ca.crt").read_text(), node_grace_seconds=86_400.0)
    ready = asyncio.Event()
    controllers = asyncio.create_task(run_all(client, settings, ready=ready))
    try:
        async with listening(server, pki):
            await ready.wait()
            await kubelet.start()
            await eventually(lambda: client.get_or_none("v1", "ServiceAccount", "default", "default"), seconds=60)
            yield Cluster(Shell(folder), client, kubelet, address, pki)
            server.store.close_watches()
    finally:
        await kubelet.stop()
        controllers.cancel()
        await asyncio.gather(controllers, return_exceptions=True)
        await server.stop()
