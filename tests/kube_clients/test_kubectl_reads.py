"""kubectl looks: tables, descriptions with events, explanations, watches, waits, and who may do what."""

from __future__ import annotations

import asyncio

from .harness import Cluster, Shell
from .manifests import DEMO, WIDGET, WIDGETS


async def test_the_cluster_introduces_itself(cluster: Cluster) -> None:
    shell = cluster.shell
    resources = await shell.run("kubectl api-resources")
    assert all(name in resources for name in ("deployments", "deploy", "configmaps", "customresourcedefinitions"))
    assert "deployments.apps" in await shell.run("kubectl api-resources --api-group=apps -o name")
    assert "apps/v1" in await shell.run("kubectl api-versions")
    assert f"https://{cluster.address}:6443" in await shell.run("kubectl cluster-info")
    assert "Server Version: v1.35" in await shell.run("kubectl version")
    assert await shell.run("kubectl get --raw /readyz") == "ok"
    assert await shell.run("kubectl config current-context") == "t\n"


async def test_tables_columns_and_selections(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    await shell.run("kubectl rollout status deploy/web --timeout=100s")
    assert "2/2" in await shell.run("kubectl get deploy web")
    wide = await shell.run("kubectl get pods -o wide -l app=web")
    assert wide.count("node-1") == 2 and "READINESS GATES" in wide
    everything = await shell.run("kubectl get all")
    assert all(f"{kind}/" in everything for kind in ("pod", "service", "deployment.apps", "replicaset.apps"))
    assert (await shell.run("kubectl get pods -l 'app in (web),!nope' -o name")).count("pod/web-") == 2
    assert "No resources found" in await shell.run("kubectl get pods --field-selector=status.phase=Failed")
    names = await shell.run("kubectl get svc -o custom-columns=N:.metadata.name --no-headers --sort-by=.metadata.name")
    assert names.split() == ["kubernetes", "web"]
    assert "app=web" in await shell.run("kubectl get deploy --show-labels")
    assert await shell.run("kubectl get deploy web -o go-template='{{.spec.replicas}}'") == "2"
    assert "kind: Deployment" in await shell.run("kubectl get deploy web -o yaml --show-managed-fields")
    assert "default" in await shell.run("kubectl get deploy -A --chunk-size=1")


async def test_descriptions_tell_the_events(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    await shell.run("kubectl rollout status deploy/web --timeout=100s")
    described = await shell.until("kubectl describe deploy web", "ScalingReplicaSet")
    assert "25% max unavailable, 25% max surge" in described
    assert "NewReplicaSetAvailable" in described
    pods = await shell.until("kubectl describe pods -l app=web", "Successfully assigned default/web-")
    assert "Controlled By:    ReplicaSet/web-" in pods
    await shell.until("kubectl describe svc web", ":8080,")
    nodes = await shell.run("kubectl describe nodes")
    assert "(2 in total)" in nodes and "Allocated resources" in nodes
    await shell.until("kubectl events --for deployment/web", "ScalingReplicaSet")
    await shell.until("kubectl get events --field-selector involvedObject.kind=Deployment", "deployment/web")


async def test_custom_resources_are_described_with_their_events(cluster: Cluster) -> None:
    shell = cluster.shell
    await shell.run("kubectl apply -f -", stdin=WIDGETS)
    await shell.run("kubectl apply -f -", stdin=WIDGET)
    widget = await cluster.client.get("demo.io/v1", "Widget", "w", "default")
    about = {"apiVersion": "demo.io/v1", "kind": "Widget", "name": "w", "namespace": "default"}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "w.1", "namespace": "default"},
            "involvedObject": about | {"uid": widget["metadata"]["uid"]},
            "type": "Normal",
            "reason": "Grown",
            "message": "it is big now",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
        }
    )
    described = await shell.run("kubectl describe widget w")
    assert "Size:  3" in described and "Grown" in described and "it is big now" in described


async def test_fields_are_explained(shell: Shell) -> None:
    assert "Number of desired pods" in await shell.run("kubectl explain deploy.spec.replicas")
    assert "valueFrom" in await shell.run("kubectl explain pod.spec.containers.env --recursive")
    unknown = await shell.run("kubectl explain pod.spec.nonsense", fails=True)
    assert 'field "nonsense" does not exist' in unknown


async def test_watches_and_waits_see_changes(shell: Shell) -> None:
    await shell.run("kubectl create cm seen --from-literal=a=1")
    watching = asyncio.create_task(
        shell.run("timeout 60 kubectl get cm seen -w -o jsonpath='{.data.a}{\"\\n\"}' | head -n 2")
    )
    waiting = asyncio.create_task(shell.run("kubectl wait cm/seen --for=jsonpath='{.data.a}'=2 --timeout=100s"))
    # Whichever opens late still sees the last state, so the change is made until the watch has heard of one.
    turn = 1
    while not watching.done():
        turn = 3 - turn
        await shell.run(f"""kubectl patch cm seen -p '{{"data":{{"a":"{turn}"}}}}'""")
    assert len((await watching).split()) == 2
    await shell.run("""kubectl patch cm seen -p '{"data":{"a":"2"}}'""")
    assert "condition met" in await waiting
    gone = asyncio.create_task(shell.run("kubectl wait cm/seen --for=delete --timeout=100s"))
    await shell.run("kubectl delete cm seen")
    await gone


async def test_rights_are_asked_for_and_tokens_given(shell: Shell) -> None:
    assert await shell.run("kubectl auth can-i create pods") == "yes\n"
    assert (await shell.run("kubectl auth can-i create pods --as joe", fails=True)).startswith("no")
    assert "*.*" in await shell.run("kubectl auth can-i --list")
    assert "system:masters" in await shell.run("kubectl auth whoami")
    await shell.run("kubectl create role r --verb=get --resource=pods")
    await shell.run("kubectl create serviceaccount bot")
    await shell.run("kubectl create rolebinding rb --role=r --serviceaccount=default:bot")
    bot = "--as system:serviceaccount:default:bot"
    assert await shell.run(f"kubectl auth can-i get pods/x {bot}") == "yes\n"
    assert (await shell.run(f"kubectl auth can-i list pods {bot}", fails=True)).startswith("no")
    listed = await shell.run(f"kubectl auth can-i --list {bot}")
    assert any(line.split() == ["pods", "[]", "[]", "[get]"] for line in listed.splitlines()), listed
    token = (await shell.run("kubectl create token bot --duration=20m")).strip()
    assert token.count(".") == 2
    mine = "kubectl --kubeconfig=/dev/null --insecure-skip-tls-verify --token=" + token
    server = (await shell.run("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'")).strip()
    who = await shell.run(f"{mine} --server={server} auth whoami")
    assert "system:serviceaccount:default:bot" in who
    refused = await shell.run(f"{mine} --server={server} get secrets", fails=True)
    assert 'User "system:serviceaccount:default:bot" cannot list resource "secrets"' in refused
    role = (
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: default}, rules: [%s]}"
    )
    rule = '{apiGroups: [""], resources: [pods], verbs: [list]}'
    assert "missing rules added" in await shell.run("kubectl auth reconcile -f -", stdin=role % rule)
