"""From a POST to an object on the cluster and back to a status: create, update, feedback, delete."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.objects import Obj
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import (
    Document,
    Maestro,
    applied,
    condition,
    config_for,
    config_map,
    eventually,
    gone,
    values,
)

RECORD = ("work.open-cluster-management.io/v1", "AppliedManifestWork")


async def get(cluster: Cluster, name: str) -> Obj | None:
    return await cluster.client.get_or_none("v1", "ConfigMap", name, "default")


async def test_a_bundle_is_applied_updated_and_deleted(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        paths = [("data", ".data.key"), ("all", ".data")]
        made = await client.create_bundle(
            "mc01", [config_map("greeting")], manifest_configs=[config_for("greeting", *paths)], request_id="req-1"
        )
        assert made["version"] == 1
        bundle = await applied(client, made["id"])
        assert condition(bundle, "Applied") == condition(bundle, "Available") == "True"
        (resource,) = bundle["status"]["resourceStatus"]
        assert [found["type"] for found in resource["conditions"]] == ["Applied", "Available", "StatusFeedbackSynced"]
        assert {found["status"] for found in resource["conditions"]} == {"True"}
        assert resource["statusFeedback"]["values"] == [
            {"name": "data", "fieldValue": {"type": "String", "string": "value"}},
            {"name": "all", "fieldValue": {"type": "JsonRaw", "jsonRaw": '{"key":"value"}'}},
        ]
        live = await cluster.client.get("v1", "ConfigMap", "greeting", "default")
        assert live["metadata"]["annotations"]["regional.io/request-id"] == "req-1"
        assert {entry["manager"] for entry in live["metadata"]["managedFields"]} == {"work-agent"}

        await client.patch_bundle(made["id"], manifests=[config_map("greeting", {"key": "other"})])
        bundle = await applied(client, made["id"], version=2)
        assert (await cluster.client.get("v1", "ConfigMap", "greeting", "default"))["data"] == {"key": "other"}

        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        assert await get(cluster, "greeting") is None
        assert await cluster.client.list(*RECORD) == []


@pytest.mark.parametrize("strategy", ["ServerSideApply", "Update"])
async def test_a_strategy_that_writes_keeps_what_others_wrote(
    maestro: Maestro, cluster: Cluster, strategy: str
) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        labelled = config_map("shared") | {
            "metadata": {"name": "shared", "namespace": "default", "labels": {"mine": "1", "later": "gone"}}
        }
        configs = [config_for("shared", strategy=strategy)]
        made = await client.create_bundle("mc01", [labelled], manifest_configs=configs)
        await applied(client, made["id"])
        theirs = {"metadata": {"labels": {"theirs": "2"}}}
        await cluster.client.patch("v1", "ConfigMap", "shared", "default", theirs)

        relabelled = labelled | {"metadata": {"name": "shared", "namespace": "default", "labels": {"mine": "3"}}}
        await client.patch_bundle(made["id"], manifests=[relabelled])
        await applied(client, made["id"], version=2)
        live = await cluster.client.get("v1", "ConfigMap", "shared", "default")
        assert live["metadata"]["labels"] == {"mine": "3", "theirs": "2"}


async def test_create_only_makes_an_object_and_leaves_it_alone(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("once", ("key", ".data.key"), strategy="CreateOnly")]
        made = await client.create_bundle("mc01", [config_map("once", {"key": "1"})], manifest_configs=configs)
        await applied(client, made["id"])
        await client.patch_bundle(made["id"], manifests=[config_map("once", {"key": "2"})])
        bundle = await applied(client, made["id"], version=2)
        assert values(bundle) == {"key": "1"}
        live = await get(cluster, "once")
        assert live is not None and live["data"] == {"key": "1"}
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        assert await get(cluster, "once") is None


async def test_read_only_looks_and_never_touches(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("theirs", ("key", ".data.key"), strategy="ReadOnly")]
        made = await client.create_bundle("mc01", [config_map("theirs", {"key": "ours"})], manifest_configs=configs)

        async def missing() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Available") == "False" else None

        bundle = await eventually(missing)
        assert (condition(bundle, "Applied"), values(bundle)) == ("True", {})
        assert await get(cluster, "theirs") is None

        theirs = await cluster.client.create(config_map("theirs", {"key": "theirs"}))
        await fed_back(client, made["id"], {"key": "theirs"})
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        live = await get(cluster, "theirs")
        assert live is not None and live["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


async def test_what_changes_on_the_cluster_is_fed_back_and_what_is_deleted_there_comes_back(
    maestro: Maestro, cluster: Cluster
) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("living", ("state", ".data.state"), strategy="CreateOnly")]
        made = await client.create_bundle("mc01", [config_map("living", {"state": "new"})], manifest_configs=configs)
        await fed_back(client, made["id"], {"state": "new"})
        await cluster.client.patch("v1", "ConfigMap", "living", "default", {"data": {"state": "grown"}})
        await fed_back(client, made["id"], {"state": "grown"})
        await cluster.client.delete("v1", "ConfigMap", "living", "default")
        await fed_back(client, made["id"], {"state": "new"})


async def fed_back(client: Any, bundle_id: str, wanted: dict[str, Any]) -> Document:
    async def check() -> Document | None:
        bundle: Document = await client.get_bundle(bundle_id)
        assert values(bundle) == wanted
        return bundle

    found: Document = await eventually(check)
    return found


async def test_fields_that_another_manager_owns_are_a_conflict_that_is_told(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        await cluster.client.apply(config_map("taken", {"key": "theirs"}), field_manager="somebody")
        made = await client.create_bundle("mc01", [config_map("taken")], manifest_configs=[config_for("taken")])

        async def failed() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Applied") == "False" else None

        bundle = await eventually(failed)
        assert bundle["delivery"]["state"] == "delivered" and "somebody" in bundle["delivery"]["reason"]

        forced = config_for("taken", strategy="ServerSideApply", serverSideApply={"force": True})
        await client.patch_bundle(made["id"], manifest_configs=[forced])
        await applied(client, made["id"], version=2)
        live = await get(cluster, "taken")
        assert live is not None and live["data"] == {"key": "value"}


async def test_a_manifest_that_cannot_be_applied_says_why_and_the_others_are_applied(
    maestro: Maestro, cluster: Cluster
) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        unknown = {"apiVersion": "nowhere.example/v1", "kind": "Widget", "metadata": {"name": "w"}}
        homeless = config_map("lost", namespace="nowhere")
        made = await client.create_bundle("mc01", [config_map("fine"), unknown, homeless])

        async def failed() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Applied") == "False" else None

        bundle = await eventually(failed)
        said = [found["conditions"][0] for found in bundle["status"]["resourceStatus"]]
        assert [found["status"] for found in said] == ["True", "False", "False"]
        assert "Widget" in said[1]["message"] and "nowhere" in said[2]["message"]
        assert "Widget" in bundle["delivery"]["reason"]
        assert await get(cluster, "fine") is not None

        await cluster.namespace("nowhere")
        await client.patch_bundle(made["id"], manifests=[config_map("fine"), homeless])
        await applied(client, made["id"], version=2)


def _ignoring(condition: str, path: str) -> Document:
    ignored = [{"condition": condition, "jsonPaths": [path]}]
    return {"updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"ignoreFields": ignored}}}


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (_ignoring("Sometimes", ".data"), "ignoreFields condition 'Sometimes' is not known"),
        (_ignoring("OnSpokePresent", ".data["), "'.data[' does not end with the name of a field"),
    ],
)
async def test_what_the_agent_cannot_do_is_said_and_not_passed_over(
    maestro: Maestro, cluster: Cluster, asked: Document, named: str
) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("a") | asked]
        made = await client.create_bundle("mc01", [config_map("a")], manifest_configs=configs)

        async def failed() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Applied") == "False" else None

        assert named in (await eventually(failed))["status"]["resourceStatus"][0]["conditions"][0]["message"]
        assert await get(cluster, "a") is None


async def test_a_bundle_may_bring_its_namespace_and_its_kind_in_any_order(maestro: Maestro, cluster: Cluster) -> None:
    group = "things.example"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    gadget = {
        "apiVersion": f"{group}/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", "namespace": "workshop"},
        "spec": {"size": 3},
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "workshop"}}
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [gadget, kind, space])
        await applied(client, made["id"])
        assert (await cluster.client.get(f"{group}/v1", "Gadget", "g", "workshop"))["spec"] == {"size": 3}
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        assert await cluster.client.get_or_none("v1", "Namespace", "workshop") is None


async def test_a_manifest_that_leaves_its_bundle_leaves_the_cluster(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("stays"), config_map("goes")])
        await applied(client, made["id"])
        await client.patch_bundle(made["id"], manifests=[config_map("stays")])
        await applied(client, made["id"], version=2)

        async def removed() -> bool:
            return await get(cluster, "goes") is None

        await eventually(removed)
        assert await get(cluster, "stays") is not None


@pytest.mark.parametrize(
    ("option", "left"),
    [
        ({"propagationPolicy": "Foreground"}, set()),
        ({"propagationPolicy": "Orphan"}, {"one", "two"}),
        (
            {
                "propagationPolicy": "SelectivelyOrphan",
                "selectivelyOrphans": {
                    "orphaningRules": [{"group": "", "resource": "configmaps", "name": "two", "namespace": "default"}]
                },
            },
            {"two"},
        ),
    ],
)
async def test_what_is_orphaned_outlives_its_bundle(
    maestro: Maestro, cluster: Cluster, option: Document, left: set[str]
) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("one"), config_map("two")], delete_option=option)
        await applied(client, made["id"])
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        found = {name: await get(cluster, name) for name in ("one", "two")}
        assert {name for name, live in found.items() if live is not None} == left
        assert not any((live or {}).get("metadata", {}).get("ownerReferences") for live in found.values())


async def test_an_object_of_two_bundles_goes_with_the_last(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        both = [await client.create_bundle("mc01", [config_map("common")], name=name) for name in ("first", "second")]
        for made in both:
            await applied(client, made["id"])
        await client.delete_bundle(both[0]["id"])
        await gone(client, both[0]["id"])
        assert await get(cluster, "common") is not None
        await client.delete_bundle(both[1]["id"])
        await gone(client, both[1]["id"])
        assert await get(cluster, "common") is None


async def test_a_bundle_is_gone_only_when_its_objects_are(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("slow")])
        await applied(client, made["id"])
        held = {"metadata": {"finalizers": ["test.example/hold"]}}
        await cluster.client.patch("v1", "ConfigMap", "slow", "default", held)
        await client.delete_bundle(made["id"])

        async def deleting() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Deleting") == "True" else None

        bundle = await eventually(deleting)
        assert bundle["deleted_at"] and "deleting the objects" in bundle["delivery"]["reason"]
        assert condition(bundle, "Deleted") == ""
        await cluster.client.patch("v1", "ConfigMap", "slow", "default", {"metadata": {"finalizers": None}})
        await gone(client, made["id"])


async def test_a_status_too_large_for_a_message_still_says_what_was_applied(maestro: Maestro, cluster: Cluster) -> None:
    async with (
        maestro.server() as client,
        maestro.agent(cluster.api.client("work-agent"), "mc01", max_status_bytes=20_000),
    ):
        await client.create_consumer("mc01")
        large = config_map("large", {"key": "x" * 30_000})
        feedback = [config_for("large", ("key", ".data"))]
        made = await client.create_bundle("mc01", [large], manifest_configs=feedback)
        bundle = await applied(client, made["id"])
        (resource,) = bundle["status"]["resourceStatus"]
        failed = resource["conditions"][2]
        assert (failed["status"], failed["reason"]) == ("False", "StatusFeedbackSyncFailed")

        many = await client.create_bundle("mc01", [config_map(f"many-{number}") for number in range(60)])
        bundle = await applied(client, many["id"])
        assert 0 < len(bundle["status"]["resourceStatus"]) < 60
