"""`kubectl exec` runs a command beside a container: its streams, its exit code, its terminal, and who may."""

from __future__ import annotations

import asyncio
import base64
import ssl

import pytest
import yaml

from regional.core import pki
from regional.kube.client import Client
from regional.kube.client.config import tls_context
from regional.kube.objects import Obj
from tests.kube_node.channels import Channels
from tests.kube_node.harness import NodeCluster, eventually, pod

_WAITS_FOR_SIZE = 'while [ "$(stty size)" != "17 91" ]; do sleep 0.05; done; stty size'


async def shell(cluster: NodeCluster, name: str = "box", **more: object) -> Obj:
    await cluster.client.create(pod(name, image="exec:sleep", command=["sleep", "600"], **more))
    return await cluster.ready(name)


async def test_a_command_runs_in_the_containers_environment(cluster: NodeCluster) -> None:
    await shell(cluster, env=[{"name": "COLOUR", "value": "blue"}])
    done = await cluster.kubectl("exec", "box", "--", "sh", "-c", "echo $COLOUR; echo oops >&2; pwd")
    code, output, errors = done
    assert (code, errors) == (0, "oops\n")
    assert output.splitlines()[0] == "blue"
    assert output.splitlines()[1].endswith("/containers/main/rootfs")


async def test_its_exit_code_becomes_kubectls(cluster: NodeCluster) -> None:
    await shell(cluster)
    code, output, errors = await cluster.kubectl("exec", "box", "--", "sh", "-c", "echo said; exit 7")
    assert (code, output) == (7, "said\n")
    assert "command terminated with exit code 7" in errors
    code, _, errors = await cluster.kubectl("exec", "box", "--", "no-such-program")
    assert code == 127
    assert "no-such-program" in errors


async def test_input_arrives_whole_and_ends(cluster: NodeCluster) -> None:
    await shell(cluster)
    text = "".join(f"line {number}\n" for number in range(50_000))
    assert await cluster.kubectl("exec", "-i", "box", "--", "cat", text=text) == (0, text, "")
    # A command that reads nothing does not wait for whoever types.
    assert (await cluster.kubectl("exec", "-i", "box", "--", "true", text=text))[0] == 0


async def test_much_output_arrives_whole(cluster: NodeCluster) -> None:
    await shell(cluster)
    code, output, _ = await cluster.kubectl("exec", "box", "--", "seq", "1", "300000")
    assert code == 0
    assert output.count("\n") == 300_000
    assert output.endswith("\n300000\n")


async def test_a_terminal_has_a_size_that_follows(cluster: NodeCluster) -> None:
    await shell(cluster)
    channel = Channels(cluster, "box", ["sh", "-c", f"{_WAITS_FOR_SIZE}; tty; read line"], tty=True)
    async with channel:
        await channel.send(4, b'{"Width":91,"Height":17}')
        await channel.until(b"17 91")
        await channel.until(b"/dev/pts/")
        await channel.send(0, b"\n")
        assert b'"Success"' in await channel.status()


async def test_a_role_of_our_image_can_be_run_too(cluster: NodeCluster) -> None:
    await shell(cluster)
    code, output, _ = await cluster.kubectl("exec", "box", "--", "regionctl", "exit", "4")
    assert (code, output) == (4, "leaving with 4\n")


async def test_a_command_ends_when_its_client_leaves(cluster: NodeCluster) -> None:
    box = await shell(cluster)
    pid_file = cluster.root / "pods" / box["metadata"]["uid"] / "containers/main/rootfs/pid"
    async with Channels(cluster, "box", ["sh", "-c", "echo $$ > pid; exec sleep 600"]):
        number = await eventually(lambda: pid_file.exists() and pid_file.read_text().strip())
    await eventually(lambda: not cluster.lives(int(number)))
    assert cluster.process_of(box).alive()


async def test_files_are_copied_with_tar(cluster: NodeCluster) -> None:
    await shell(cluster)
    local = cluster.region.root / "letter.txt"
    local.write_text("dear pod")
    code, _, errors = await cluster.kubectl("cp", str(local), "box:letter.txt")
    assert code == 0, errors
    assert (await cluster.kubectl("exec", "box", "--", "cat", "letter.txt"))[1] == "dear pod"


