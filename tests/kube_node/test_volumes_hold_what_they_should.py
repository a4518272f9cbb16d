"""Volumes are directories whose files follow their source, all at once."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from regional.core.clock import ManualClock
from regional.core.mounts import mounted
from regional.kube.node.claims import ClaimDirectories
from regional.kube.node.environment import ConfigProblem
from regional.kube.node.layout import NodeDirectory
from regional.kube.node.mounting import lay_out
from regional.kube.node.pod_addresses import NoAddressLeft, PodAddresses
from regional.kube.node.secrets_store import object_files, parse_objects
from regional.kube.node.volume_files import BadPath, File, write_files
from regional.kube.node.volumes import PodVolumes, VolumeProblem
from regional.kube.objects import Obj


class Issuer:
    """Counts what it gives out. (Not a stand-in for the API: tokens are the API's own business and tested there.)"""

    def __init__(self) -> None:
        self.issued = 0

    async def token(self, pod: Obj, audience: str, seconds: int) -> tuple[str, float]:
        self.issued += 1
        return f"{audience}-{self.issued}", seconds * 0.8

    async def files(self, namespace: str, provider_class: str) -> dict[str, bytes]:
        self.issued += 1
        return {"password": f"{namespace}/{provider_class}/{self.issued}".encode()}


OBJECTS: dict[tuple[str, str], Obj] = {}


def lookup(kind: str, name: str) -> Obj | None:
    return OBJECTS.get((kind, name))


@pytest.fixture(autouse=True)
def objects() -> None:
    OBJECTS.clear()
    OBJECTS["ConfigMap", "cfg"] = {
        "kind": "ConfigMap",
        "data": {"a.yaml": "a: 1"},
        "binaryData": {"b": base64.b64encode(b"\x00").decode()},
    }
    OBJECTS["Secret", "tls"] = {"kind": "Secret", "data": {"tls.key": base64.b64encode(b"key").decode()}}


@pytest.fixture
def node(tmp_path: Path) -> NodeDirectory:
    directory = NodeDirectory(tmp_path)
    directory.prepare()
    return directory


def pod(*volumes: Obj) -> Obj:
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "u", "labels": {"b": "2", "a": "1"}},
        "spec": {"volumes": list(volumes)},
    }


async def sync(node: NodeDirectory, *volumes: Obj) -> Path:
    issuer = Issuer()
    volumes_of_pod = PodVolumes(node.pod("u"), issuer, issuer, ManualClock())
    await volumes_of_pod.sync(pod(*volumes), lookup, {"status.podIP": "127.64.2.1"})
    return node.pod("u").volumes


async def test_config_maps_and_secrets_become_files(node: NodeDirectory) -> None:
    volumes = await sync(
        node,
        {"name": "all", "configMap": {"name": "cfg"}},
        {
            "name": "one",
            "secret": {"secretName": "tls", "items": [{"key": "tls.key", "path": "deep/key", "mode": 0o400}]},
        },
        {"name": "maybe", "configMap": {"name": "none", "optional": True}},
        {"name": "scratch", "emptyDir": {}},
    )
    assert (volumes / "all/a.yaml").read_text() == "a: 1"
    assert (volumes / "all/b").read_bytes() == b"\x00"
    assert (volumes / "one/deep/key").read_bytes() == b"key"
    assert (volumes / "one/deep/key").stat().st_mode & 0o777 == 0o400
    assert list((volumes / "scratch").iterdir()) == []


async def test_projected_volumes_gather_tokens_maps_and_facts(node: NodeDirectory) -> None:
    volumes = await sync(
        node,
        {
            "name": "api",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607, "audience": "vault"}},
                    {"configMap": {"name": "cfg", "items": [{"key": "a.yaml", "path": "ca.crt"}]}},
                    {
                        "downwardAPI": {
                            "items": [
                                {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
                                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                            ]
                        }
                    },
                ]
            },
        },
    )
    assert (volumes / "api/token").read_text() == "vault-1"
    assert (volumes / "api/ca.crt").read_text() == "a: 1"
    assert (volumes / "api/namespace").read_text() == "team"
    assert (volumes / "api/labels").read_text() == 'a="1"\nb="2"'


