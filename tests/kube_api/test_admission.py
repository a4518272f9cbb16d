"""What a cluster adds to an object or refuses in it besides the object's own rules."""

from __future__ import annotations

import asyncio
from typing import Any

from regional.kube.messages import User

from .harness import Api, config_map

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "b"}]} | spec}


async def with_account(api: Api) -> None:
    await api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})


async def test_nothing_enters_a_namespace_whose_end_is_decided(api: Api) -> None:
    """The mark is on its way to the disk: who empties the namespace looks as soon as it is there."""
    for number in range(20):
        name = f"short-{number}"
        assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        path = f"/api/v1/namespaces/{name}"
        marked, late = await asyncio.gather(api.delete(path), api.post(f"{path}/configmaps", config_map("late")))
        assert marked.body["status"]["phase"] == "Terminating"
        assert late.status == 403
        assert late.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_a_pod_has_its_class_priority_and_no_other(api: Api) -> None:
    await with_account(api)
    refused = await api.post(PODS, pod("a", priority=1_000_000))
    assert refused.status == 403
    assert refused.message == (
        'pods "a" is forbidden: the integer value of priority (1000000) must not be provided in pod spec; '
        "priority admission controller computed 0 from the given PriorityClass name"
    )
    high = {"priorityClassName": "system-node-critical"}
    assert (await api.post(PODS, pod("b", **high))).body["spec"]["priority"] == 2000001000
    assert (await api.post(PODS, pod("c", **high, priority=2000001000))).status == 201
    assert (await api.post(PODS, pod("d", **high, preemptionPolicy="Never"))).status == 403
    assert (await api.post(PODS, pod("e", priorityClassName="nope"))).status == 403


async def test_a_pod_without_a_class_gets_the_default_one(api: Api) -> None:
    await with_account(api)
    usual = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True, "preemptionPolicy": "Never"}
    assert (await api.post(CLASSES, usual)).status == 201
    spec = (await api.post(PODS, pod("a"))).body["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("usual", 7, "Never")
    second = await api.post(CLASSES, usual | {"metadata": {"name": "second"}})
    assert second.status == 403
    assert second.message.endswith("PriorityClass usual is already marked as default. Only one default can exist")
    assert (await api.patch(f"{CLASSES}/usual", {"description": "of most pods"})).status == 200


async def test_deleting_many_by_name_is_deleting_many(api: Api) -> None:
    """A field selector names what a list is about, and nothing else: so the real server reads it."""
    joe = User("joe", ("system:authenticated",))
    refused = await api.delete("/api/v1/namespaces/default/secrets?fieldSelector=metadata.name=x", user=joe)
    assert refused.status == 403
    assert refused.body["details"] == {"kind": "secrets"}


async def test_a_job_selects_its_own_pods_unless_it_says_otherwise(api: Api) -> None:
    jobs, labels = "/apis/batch/v1/namespaces/default/jobs", {"app": "theirs"}
    template = {"metadata": {"labels": labels}, "spec": pod("x", restartPolicy="Never")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    refused = await api.post(jobs, {"metadata": {"name": "a"}, "spec": spec})
    assert refused.status == 422
    assert "`selector` not auto-generated" in refused.message
    meant = await api.post(jobs, {"metadata": {"name": "a"}, "spec": spec | {"manualSelector": True}})
    assert meant.body["spec"]["selector"] == {"matchLabels": labels}
    usual = (await api.post(jobs, {"metadata": {"name": "b"}, "spec": {"template": template}})).body
    assert usual["spec"]["selector"] == {
        "matchLabels": {"batch.kubernetes.io/controller-uid": usual["metadata"]["uid"]}
    }
    assert usual["metadata"]["labels"]["app"] == "theirs"
