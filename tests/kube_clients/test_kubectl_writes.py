"""kubectl changes things: apply on both sides, diff, patches, edits, protobuf bodies, deletes that wait."""

from __future__ import annotations

from .harness import Shell
from .manifests import DEMO, WIDGET, WIDGETS


async def test_apply_says_what_changed_and_names_a_typo(shell: Shell) -> None:
    await shell.run("kubectl create namespace demo")
    assert (await shell.run("kubectl apply -n demo -f -", stdin=DEMO)).count("created") == 2
    assert (await shell.run("kubectl apply -n demo -f -", stdin=DEMO)).count("unchanged") == 2
    changed = await shell.run("kubectl apply -n demo -f -", stdin=DEMO.replace("value: one", "value: two"))
    assert "deployment.apps/web configured" in changed and "service/web unchanged" in changed
    typo = await shell.run("kubectl apply -n demo -f -", stdin=DEMO.replace("replicas:", "replcas:"), fails=True)
    assert 'unknown field "spec.replcas"' in typo
    assert 'namespace "demo" deleted' in await shell.run("kubectl delete namespace demo")
    assert "NotFound" in await shell.run("kubectl get namespace demo", fails=True)


async def test_diff_shows_what_an_apply_would_do_and_does_nothing(shell: Shell) -> None:
    # Of things that no controller touches: a diff also shows what changed while it looked.
    two = """
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: one}}
---
{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80, name: http}]}}
"""
    await shell.run("kubectl apply -f -", stdin=two)
    assert await shell.run("kubectl diff -f -", stdin=two) == ""
    shown = await shell.run("kubectl diff -f -", stdin=two.replace("a: one", "a: two"), fails=True)
    assert "-  a: one" in shown and "+  a: two" in shown
    more = two.replace("name: http}", "name: http}, {port: 81, name: more}")
    assert "+    port: 81" in await shell.run("kubectl diff --server-side -f -", stdin=more, fails=True)
    assert await shell.run("kubectl diff -f -", stdin=two) == ""


async def test_client_side_apply_moves_to_server_side(shell: Shell) -> None:
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