async def test_what_is_not_there_is_said(cluster: NodeCluster) -> None:
    await shell(cluster)
    code, _, errors = await cluster.kubectl("exec", "box", "-c", "other", "--", "true")
    assert code == 1
    assert "container other is not valid for pod box" in errors
    await cluster.client.create(pod("done", "exit", "0", pod_restartPolicy="Never"))
    await cluster.phase("done", "Succeeded")
    code, _, errors = await cluster.kubectl("exec", "done", "--", "true")
    assert code == 1
    assert "cannot exec into a container in a completed pod" in errors


async def test_attach_shows_what_is_printed_from_now_on(cluster: NodeCluster) -> None:
    script = "echo early; while [ ! -f $POD_ROOT/go ]; do sleep 0.05; done; echo late; sleep 0.5"
    await cluster.client.create(pod("box", image="exec:sh", command=["sh", "-c", script], pod_restartPolicy="Never"))
    box = await cluster.ready("box")
    root = cluster.root / "pods" / box["metadata"]["uid"] / "containers/main"
    await eventually(lambda: "early" in (root / "log").read_text())
    async with Channels(cluster, "box", None) as channel:
        (root / "rootfs/go").write_text("")
        await channel.until(b"late")
        assert b"early" not in channel.output
        assert b'"Success"' in await channel.status()


async def test_only_those_who_may_create_exec_may(cluster: NodeCluster) -> None:
    await shell(cluster)
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get", "list"]}]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "default"},
    }
    await cluster.client.create(role | {"rules": rules})
    await cluster.client.create(
        role
        | {
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}],
        }
    )
    code, _, errors = await cluster.kubectl("--as", "eve", "exec", "box", "--", "true")
    assert code == 1
    assert 'cannot create resource "pods/exec" in API group "" in the namespace "default"' in errors


async def test_a_certificate_of_the_cluster_alone_opens_no_node(cluster: NodeCluster) -> None:
    """Whoever is somebody must go through the API, where it is decided what they may."""
    await shell(cluster)
    certificates = cluster.files.certificates
    authority = pki.KeyPair((certificates / "ca.crt").read_text(), (certificates / "ca.key").read_text())
    eve = pki.issue(authority, "eve", organizations=["developers"])
    (cluster.region.root / "eve.pem").write_text(eve.certificate + eve.key)
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    context.load_cert_chain(cluster.region.root / "eve.pem")
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
    for path in ("/exec/default/box/main?command=true&output=1", "/containerLogs/default/box/main", "/pods"):
        reader, writer = await asyncio.open_connection(cluster.block.node, 10250, ssl=context)
        more = upgrade if path.startswith("/exec") else ""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        assert b"403" in await reader.readline()
        writer.close()


async def test_a_refused_upgrade_opens_no_way_to_the_node(cluster: NodeCluster) -> None:
    """The connection to the kubelet is the API's own: nobody else's requests may travel on it."""
    await shell(cluster)
    user = yaml.safe_load(cluster.admin.read_text())["users"][0]["user"]
    tls = tls_context(
        ca=(cluster.files.certificates / "ca.crt").read_bytes(),
        certificate=base64.b64decode(user["client-certificate-data"]),
        key=base64.b64decode(user["client-key-data"]),
    )
    reader, writer = await asyncio.open_connection(cluster.block.api, 6443, ssl=tls)
    head = "GET /api/v1/namespaces/default/pods/box/exec?command=true&stdout=true HTTP/1.1\r\nHost: x\r\n"
    asked = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: nonsense\r\n\r\n"
    writer.write((head + asked + "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n").encode())
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"PodList" not in answer


async def test_garbage_after_the_upgrade_ends_only_itself(cluster: NodeCluster) -> None:
    await shell(cluster)
    for junk in (b"", b"\xff", b"\x04{not json", b"\xff\x09", b"\x63unknown"):
        async with Channels(cluster, "box", ["cat"], protocol="v4") as channel:
            await channel.raw(junk)
            await channel.send(0, b"still here\n")
            await channel.until(b"still here")
    assert (await cluster.kubectl("exec", "box", "--", "true"))[0] == 0


@pytest.mark.parametrize("query", ["stdout=true", "command=true", ""])
async def test_a_request_that_asks_for_nothing_is_refused(cluster: NodeCluster, query: str) -> None:
    await shell(cluster)
    async with Client.from_kubeconfig(cluster.admin) as client:
        path = "/api/v1/namespaces/default/pods/box/exec"
        status, _, body = await client.request("GET", path, query=dict([query.split("=")] if query else []))
    assert status == 400, body
