"""The API's /metrics tells how the controllers in its process keep up, to those who may read it."""

from __future__ import annotations

import re

from regional.kube.client.local import LocalTransport
from regional.kube.messages import User
from tests.kube_controllers.harness import Cluster, deployment, eventually, rolled_out


async def test_queues_are_shown_by_controller_and_nothing_by_object(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(deployment("web", "t", replicas=2))

    async def up() -> bool:
        return rolled_out(await cluster.client.get("apps/v1", "Deployment", "web", "t"))

    await eventually(up, seconds=60)
    owner = LocalTransport(cluster.api.handle)
    answer = await owner.request("GET", "/metrics", [], {}, None)
    text = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name in ("deployment", "replicaset", "scheduler", "endpoints", "garbage"):
        assert re.search(rf'^workqueue_depth\{{name="{name}"\}} \d+$', text, re.MULTILINE), name
        assert re.search(rf'^workqueue_queue_duration_seconds_sum\{{name="{name}"\}} [\d.e-]+$', text, re.MULTILINE)
    assert re.search(r'^workqueue_work_duration_seconds_count\{name="deployment"\} [1-9]', text, re.MULTILINE)
    assert "web" not in text
    nobody = LocalTransport(cluster.api.handle, user=User(name="joe", groups=("system:authenticated",)))
    assert (await nobody.request("GET", "/metrics", [], {}, None)).status == 403
