"""Whatever a client sends is the client's fault: no mutilated object, query or path gets a 5xx."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from .harness import Api, config_map
from .test_custom_resources import CRDS, WIDGETS, crd, widget
from .test_writes import deployment

JUNK: list[Any] = [
    None,
    True,
    -1,
    1.5,
    2**40,
    "",
    "\u2028",
    "A" * 300,
    [],
    {},
    [None],
    [{}],
    {"a": None},
    [[1]],
    {"": ""},
]
OBJECTS = {
    "/api/v1/namespaces/default/configmaps": config_map("x", {"a": "b"}, labels={"l": "v"}, finalizers=["a.b/c"]),
    "/apis/apps/v1/namespaces/default/deployments": deployment("x", replicas=2),
    "/api/v1/namespaces/default/services": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "x"},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}},
    },
    CRDS: crd(),
    WIDGETS: widget("x", id="i", free={"a": 1}),
}
TYPES = ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")


def mutilated(obj: Any, chance: random.Random) -> Any:
    obj = copy.deepcopy(obj)
    for _ in range(chance.randint(1, 3)):
        node = obj
        while True:
            steps = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not steps:
                break
            step = chance.choice(steps)
            if not isinstance(node[step], (dict, list)) or chance.random() < 0.3:
                node[step] = copy.deepcopy(chance.choice(JUNK))
                break
            node = node[step]
    return obj


@pytest.mark.parametrize("seed", range(4))
async def test_mutilated_objects_are_refused_or_taken_but_never_break_the_server(api: Api, seed: int) -> None:
    chance = random.Random(seed)
    assert (await api.post(CRDS, crd())).status == 201
    for url, whole in OBJECTS.items():
        name = whole["metadata"]["name"]
        for _ in range(12):
            attempts = [await api.post(url, mutilated(whole, chance)), await api.post(url, whole)]
            live = (await api.get(f"{url}/{name}")).body
            attempts.append(await api.put(f"{url}/{name}", mutilated(live, chance)))
            attempts.append(await api.put(f"{url}/{name}/status", mutilated(live, chance)))
            for kind in TYPES:
                patch = mutilated({key: value for key, value in live.items() if key != "metadata"}, chance)
                content = f"application/{kind}"
                attempts.append(await api.call("PATCH", f"{url}/{name}?fieldManager=f", patch, content_type=content))
            attempts.append(await api.get(url, accept="application/json;as=Table;v=v1;g=meta.k8s.io"))
            assert [answer.body for answer in attempts if answer.status >= 500] == []


async def test_absurd_paths_and_parameters(api: Api) -> None:
    chance = random.Random(1)
    words = [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "default",
        "pods",
        "a",
        "watch",
        "status",
        "scale",
        "log",
        "token",
        "openapi",
        "v3",
        "version",
        "ü",
        "..",
        "%",
    ]
    names = [
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "dryRun",
        "force",
        "hash",
    ]
    values = ["", "0", "-1", "true", "x", "9" * 18, "a%20in%20(b", "metadata.name%3Da", "%00", "Exact"]
    for _ in range(400):
        path = "/" + "/".join(chance.choices(words, k=chance.randint(0, 8)))
        query = "&".join(f"{chance.choice(names)}={chance.choice(values)}" for _ in range(chance.randint(0, 3)))
        if "resourceVersion=999" in query:
            continue  # a future revision is waited for
        method = chance.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "NONSENSE"])
        response = await api.raw(
            method, f"{path}?{query}", chance.choice([b"", b"{}", b"[]", b"k8s\0\x0a\x05", b"{a: &x [*x]}"])
        )
        if not isinstance(response.body, bytes):
            await response.body.aclose()  # type: ignore[attr-defined]
        assert response.status < 500, (method, path, query)