async def test_tokens_and_fetched_secrets_are_renewed_in_time(node: NodeDirectory) -> None:
    clock, issuer = ManualClock(), Issuer()
    volumes = PodVolumes(node.pod("u"), issuer, issuer, clock)
    token = {
        "name": "t",
        "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}}]},
    }
    store = {
        "name": "s",
        "csi": {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "db"}},
    }
    assert await volumes.sync(pod(token), lookup, {}) == 800
    assert await volumes.sync(pod(token), lookup, {}) == 800
    assert issuer.issued == 1
    await clock.advance(801)
    await volumes.sync(pod(token), lookup, {})
    assert (node.pod("u").volumes / "t/token").read_text() == "-2"
    assert await volumes.sync(pod(store), lookup, {}) == 120
    await clock.advance(121)
    await volumes.sync(pod(store), lookup, {})
    assert (node.pod("u").volumes / "s/password").read_text() == "team/db/4"


@pytest.mark.parametrize(
    ("volume", "complaint"),
    [
        ({"configMap": {"name": "none"}}, 'volume "v": configmap "none" not found'),
        ({"secret": {"secretName": "tls", "items": [{"key": "x", "path": "x"}]}}, "has no key 'x'"),
        ({"hostPath": {"path": "/"}}, "hostPath is not offered"),
        ({"csi": {"driver": "ebs.csi.aws.com"}}, "driver ebs.csi.aws.com is not installed"),
        ({"configMap": {"name": "cfg", "items": [{"key": "b", "path": "../x"}]}}, "may not contain"),
    ],
)
async def test_what_cannot_be_mounted_is_named(node: NodeDirectory, volume: Obj, complaint: str) -> None:
    with pytest.raises(VolumeProblem, match=complaint):
        await sync(node, {"name": "v"} | volume)


def test_an_update_swaps_all_files_at_once_and_only_when_needed(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    assert write_files(volume, {"a": File(b"1"), "b": File(b"1")})
    before = (volume / "..data").readlink()
    assert not write_files(volume, {"a": File(b"1"), "b": File(b"1")})
    assert (volume / "..data").readlink() == before
    assert write_files(volume, {"a": File(b"2"), "c": File(b"2")})
    assert sorted(p.name for p in volume.iterdir() if not p.name.startswith("..")) == ["a", "c"]
    assert (volume / "a").read_bytes() == b"2"
    assert len([p for p in volume.iterdir() if p.name.startswith("..")]) == 2
    with pytest.raises(BadPath):
        write_files(volume, {"../x": File(b"")})


def test_mount_paths_lead_into_volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes, rootfs = tmp_path / "volumes", tmp_path / "rootfs"
    (volumes / "scratch").mkdir(parents=True)
    write_files(volumes / "cfg", {"app.yaml": File(b"x: 1")})
    mounts = [
        {"name": "cfg", "mountPath": "/etc/app/conf"},
        {"name": "cfg", "mountPath": "/etc/one.yaml", "subPath": "app.yaml"},
        {"name": "scratch", "mountPath": "/data"},
        {"name": "scratch", "mountPath": "/logs", "subPathExpr": "$(HOSTNAME)"},
        {"name": "cfg", "mountPath": "/data/inner"},
    ]
    for _ in range(2):
        lay_out(rootfs, {"volumeMounts": mounts}, volumes, {"HOSTNAME": "web-0"})
    monkeypatch.setenv("POD_ROOT", str(rootfs))
    assert mounted("/etc/app/conf/app.yaml").read_text() == "x: 1"
    assert mounted("/etc/one.yaml").read_text() == "x: 1"
    mounted("/logs/out").write_text("line")
    assert (volumes / "scratch/web-0/out").read_text() == "line"
    assert mounted("/data/inner/app.yaml").read_text() == "x: 1"
    with pytest.raises(ConfigProblem, match="without"):
        lay_out(rootfs, {"volumeMounts": [{"name": "cfg", "mountPath": "/../etc"}]}, volumes, {})


def test_a_provider_class_becomes_files() -> None:
    objects = """
- objectName: maestro/db-credentials
  objectType: secretsmanager
  jmesPath:
    - {path: password, objectAlias: password}
    - {path: port, objectAlias: port}
- objectName: plain
  objectType: secretsmanager
  objectAlias: alias.txt
"""
    spec = {"provider": "aws", "parameters": {"objects": objects}}
    database, plain = parse_objects({"metadata": {"name": "c"}, "spec": spec})
    raw = b'{"password": "s3cret", "port": 5432}'
    assert object_files(database, raw) == {"maestro_db-credentials": raw, "password": b"s3cret", "port": b"5432"}
    assert object_files(plain, b"text") == {"alias.txt": b"text"}
    with pytest.raises(VolumeProblem, match="nothing at jmesPath port"):
        object_files(database, b'{"password": "x"}')


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"provider": "vault"}, "provider 'vault' is not aws"),
        ({"provider": "aws", "parameters": {"objects": "- objectType: x"}}, "objectName"),
        ({"provider": "aws", "parameters": {"objects": "- {objectName: a, objectType: ssmparameter}"}}, "ssmparameter"),
        ({"provider": "aws", "secretObjects": [{}]}, "secretObjects"),
    ],
)
def test_a_provider_class_we_cannot_serve_is_refused(spec: Obj, complaint: str) -> None:
    with pytest.raises(VolumeProblem, match=complaint):
        parse_objects({"metadata": {"name": "c"}, "spec": spec})