async def test_labels_annotations_patches_and_edits(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    assert "deployment.apps/web labeled" in await shell.run("kubectl label deploy/web tier=front")
    assert "--overwrite is false" in await shell.run("kubectl label deploy/web tier=back", fails=True)
    assert "unlabeled" in await shell.run("kubectl label deploy/web tier-")
    assert "annotated" in await shell.run("kubectl annotate deploy/web note='two words'")
    count = "kubectl get deploy web -o jsonpath='{.spec.replicas}'"
    for flags, wanted in (
        ('-p \'{"spec":{"replicas":3}}\'', "3"),
        ('--type=merge -p \'{"spec":{"replicas":4}}\'', "4"),
        ('--type=json -p \'[{"op":"replace","path":"/spec/replicas","value":5}]\'', "5"),
        ('--subresource=scale --type=merge -p \'{"spec":{"replicas":6}}\'', "6"),
    ):
        assert "patched" in await shell.run(f"kubectl patch deploy web {flags}")
        assert await shell.run(count) == wanted
    assert "edited" in await shell.run("kubectl edit deploy web", EDITOR="sed -i 's/^  replicas: 6/  replicas: 1/'")
    assert await shell.run(count) == "1"
    refused = await shell.run("kubectl scale deploy web --replicas=2 --current-replicas=9", fails=True)
    assert "Expected replicas to be 9, was 1" in refused
    assert "env updated" in await shell.run("kubectl set env deploy/web B=two")
    assert "B=two" in await shell.run("kubectl set env deploy/web --list")
    assert "replaced" in await shell.run("kubectl get svc web -o yaml | kubectl replace -f -")


async def test_kustomizations_are_built_and_applied(shell: Shell) -> None:
    folder = shell.folder / "kustomize"
    folder.mkdir()
    (folder / "demo.yaml").write_text(DEMO)
    (folder / "kustomization.yaml").write_text(
        "namePrefix: my-\nresources: [demo.yaml]\nconfigMapGenerator: [{name: settings, literals: [a=b]}]\n"
    )
    applied = await shell.run("kubectl apply -k kustomize")
    assert "configmap/my-settings-" in applied and "deployment.apps/my-web created" in applied
    assert (await shell.run("kubectl apply -k kustomize")).count("unchanged") == 3
    await shell.run("kubectl rollout status deploy/my-web --timeout=100s")
    await shell.until("kubectl diff -k kustomize")  # which succeeds if there is none, and nobody writes while it looks
    assert (await shell.run("kubectl delete -k kustomize --wait")).count("deleted") == 3


async def test_prune_removes_what_left_the_set(shell: Shell) -> None:
    one, two = (f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}" for name in ("one", "two"))
    command = "kubectl apply --prune --applyset=configmaps/set --namespace=default -f -"
    env = {"KUBECTL_APPLYSET": "true"}
    await shell.run(command, stdin=f"{one}\n---\n{two}", **env)
    pruned = await shell.run(command, stdin=one, **env)
    assert "configmap/two pruned" in pruned
    assert "NotFound" in await shell.run("kubectl get cm two", fails=True)


async def test_typed_commands_send_protobuf(shell: Shell) -> None:
    for command in (
        "secret generic s --from-literal=a=b",
        "configmap c --from-literal=a=b",
        "deployment zero --image=regional/regional:1 --replicas=0",
        "service clusterip s --tcp=80:8080",
        "serviceaccount bot",
        "role r --verb=get,list --resource=pods,deployments.apps",
        "rolebinding rb --role=r --serviceaccount=default:bot",
        "clusterrole cr --verb=get --non-resource-url=/metrics",
        "clusterrolebinding crb --clusterrole=cr --user=joe",
        "quota q --hard=pods=10",
        "job j --image=regional/regional:1 -- true",
        "cronjob cj --image=regional/regional:1 --schedule='0 0 * * *' -- true",
        "ingress i --rule='example.com/b=c:80'",
        "priorityclass pc --value=3",
        "poddisruptionbudget pdb --selector=a=b --min-available=1",
    ):
        assert "created" in await shell.run(f"kubectl create {command}")
    assert await shell.run("kubectl get secret s -o jsonpath='{.data.a}'") == "Yg=="
    assert await shell.run("kubectl get deploy zero -o jsonpath='{.spec.replicas}'") == "0"
    assert await shell.run("kubectl get cronjob cj -o jsonpath='{.spec.schedule}'") == "0 0 * * *"
    assert await shell.run("kubectl get pdb pdb -o jsonpath='{.spec.minAvailable}'") == "1"
    assert "server dry run" in await shell.run("kubectl create configmap d --from-literal=a=b --dry-run=server")
    assert "NotFound" in await shell.run("kubectl get cm d", fails=True)


async def test_delete_waits_for_the_end(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=DEMO)
    await shell.run("kubectl rollout status deploy/web --timeout=100s")
    assert "deleted" in await shell.run("kubectl delete deploy web --cascade=foreground --wait")
    assert "No resources found" in await shell.run("kubectl get pods,rs -l app=web")
    await shell.run("kubectl create cm held --from-literal=a=b")
    await shell.run("""kubectl patch cm held -p '{"metadata":{"finalizers":["demo.io/hold"]}}'""")
    await shell.until("kubectl delete cm held --timeout=2s", "timed out waiting for the condition", fails=True)
    await shell.run("""kubectl patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'""")
    assert "NotFound" in await shell.run("kubectl get cm held", fails=True)
    await shell.run("kubectl create deployment kept --image=regional/regional:1")
    await shell.until("kubectl get rs -l app=kept -o name", "kept-")
    await shell.run("kubectl delete deploy kept --cascade=orphan")
    assert "kept-" in await shell.run("kubectl get rs -l app=kept -o name")


async def test_custom_resource_is_usable_as_soon_as_its_crd_is_there(shell: Shell) -> None:
    await shell.run("kubectl apply -f -", stdin=WIDGETS)
    assert "condition met" in await shell.run("kubectl wait --for=condition=established crd/widgets.demo.io")
    await shell.run("kubectl apply -f -", stdin=WIDGET)
    assert (await shell.run("kubectl get wd")).split() == ["NAME", "SIZE", "w", "3"]
    assert "How big it is" in await shell.run("kubectl explain widget.spec.size")
    typo = await shell.run("kubectl apply -f -", stdin=WIDGET.replace("size", "sise"), fails=True)
    assert 'unknown field "spec.sise"' in typo
    status = """kubectl patch wd w --subresource=status --type=merge -p '{"status":{"phase":"Big"}}'"""
    assert "patched" in await shell.run(status)
    assert "condition met" in await shell.run("kubectl wait wd/w --for=jsonpath='{.status.phase}'=Big --timeout=60s")
    await shell.run("kubectl delete crd widgets.demo.io")
    assert "could not find the requested resource" in await shell.run("kubectl get wd", fails=True)
