"""Random histories of applies and patches leave the same object and the same owners on both servers.

The documents come from fixed seeds, so a failure is found again. Neither server has controllers here: nothing but
these requests writes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from .compare import comparable
from .objects import definition
from .servers import Cluster
from .wire import PATIENCE, Answer, Http, Obj

pytestmark = pytest.mark.xdist_group("differential")
GROUP = "random.demo.io"
STEPS = 12
MANAGERS = ("m1", "m2", "m3")


@pytest.fixture
async def both(pair: tuple[Cluster, Cluster]) -> AsyncIterator[tuple[Http, Http]]:
    clients = Http(pair[0]), Http(pair[1])
    for http in clients:
        await http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(GROUP))
        await _served(http)
        await http.until("/api/v1/namespaces/default", lambda answer: answer.status == 200)
    yield clients
    for client in clients:
        await client.close()


async def _served(http: Http) -> None:
    """Until a custom object could be applied: the lists of a new kind are served before its writes."""
    path = f"/apis/{GROUP}/v1/namespaces/default/widgets"
    sent = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "none"}}
    async with asyncio.timeout(PATIENCE):
        while (await http.apply(f"{path}/none", sent, "m", "&dryRun=All")).status != 201:
            await asyncio.sleep(0.1)


class Documents:
    """Random documents of one kind; every part of them may be missing."""

    def __init__(self, kind: str, dice: random.Random) -> None:
        self.kind, self._dice = kind, dice
        self.api_version, self.path = {
            "Widget": (f"{GROUP}/v1", f"/apis/{GROUP}/v1/namespaces/default/widgets"),
            "Service": ("v1", "/api/v1/namespaces/default/services"),
            "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/default/deployments"),
        }[kind]

    def whole(self, name: str) -> Obj:
        metadata: Obj = {"name": name} | self._some({"labels": self._texts(), "annotations": self._texts()})
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, "spec": self.spec()}

    def spec(self) -> Obj:
        number, letter = self._dice.randint(0, 3), self._dice.choice("abc")
        if self.kind == "Widget":
            conds = [{"type": each} | self._some({"v": letter}) for each in self._letters()]
            return self._some({"size": number, "color": letter, "tags": self._letters(), "conds": conds})
        if self.kind == "Service":
            ports = [{"name": each, "port": 80 + ord(each)} | self._some({"targetPort": 8080}) for each in "ab"]
            kept = ports[: self._dice.randint(1, 2)]
            more = {"publishNotReadyAddresses": True}
            return {"ports": kept, "clusterIP": "None", "selector": self._texts()} | self._some(more)
        env = [{"name": each, "value": letter} for each in self._letters()]
        container: Obj = {"name": "main", "image": f"example/app:{number}"} | self._some({"env": env, "args": [letter]})
        labels = {"app": "x"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        more = {"replicas": number, "minReadySeconds": number + 1, "paused": True}
        return {"selector": {"matchLabels": labels}, "template": template} | self._some(more)

    def _some(self, fields: Obj) -> Obj:
        return {name: value for name, value in fields.items() if self._dice.random() < 0.6}

    def _texts(self) -> dict[str, str]:
        return {letter: self._dice.choice("xy") for letter in self._letters()}

    def _letters(self) -> list[str]:
        return self._dice.sample("abc", self._dice.randint(1, 3))


async def _step(http: Http, documents: Documents, name: str, choice: str, manager: str, sent: Obj) -> Answer:
    path = f"{documents.path}/{name}"
    if choice in ("apply", "force"):
        return await http.apply(path, sent, manager, "&force=true" if choice == "force" else "")
    if choice == "json":
        patch = [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in sorted(sent["spec"].items())]
        return await http.patch(f"{path}?fieldManager={manager}", patch, "json")
    return await http.patch(f"{path}?fieldManager={manager}", {"spec": sent["spec"]}, choice)


def _outcome(answer: Answer) -> Obj:
    """Of a refusal only the code and the fields: in which order managers are named is left to chance by Go's maps."""
    if answer.status < 400:
        return comparable(answer)
    causes = answer.body.get("details", {}).get("causes", [])
    return {"status": answer.status, "fields": sorted({str(cause.get("field")) for cause in causes})}


@pytest.mark.parametrize("kind", ["Widget", "Service", "Deployment"])
@pytest.mark.parametrize("seed", range(4))
async def test_random_writes_leave_the_same_object_and_owners(both: tuple[Http, Http], kind: str, seed: int) -> None:
    dice = random.Random(f"{kind} {seed}")
    documents = Documents(kind, dice)
    name = f"{kind.lower()}-{seed}"
    choices = ["apply", "force", "merge", "json"] + (["strategic"] if kind != "Widget" else [])
    history: list[str] = []
    for number in range(STEPS):
        choice = "apply" if number == 0 else dice.choice(choices)
        manager, sent = dice.choice(MANAGERS), documents.whole(name)
        history.append(f"{choice} by {manager}: {sent}")
        ours, theirs = [_outcome(await _step(http, documents, name, choice, manager, sent)) for http in both]
        assert ours == theirs, "\n".join(history)
        if number == 0:
            assert ours["status"] == 201