def test_addresses_are_held_across_restarts_and_never_shared(node: NodeDirectory) -> None:
    addresses = PodAddresses("127.64.2.0/29", node)
    first = addresses.hold("u1", "team", "a")
    second = addresses.hold("u2", "team", "b")
    assert addresses.hold("u1", "team", "a") == first != second
    again = PodAddresses("127.64.2.0/29", node)
    assert again.hold("u2", "team", "b") == second
    others = [again.hold(f"u{n}", "team", "x") for n in range(3, 7)]
    assert len({first, second, *others}) == 6
    with pytest.raises(NoAddressLeft):
        again.hold("u9", "team", "x")
    node.pod("u1").remove()
    again.release("u1")
    assert again.hold("u9", "team", "x") == first


async def test_a_claim_is_mounted_only_while_it_is_bound_and_stays(node: NodeDirectory, tmp_path: Path) -> None:
    issuer = Issuer()
    claims = ClaimDirectories(tmp_path)
    volumes_of_pod = PodVolumes(node.pod("u"), issuer, issuer, ManualClock(), claims)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    claim: Obj = {"metadata": {"name": "c"}, "spec": {"volumeName": "pvc-1"}, "status": {"phase": "Pending"}}
    OBJECTS["PersistentVolumeClaim", "c"] = claim
    with pytest.raises(VolumeProblem, match='"c" is not bound'):
        await volumes_of_pod.sync(pod(volume), lookup, {})
    claim["status"]["phase"] = "Bound"
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(VolumeProblem, match='"c" is being deleted'):
        await volumes_of_pod.sync(pod(volume), lookup, {})
    del claim["metadata"]["deletionTimestamp"]
    await volumes_of_pod.sync(pod(volume), lookup, {})
    target = node.pod("u").volumes / "data"
    (target / "file").write_text("x")
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await volumes_of_pod.sync(pod(volume), lookup, {})
    assert (claims.path_of("pvc-1") / "file").read_text() == "x"
    claims.remove("pvc-1")
    assert not claims.path_of("pvc-1").exists()
    claims.remove("pvc-1")
