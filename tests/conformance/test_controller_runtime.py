"""A controller that others' library carries (controller-runtime, built by `make kube`): informers, leader election,
finalizers, status and events, with built-in kinds as protobuf. See controller/main.go for what it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.kube.real.build import gardener

from .conftest import Define
from .objects import Custom, definition
from .servers import Cluster
from .wire import Answer, Http

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not gardener().built().exists(), reason="the Go controller is not built: `make kube` does that"),
]

GARDEN = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"flowers": {"type": "array", "items": {"type": "string"}}}},
        "status": {
            "type": "object",
            "properties": {
                "planted": {"type": "integer"},
                "by": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {
                            "type": {"type": "string"},
                            "status": {"type": "string"},
                            "reason": {"type": "string"},
                            "message": {"type": "string"},
                            "observedGeneration": {"type": "integer"},
                            "lastTransitionTime": {"type": "string", "format": "date-time"},
                        },
                    },
                },
            },
        },
    },
}


class Gardeners:
    """Processes of the controller in one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, group: str) -> None:
        self._kubeconfig, self._namespace, self._group = kubeconfig, namespace, group
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, identity: str) -> None:
        with (self._kubeconfig.parent / f"{identity}.log").open("wb") as log:
            self._running[identity] = await asyncio.create_subprocess_exec(
                str(gardener().built()),
                *(f"--kubeconfig={self._kubeconfig}", f"--namespace={self._namespace}"),
                *(f"--group={self._group}", f"--identity={identity}"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._kubeconfig.parent,
            )

    async def kill(self, identity: str) -> None:
        process = self._running.pop(identity)
        process.kill()
        await process.wait()

    async def kill_all(self) -> None:
        for identity in list(self._running):
            if self._running[identity].returncode is None:
                await self.kill(identity)


@pytest.fixture
async def gardens(crd: Define, group: str) -> Custom:
    version = {"schema": {"openAPIV3Schema": GARDEN}, "subresources": {"status": {}}}
    return await crd(definition(group, "Garden", **version))


@pytest.fixture
async def gardeners(
    cluster: Cluster, gardens: Custom, namespace: str, group: str, tmp_path: Path
) -> AsyncIterator[Gardeners]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig(namespace=namespace))
    made = Gardeners(kubeconfig, namespace, group)
    yield made
    await made.kill_all()


def is_planted(generation: int, count: int) -> object:
    def check(answer: Answer) -> bool:
        status = answer.body.get("status") or {}
        ready = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), {})
        return status.get("planted") == count and ready.get("observedGeneration") == generation

    return check


async def beds(http: Http, config_maps: str, garden: str) -> dict[str, str]:
    found = (await http.get(f"{config_maps}?labelSelector=garden={garden}")).ok()["items"]
    return {item["metadata"]["name"]: item["data"]["by"] for item in found}


async def test_a_controller_plants_tells_and_repairs(
    http: Http, gardens: Custom, gardeners: Gardeners, config_maps: str, namespace: str
) -> None:
    await gardeners.start("anna")
    one = f"{gardens.path}/one"
    (await http.post(gardens.path, gardens.body("one", {"flowers": ["rose", "tulip"]}))).ok(201)
    planted = (await http.until(one, is_planted(1, 2))).body
    assert planted["metadata"]["finalizers"] == ["demo.regional.io/compost"]
    assert await beds(http, config_maps, "one") == {"one-rose": "anna", "one-tulip": "anna"}
    rose = (await http.get(f"{config_maps}/one-rose")).ok()
    assert [(o["kind"], o["name"], o["controller"]) for o in rose["metadata"]["ownerReferences"]] == [
        ("Garden", "one", True)
    ]

    # A change of the spec is a generation; what is no longer wanted goes.
    (await http.patch(one, {"spec": {"flowers": ["rose", "iris", "lily"]}})).ok()
    await http.until(one, is_planted(2, 3))
    assert set(await beds(http, config_maps, "one")) == {"one-rose", "one-iris", "one-lily"}

    # What somebody takes away comes back: its deletion is an event in the controller's informer.
    (await http.delete(f"{config_maps}/one-rose")).ok()
    again = await http.until(f"{config_maps}/one-rose", lambda answer: answer.status == 200)
    assert again.body["metadata"]["uid"] != rose["metadata"]["uid"]

    told = await http.until(
        f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector=reason=Planted",
        lambda answer: bool(answer.ok()["items"]),
    )
    assert {event["regarding"]["name"] for event in told.body["items"]} == {"one"}


async def test_a_finalizer_runs_before_the_object_goes_and_its_children_follow(
    http: Http, gardens: Custom, gardeners: Gardeners, config_maps: str
) -> None:
    await gardeners.start("anna")
    (await http.post(gardens.path, gardens.body("two", {"flowers": ["rose"]}))).ok(201)
    await http.until(f"{gardens.path}/two", is_planted(1, 1))
    (await http.delete(f"{gardens.path}/two")).ok()
    await http.until(f"{gardens.path}/two", lambda answer: answer.status == 404)
    compost = (await http.get(f"{config_maps}/two-compost")).ok()
    assert compost["data"] == {"was": "rose", "by": "anna"}
    await http.until(f"{config_maps}/two-rose", lambda answer: answer.status == 404)
    (await http.get(f"{config_maps}/two-compost")).ok()  # it belongs to nobody, so nothing collects it


async def test_one_leads_and_another_takes_over_when_it_dies(
    http: Http, gardens: Custom, gardeners: Gardeners, namespace: str
) -> None:
    await gardeners.start("anna")
    (await http.post(gardens.path, gardens.body("first", {"flowers": ["rose"]}))).ok(201)
    first = (await http.until(f"{gardens.path}/first", is_planted(1, 1))).body
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/gardener"
    holder = (await http.get(lease)).ok()["spec"]["holderIdentity"]
    await gardeners.start("bert")
    assert first["status"]["by"] == "anna"

    await gardeners.kill("anna")
    (await http.post(gardens.path, gardens.body("second", {"flowers": ["iris"]}))).ok(201)
    second = (await http.until(f"{gardens.path}/second", is_planted(1, 1))).body
    assert second["status"]["by"] == "bert"
    after = (await http.get(lease)).ok()["spec"]
    assert after["holderIdentity"] != holder and after["leaseTransitions"] == 1
