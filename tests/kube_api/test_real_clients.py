"""kubectl and Helm, unchanged, against the embedded API with its controllers."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.core.paths import tools
from regional.kube.apiserver.front import listening
from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.kube.controllers import ControllerSettings, run_all

from .harness import make_pki, start_server

DEMO = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: main
          image: regional/regional:1
          ports: [{containerPort: 8080}]
          env: [{name: A, value: one}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"""

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.demo.io}
spec:
  group: demo.io
  scope: Namespaced
  names: {kind: Widget, plural: widgets, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {size: {type: integer, description: How big it is}}}
"""


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._env = {
            "PATH": f"{tools() / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
        }

    async def run(self, command: str, *, stdin: str = "", fails: bool = False) -> str:
        process = await asyncio.create_subprocess_shell(
            command,
            env=self._env,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            output, _ = await process.communicate(stdin.encode())
        assert (process.returncode != 0) == fails, f"{command}\n{output.decode()}"
        return output.decode()


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    number = os.getpid()
    address = f"127.{120 + number % 5}.{number // 5 % 250}.{1 + number // 1250 % 250}"
    pki = make_pki(tmp_path / "pki", address)
    server = await start_server(tmp_path / "data", pki, address=address, port=6443)

    def inline(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    (tmp_path / "kubeconfig").write_text(
        f"""
apiVersion: v1
kind: Config
current-context: t
contexts: [{{name: t, context: {{cluster: t, user: t}}}}]
clusters: [{{name: t, cluster: {{server: "https://{address}:6443", certificate-authority-data: {inline("ca.crt")}}}}}]
users: [{{name: t, user: {{client-certificate-data: {inline("admin.crt")}, client-key-data: {inline("admin.key")}}}}}]
"""
    )
    controllers = asyncio.create_task(run_all(Client(LocalTransport(server.handle)), ControllerSettings(root_ca="x")))
    async with listening(server, pki):
        yield Shell(tmp_path)
        controllers.cancel()
        await asyncio.gather(controllers, return_exceptions=True)
        server.store.close_watches()
    await server.stop()


async def test_kubectl_applies_looks_scales_and_deletes(shell: Shell) -> None:
    resources = await shell.run("kubectl api-resources")
    assert "deployments" in resources and "deploy" in resources
    await shell.run("kubectl create namespace demo")
    assert "created" in await shell.run("kubectl apply -n demo -f -", stdin=DEMO)
    assert (await shell.run("kubectl apply -n demo -f -", stdin=DEMO)).count("unchanged") == 2
    changed = await shell.run("kubectl apply -n demo -f -", stdin=DEMO.replace("value: one", "value: two"))
    assert "deployment.apps/web configured" in changed and "service/web unchanged" in changed
    assert "0/2" in await shell.run("kubectl get deploy -n demo")
    described = await shell.run("kubectl describe deploy web -n demo")
    assert "25% max unavailable, 25% max surge" in described and "ScalingReplicaSet" in described
    await shell.run("kubectl scale deploy/web -n demo --replicas=3")
    assert "0/3" in await shell.run("kubectl get deploy web -n demo")
    await shell.run("kubectl rollout restart deploy/web -n demo")
    waiting = await shell.run("kubectl rollout status deploy/web -n demo --timeout=1s", fails=True)
    assert 'Waiting for deployment "web" rollout to finish' in waiting
    assert "Number of desired pods" in await shell.run("kubectl explain deploy.spec.replicas")
    typo = await shell.run("kubectl apply -n demo -f -", stdin=DEMO.replace("replicas:", "replcas:"), fails=True)
    assert 'unknown field "spec.replcas"' in typo
    assert 'namespace "demo" deleted' in await shell.run("kubectl delete namespace demo")
    assert "NotFound" in await shell.run("kubectl get namespace demo", fails=True)


async def test_kubectl_moves_from_client_side_to_server_side_apply(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    applied = await shell.run("kubectl apply --server-side -f -", stdin=DEMO.replace("value: one", "value: two"))
    assert applied.count("serverside-applied") == 2
    await shell.run("kubectl scale deploy/web --replicas=5")
    conflict = await shell.run("kubectl apply --server-side -f -", stdin=DEMO, fails=True)
    assert 'conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas' in conflict
    await shell.run("kubectl apply --server-side --force-conflicts -f -", stdin=DEMO)
    shown = await shell.run(
        "kubectl get deploy web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].env}'"
    )
    assert shown == '2 [{"name":"A","value":"one"}]'


async def test_kubectl_sends_protobuf_waits_and_asks_for_rights(shell: Shell) -> None:
    await shell.run("kubectl create secret generic s --from-literal=a=b")
    assert await shell.run("kubectl get secret s -o jsonpath='{.data.a}'") == "Yg=="
    await shell.run("kubectl create deployment zero --image=regional/regional:1 --replicas=0")
    assert await shell.run("kubectl get deploy zero -o jsonpath='{.spec.replicas}'") == "0"
    assert (await shell.run("kubectl create token default")).count(".") == 2
    assert await shell.run("kubectl auth can-i create pods") == "yes\n"
    denied = await shell.run("kubectl auth can-i create pods --as joe", fails=True)
    assert denied.startswith("no")
    waited = await shell.run("kubectl wait --for=jsonpath='{.data.a}'=Yg== secret/s --timeout=10s")
    assert "condition met" in waited
    assert 'secret "s" deleted' in await shell.run("kubectl delete secret s --wait")


async def test_kubectl_uses_a_custom_resource_as_soon_as_its_crd_is_there(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=WIDGETS)
    assert "condition met" in await shell.run("kubectl wait --for=condition=established crd/widgets.demo.io")
    widget = "{apiVersion: demo.io/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}"
    await shell.run("kubectl apply -f -", stdin=widget)
    assert (await shell.run("kubectl get wd")).split() == ["NAME", "SIZE", "w", "3"]
    assert "How big it is" in await shell.run("kubectl explain widget.spec.size")
    typo = await shell.run("kubectl apply -f -", stdin=widget.replace("size", "sise"), fails=True)
    assert 'unknown field "spec.sise"' in typo
    await shell.run("kubectl delete crd widgets.demo.io")
    assert "could not find the requested resource" in await shell.run("kubectl get wd", fails=True)


async def test_helm_installs_upgrades_rolls_back_and_uninstalls(shell: Shell) -> None:
    await shell.run("helm create app")
    await shell.run("helm install rel app -n app --create-namespace")
    await shell.run("helm upgrade rel app -n app --set replicaCount=2")
    assert "0/2" in await shell.run("kubectl get deploy rel-app -n app")
    assert "superseded" in await shell.run("helm history rel -n app")
    await shell.run("helm rollback rel 1 -n app")
    assert "0/1" in await shell.run("kubectl get deploy rel-app -n app")
    assert 'release "rel" uninstalled' in await shell.run("helm uninstall rel -n app")
    assert "No resources found" in await shell.run("kubectl get deploy,svc -n app")
