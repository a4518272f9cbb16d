"""Deletion: what is answered, what lingers, what a finalizer holds, how namespaces and pods end."""

from __future__ import annotations

from typing import Any

from .harness import Api, config_map

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def _pod(api: Api, name: str, node: str = "") -> dict[str, Any]:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.post("/api/v1/namespaces/default/serviceaccounts", account)
    spec = {"containers": [{"name": "main", "image": "regional/regional:1"}]}
    made = await api.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    assert made.status == 201, made.body
    if node:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
        assert (await api.post(f"{PODS}/{name}/binding", binding)).status == 201
    return made.body  # type: ignore[no-any-return]


async def test_gone_is_a_status_with_the_uid(api: Api) -> None:
    made = (await api.post(CONFIG_MAPS, config_map("a"))).body
    gone = await api.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Background"})
    assert gone.status == 200
    assert gone.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    lost = await api.delete(f"{CONFIG_MAPS}/a")
    assert (lost.status, lost.message) == (404, 'configmaps "a" not found')


async def test_finalizer_holds_until_it_is_taken_away(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a", finalizers=["example.io/hold"]))
    marked = (await api.delete(f"{CONFIG_MAPS}/a")).body
    assert marked["kind"] == "ConfigMap" and marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    again = (await api.delete(f"{CONFIG_MAPS}/a")).body
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    late = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["example.io/hold", "y"]}})
    assert late.status == 422
    assert "no new finalizers can be added if the object is being deleted" in late.message
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={api.server.store.revision}")
    released = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert released.status == 200
    assert released.body["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    assert (await watch.next())["type"] == "DELETED"
    assert (await api.get(f"{CONFIG_MAPS}/a")).status == 404
    await watch.close()


async def test_preconditions(api: Api) -> None:
    made = (await api.post(CONFIG_MAPS, config_map("a"))).body
    uid = made["metadata"]["uid"]
    wrong = await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": "other"}})
    assert wrong.status == 409
    assert wrong.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not match the UID in '
        f"record ({uid}). The object might have been deleted and then recreated"
    )
    assert (await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": uid}})).status == 200


async def test_propagation_policies_leave_their_finalizers_for_the_collector(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("f"))
    await api.post(CONFIG_MAPS, config_map("o"))
    foreground = (await api.delete(f"{CONFIG_MAPS}/f", {"propagationPolicy": "Foreground"})).body
    assert foreground["metadata"]["finalizers"] == ["foregroundDeletion"]
    orphan = (await api.delete(f"{CONFIG_MAPS}/o?propagationPolicy=Orphan")).body
    assert orphan["metadata"]["finalizers"] == ["orphan"]
    assert (await api.delete(f"{CONFIG_MAPS}/o", {"propagationPolicy": "Sideways"})).status == 422


async def test_running_pod_is_marked_and_goes_with_the_nodes_last_word(api: Api) -> None:
    await _pod(api, "waiting")
    assert (await api.delete(f"{PODS}/waiting")).body["kind"] == "Pod"
    assert (await api.get(f"{PODS}/waiting")).status == 404  # no node, no process, nothing to wait for
    await _pod(api, "running", "node-1")
    marked = (await api.delete(f"{PODS}/running")).body
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30 and marked["metadata"]["generation"] == 2
    shorter = (await api.delete(f"{PODS}/running", {"gracePeriodSeconds": 5})).body
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    longer = (await api.delete(f"{PODS}/running", {"gracePeriodSeconds": 60})).body
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    await api.delete(f"{PODS}/running", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/running")).status == 404


async def test_pod_is_bound_once_and_equipped_with_its_accounts_token(api: Api) -> None:
    made = await _pod(api, "p", "node-1")
    mount = made["spec"]["containers"][0]["volumeMounts"][0]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert any(volume["name"] == mount["name"] and volume["projected"] for volume in made["spec"]["volumes"])
    assert made["spec"]["serviceAccountName"] == "default"
    bound = (await api.get(f"{PODS}/p")).body
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["status"]["conditions"][-1]["type"] == "PodScheduled"
    again = await api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "node-2"}})
    assert again.status == 409 and 'pod p is already assigned to node "node-1"' in again.message
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await api.post(f"{PODS}/p/eviction", eviction)).status == 201
    assert (await api.get(f"{PODS}/p")).body["metadata"]["deletionTimestamp"]


async def test_an_eviction_may_be_tried_in_its_options_and_keeps_to_its_preconditions(api: Api) -> None:
    """kubectl drain --dry-run=server says so in the body, not in the query."""
    made = await _pod(api, "p", node="node-1")
    await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await api.post(budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {}}})
    allowed = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1}
    budget = (await api.patch(f"{budgets}/b/status", {"status": allowed})).body
    before = (await api.get(f"{PODS}/p")).body

    async def evict(**options: Any) -> int:
        body = {"kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options}
        return (await api.post(f"{PODS}/p/eviction", body)).status

    assert await evict(dryRun=["All"]) == 201
    assert (await api.get(f"{PODS}/p")).body == before
    assert (await api.get(f"{budgets}/b")).body == budget
    assert await evict(preconditions={"uid": "another"}) == 409
    assert (await api.get(f"{PODS}/p")).body == before
    await api.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
    here = {"uid": made["metadata"]["uid"], "resourceVersion": before["metadata"]["resourceVersion"]}
    assert await evict(preconditions=here) == 201
    assert (await api.get(f"{PODS}/p")).body["metadata"]["deletionTimestamp"]


async def test_namespace_ends_in_two_steps_and_takes_nothing_new_between(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t2"}}
    made = (await api.post("/api/v1/namespaces", body)).body
    assert made["spec"]["finalizers"] == ["kubernetes"] and made["status"]["phase"] == "Active"
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == "t2"
    ending = (await api.delete("/api/v1/namespaces/t2")).body
    assert ending["kind"] == "Namespace" and ending["status"]["phase"] == "Terminating"
    late = await api.post("/api/v1/namespaces/t2/configmaps", config_map("late"))
    assert late.status == 403
    assert late.message == (
        'configmaps "late" is forbidden: unable to create new content in namespace t2 because it is being terminated'
    )
    assert late.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    ending["spec"] = {}
    assert (await api.put("/api/v1/namespaces/t2/finalize", ending)).status == 200
    assert (await api.get("/api/v1/namespaces/t2")).status == 404
    assert (await api.delete("/api/v1/namespaces/default")).status == 403
    assert (await api.delete("/api/v1/namespaces")).status == 405


async def test_collection_is_deleted_by_selector_and_returned(api: Api) -> None:
    for number in range(4):
        await api.post(CONFIG_MAPS, config_map(f"c{number}", labels={"even": str(number % 2 == 0).lower()}))
    deleted = (await api.delete(f"{CONFIG_MAPS}?labelSelector=even%3Dtrue")).body
    assert deleted["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["c0", "c2"]
    assert [i["metadata"]["name"] for i in (await api.get(CONFIG_MAPS)).body["items"]] == ["c1", "c3"]


async def test_job_orphans_by_default_and_says_so(api: Api) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "regional/regional:1"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    assert (await api.post(jobs, job)).status == 201
    deleted = await api.delete(f"{jobs}/j")
    assert deleted.body["metadata"]["finalizers"][-1] == "orphan"
    assert deleted.warnings[0].startswith("child pods are preserved by default when jobs are deleted")
