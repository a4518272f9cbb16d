"""A HostedCluster that cannot be: refused at the door, or accepted with a condition that says why. Never a crash."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from regional.kube.client import ApiError
from regional.kube.objects import Obj, condition_of, is_true, spec_of, status_of
from tests.hypershift.harness import (
    HYPERSHIFT,
    RELEASE,
    Operated,
    eventually,
    hosted_cluster,
    pull_secret,
)

SERVICES = ("APIServer", "OAuthServer", "Konnectivity", "Ignition")
ROUTE = {"type": "Route"}
NODE_PORT = {"type": "NodePort", "nodePort": {"address": "127.0.0.1"}}
ROLES = (
    *("ingressARN", "imageRegistryARN", "storageARN", "networkARN"),
    *("kubeCloudControllerARN", "nodePoolManagementARN", "controlPlaneOperatorARN"),
)


def published(**strategies: Obj) -> list[Obj]:
    return [{"service": s, "servicePublishingStrategy": strategies.get(s, NODE_PORT)} for s in SERVICES]


def aws(**fields: Any) -> Obj:
    roles = dict.fromkeys(ROLES, "arn:aws:iam::111122223333:role/x")
    return {"type": "AWS", "aws": {"region": "us-east-1", "rolesRef": roles} | fields}


ON_AWS = {"platform": aws(), "services": published(**dict.fromkeys(SERVICES, ROUTE))}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("no pull secret", {"pullSecret": None}),
        ("three services", {"services": published()[:3]}),
        ("node port without node port", {"services": published(APIServer={"type": "NodePort"})}),
        ("paused until soon", {"pausedUntil": "soon"}),
        ("no platform", {"platform": None}),
        ("unknown platform", {"platform": {"type": "Mainframe"}}),
        (
            "the same network twice",
            {"networking": {"clusterNetwork": [{"cidr": "10.0.0.0/16"}], "serviceNetwork": [{"cidr": "10.0.0.0/16"}]}},
        ),
        ("cluster id that is no id", {"clusterID": "shop"}),
        (
            "two snapshots",
            {
                "etcd": {
                    "managementType": "Managed",
                    "managed": {
                        "storage": {"type": "PersistentVolume", "restoreSnapshotURL": ["https://a/b", "https://a/c"]}
                    },
                }
            },
        ),
    ],
)
async def test_what_the_schema_forbids_is_refused(mc: Operated, name: str, changes: Obj) -> None:
    await mc.namespace("refused")
    bad = hosted_cluster("bad", "refused", **changes)
    bad["spec"] = {key: value for key, value in bad["spec"].items() if value is not None}
    with pytest.raises(ApiError) as refusal:
        await mc.client.create(bad)
    assert refusal.value.status in (400, 422), name


async def test_a_minimal_cluster_is_given_its_defaults(mc: Operated) -> None:
    await mc.namespace("defaults")
    made = spec_of(await mc.client.create(hosted_cluster("plain", "defaults")))
    assert made["etcd"]["managed"]["storage"]["persistentVolume"]["size"] == "8Gi"
    assert made["networking"]["clusterNetwork"][0]["cidr"] == "10.132.0.0/14"
    assert made["networking"]["serviceNetwork"][0]["cidr"] == "172.31.0.0/16"
    assert made["issuerURL"] == "https://kubernetes.default.svc"
    assert made["controllerAvailabilityPolicy"] == "HighlyAvailable"


@pytest.mark.parametrize(
    "change",
    [
        {"services": published(Ignition=ROUTE)},
        {"issuerURL": "https://other.example.com"},
        {"controllerAvailabilityPolicy": "SingleReplica"},
        {"fips": True},
        {"platform": {"type": "AWS"}},
        {"infraID": "other"},
        {"infraID": None},
        {"clusterID": None},
        {"etcd": {"managed": {"storage": {"type": "PersistentVolume", "restoreSnapshotURL": ["https://a.example/b"]}}}},
    ],
)
async def test_what_may_not_change_is_refused(mc: Operated, change: Obj) -> None:
    live = await mc.hosted("fixed", "immutable")
    if live is None:
        await mc.create(
            "fixed", "immutable", keep=True, infraID="fixed-abcde", clusterID="0d9e6a52-7c0e-4f43-9d5a-6b1c3f6a2e10"
        )
    with pytest.raises(ApiError) as refusal:
        await mc.patch("HostedCluster", "fixed", "immutable", {"spec": change})
    assert refusal.value.status == 422


@pytest.mark.parametrize(
    ("changes", "condition", "reason", "says"),
    [
        (
            {"networking": {"clusterNetwork": [{"cidr": "172.31.4.0/22"}]}},
            "ValidConfiguration",
            "InvalidConfiguration",
            "overlap",
        ),
        (
            ON_AWS | {"services": published(**(dict.fromkeys(SERVICES, ROUTE) | {"Konnectivity": NODE_PORT}))},
            "ValidConfiguration",
            "InvalidConfiguration",
            "on AWS Konnectivity is published by Route",
        ),
        (
            ON_AWS
            | {
                "services": published(
                    **{s: {"type": "Route", "route": {"hostname": "same.example.com"}} for s in SERVICES}
                )
            },
            "ValidConfiguration",
            "InvalidConfiguration",
            "same.example.com is published twice",
        ),
        (
            ON_AWS | {"platform": aws(endpointAccess="Private")},
            "SupportedHostedCluster",
            "UnsupportedHostedCluster",
            "private links",
        ),
        (
            {"release": {"image": RELEASE.replace("4.21.3", "4.13.0")}},
            "ValidReleaseImage",
            "InvalidImage",
            "4.13.0 is below 4.14",
        ),
        ({"release": {"image": "example.com/ocp"}}, "ValidReleaseImage", "InvalidImage", "tells no version"),
        ({"pullSecret": {"name": "absent"}}, "ValidReleaseImage", "SecretNotFound", '"absent" not found'),
        ({"pullSecret": {"name": "wrong"}}, "ValidReleaseImage", "SecretNotFound", "no key .dockerconfigjson"),
    ],
)
async def test_what_only_the_operator_can_know_becomes_a_condition(
    mc: Operated, changes: Obj, condition: str, reason: str, says: str
) -> None:
    await mc.namespace("judged")
    data = {"other": base64.b64encode(b"x").decode()}
    wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong", "namespace": "judged"}, "data": data}
    if await mc.client.get_or_none("v1", "Secret", "wrong", "judged") is None:
        await mc.client.create(wrong)
    await mc.create("bad", "judged", **changes)
    hosted = await mc.told("HostedCluster", "bad", "judged", condition, "False", reason)
    assert says in (condition_of(hosted, condition) or {})["message"]
    available, progressing = condition_of(hosted, "Available") or {}, condition_of(hosted, "Progressing") or {}
    assert (available["status"], available["reason"]) == ("False", "WaitingForAvailable")
    assert says in available["message"]
    assert (progressing["status"], progressing["reason"]) == ("False", "Blocked")
    assert await mc.client.get_or_none("v1", "Namespace", "judged-bad") is None
    await mc.delete("bad", "judged")
    await mc.gone("bad", "judged")


async def test_a_name_too_long_for_its_namespace_is_told_so(mc: Operated) -> None:
    name = "a-name-of-thirty-characters-00"
    namespace = "cluster-0d9e6a52-7c0e-4f43-9d5a-6b1c3f6a2e10"
    await mc.create(name, namespace)
    hosted = await mc.told("HostedCluster", name, namespace, "ValidConfiguration", "False", "InvalidConfiguration")
    assert "63 are allowed" in (condition_of(hosted, "ValidConfiguration") or {})["message"]
    await mc.delete(name, namespace)
    await mc.gone(name, namespace)


async def test_a_namespace_of_somebody_else_is_not_taken(mc: Operated) -> None:
    """`a-b` + `c` and `a` + `b-c` would live in the same namespace: the first one keeps it."""
    await mc.create("c", "a-b")
    await mc.available("c", "a-b")
    await mc.create("b-c", "a")
    hosted = await mc.told("HostedCluster", "b-c", "a", "ValidConfiguration", "False", "InvalidConfiguration")
    assert "belongs to hosted cluster a-b/c" in (condition_of(hosted, "ValidConfiguration") or {})["message"]
    await mc.delete("b-c", "a")
    await mc.gone("b-c", "a")
    assert "default" in await mc.guest_kubectl("c", "a-b", "get", "ns", "-o", "name")
    await mc.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs-mine"}})
    await mc.create("mine", "theirs")
    hosted = await mc.told("HostedCluster", "mine", "theirs", "ValidConfiguration", "False", "InvalidConfiguration")
    assert "is no control plane's" in (condition_of(hosted, "ValidConfiguration") or {})["message"]
    await mc.delete("mine", "theirs")
    await mc.gone("mine", "theirs")
    assert await mc.client.get_or_none("v1", "Namespace", "theirs-mine") is not None


async def test_a_mended_spec_goes_on_without_a_touch(mc: Operated) -> None:
    await mc.create("mended", "mended", release={"image": RELEASE.replace("4.21.3", "4.13.0")})
    await mc.told("HostedCluster", "mended", "mended", "ValidReleaseImage", "False")
    await mc.patch("HostedCluster", "mended", "mended", {"spec": {"release": {"image": RELEASE}}})
    await mc.available("mended", "mended")


async def test_a_dotted_name_lives_in_a_dashed_namespace(mc: Operated) -> None:
    await mc.create("b.c", "dots")
    await mc.available("b.c", "dots")
    plane = await mc.client.get(HYPERSHIFT, "HostedControlPlane", "b.c", "dots-b-c")
    assert is_true(plane, "Available")


async def test_a_bad_upgrade_leaves_the_cluster_as_it_was(mc: Operated) -> None:
    await mc.create("upgrade", "upgrades")
    before = await mc.available("upgrade", "upgrades")
    await mc.patch("HostedCluster", "upgrade", "upgrades", {"spec": {"release": {"image": "example.com/ocp:new"}}})
    hosted = await mc.told("HostedCluster", "upgrade", "upgrades", "ValidReleaseImage", "False", "InvalidImage")
    assert is_true(hosted, "Available")
    assert status_of(hosted)["controlPlaneEndpoint"] == status_of(before)["controlPlaneEndpoint"]
    newer = RELEASE.replace("4.21.3", "4.21.9")
    await mc.patch("HostedCluster", "upgrade", "upgrades", {"spec": {"release": {"image": newer}}})

    async def complete() -> bool:
        live = await mc.hosted("upgrade", "upgrades")
        first = status_of(live or {})["controlPlaneVersion"]["history"][0]
        return bool((first["state"], first["version"]) == ("Completed", "4.21.9"))

    await eventually(complete)
    hosted = await mc.available("upgrade", "upgrades")
    history = status_of(hosted)["controlPlaneVersion"]["history"]
    assert [entry["version"] for entry in history] == ["4.21.9", "4.21.3"]
    older = RELEASE.replace("4.21.3", "4.20.1")
    await mc.patch("HostedCluster", "upgrade", "upgrades", {"spec": {"release": {"image": older}}})
    hosted = await mc.told("HostedCluster", "upgrade", "upgrades", "ValidReleaseImage", "False", "InvalidImage")
    assert "downgrade" in (condition_of(hosted, "ValidReleaseImage") or {})["message"]


async def test_a_pull_secret_with_nothing_in_it_is_no_crash(mc: Operated) -> None:
    await mc.namespace("hollow")
    hollow = pull_secret("hollow")
    hollow |= {"type": "Opaque"}
    del hollow["data"]
    await mc.client.create(hollow)
    await mc.client.create(hosted_cluster("hollow", "hollow"))
    await mc.told("HostedCluster", "hollow", "hollow", "ValidReleaseImage", "False", "SecretNotFound")
