"""`kubectl logs` asks the API, the API asks the kubelet, the kubelet reads the file the process writes."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from regional.kube.client import Client
from regional.kube.objects import status_of
from tests.kube_node.harness import NodeCluster, eventually, pod, readiness


async def logs(cluster: NodeCluster, name: str, **query: str) -> tuple[int, str]:
    async with Client.from_kubeconfig(cluster.files.admin_kubeconfig) as client:
        status, _, body = await client.request("GET", f"/api/v1/namespaces/default/pods/{name}/log", query=query)
    return status, body.decode()


async def test_logs_of_this_and_the_previous_attempt(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    web = await cluster.ready("web")
    line = f"serving {status_of(web)['podIP']}:8000\n"

    async def answered() -> tuple[int, str] | None:
        answer = await logs(cluster, "web")
        return answer if answer[1] else None

    assert await eventually(answered) == (200, line)
    status, text = await logs(cluster, "web", previous="true")
    assert status == 400
    assert 'previous terminated container \\"main\\" in pod \\"web\\" not found' in text
    cluster.process_of(web).signal(15)
    await cluster.restarted("web", 1)
    assert await logs(cluster, "web", previous="true") == (200, f"{line}leaving in order\n")
    assert (await logs(cluster, "web", tailLines="1"))[1] == line


async def test_following_a_log_ends_when_the_container_does(cluster: NodeCluster) -> None:
    script = "echo one; sleep 0.5; echo two"
    await cluster.client.create(pod("job", image="exec:sh", command=["sh", "-c", script], pod_restartPolicy="Never"))

    async def started() -> bool:
        found = await cluster.pod("job")
        return status_of(found or {}).get("phase") in ("Running", "Succeeded")

    await eventually(started)
    assert await asyncio.wait_for(logs(cluster, "job", follow="true"), 60) == (200, "one\ntwo\n")


async def test_kubectl_reads_logs_in_all_its_ways(cluster: NodeCluster) -> None:
    lines = "".join(f'{{"time":"2026-01-01T00:00:0{n}Z","n":{n}}}\n' for n in range(5))
    talker = ["sh", "-c", f"printf '%s' '{lines}'; exec sleep 600"]
    body = pod("two", image="exec:sh", command=talker)
    body["spec"]["containers"].append({"name": "other", "image": "exec:sh", "args": ["-c", "echo hi; exec sleep 600"]})
    await cluster.client.create(body)
    await cluster.ready("two")

    async def said(*flags: str) -> str:
        code, output, errors = await cluster.kubectl("logs", "two", *flags)
        assert code == 0, errors
        return output

    async def all_is_said() -> bool:
        return await said("-c", "main") == lines and await said("-c", "other") == "hi\n"

    await eventually(all_is_said)
    assert await said() == lines, "the first container, with a note on stderr"
    assert await said("-c", "main", "--tail=2") == "".join(lines.splitlines(keepends=True)[-2:])
    assert await said("-c", "main", "--limit-bytes=9") == lines[:9]
    assert await said("-c", "main", "--since-time=2026-01-01T00:00:03Z") == "".join(lines.splitlines(keepends=True)[3:])
    assert (await said("-c", "main", "--since=1h")) == ""
    assert (await said("-c", "main", "--timestamps", "--tail=1")).startswith("2026-01-01T00:00:04Z {")
    assert sorted((await said("--all-containers")).splitlines()) == sorted([*lines.splitlines(), "hi"])
    prefixed = await said("--all-containers", "--prefix")
    assert "[pod/two/other] hi\n" in prefixed


async def test_strangers_get_no_logs(cluster: NodeCluster) -> None:
    async def up() -> bool:
        _, writer = await asyncio.open_connection(cluster.block.node, 10250)
        writer.close()
        return True

    await eventually(up)
    context = ssl.create_default_context(cafile=str(cluster.files.certificates / "ca.crt"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        reader, writer = await asyncio.open_connection(cluster.block.node, 10250, ssl=context)
        writer.write(b"GET /pods HTTP/1.0\r\n\r\n")
        if not await reader.read():
            raise ConnectionResetError
