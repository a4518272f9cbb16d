"""Clusters and node pools from the command line, with the real API behind it; the test plays the adapter's reports."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.cli.conftest import Place
from tests.clm.conftest import report


async def report_on(place: Place, kind: str, resource_id: str, available: str = "True", **more: Any) -> None:
    found = await place.clm.get(kind, resource_id)
    document = report(found["generation"], available, **more)
    await place.clm.put_status(kind, resource_id, document)


async def test_a_created_cluster_is_listed_described_and_deleted(place: Place) -> None:
    shell = place.customer
    made = await shell.succeed("cluster", "create", "demo", "--label", "team=blue", "--release", "4.20.1")
    assert "placed on mc01" in made.out
    listed = (await shell.succeed("cluster", "list")).out.splitlines()
    assert listed[0].split() == ["NAME", "PHASE", "PLACED", "ON", "AGE", "MESSAGE"]
    assert listed[1].split()[:3] == ["demo", "Provisioning", "mc01"]
    wide = (await shell.succeed("cluster", "list", "-o", "wide")).out
    assert "4.20.1" in wide
    document = (await shell.succeed("cluster", "describe", "demo", "-o", "json")).json()
    assert document["labels"] == {"team": "blue"}
    assert document["spec"]["release"] == {"version": "4.20.1"}
    assert document["nodepools"] == []
    by_id = yaml.safe_load((await shell.succeed("cluster", "describe", document["id"], "-o", "yaml")).out)
    assert by_id["name"] == "demo"
    text = (await shell.succeed("cluster", "describe", "demo")).out
    for expected in (
        "accepted",
        "placed",
        "waits for",
        "release.version = 4.20.1",
        document["history"][0]["request_id"],
    ):
        assert expected in text
    asked = (await shell.succeed("cluster", "delete", "demo", "--yes", "-o", "json")).json()
    assert asked == {"kind": "Cluster", "id": document["id"], "name": "demo", "gone": False}
    assert "Deleting" in (await shell.succeed("cluster", "list")).out
    await report_on(place, "Cluster", document["id"], "False", finalized="True")
    gone = await shell.run("cluster", "describe", "demo")
    assert gone.code == 1
    assert "there is no cluster 'demo'" in gone.err
    assert "this account has no clusters" in gone.err
    assert "no cluster demo" in (await shell.succeed("cluster", "wait", "demo", "--for", "deleted")).out


async def test_every_wrong_field_is_printed_at_once(place: Place) -> None:
    result = await place.customer.run(
        "cluster", "create", "Bad_Name", "--set", "deleteProtection=3", "--set", "netwrking.x=1", "--release", "four"
    )
    assert result.code == 1
    for field in ("name:", "spec.deleteProtection:", "spec.netwrking:", "spec.release.version:"):
        assert field in result.err
    assert "did you mean networking?" in result.err
    assert (await place.customer.succeed("cluster", "list", "-o", "json")).json()["items"] == []


async def test_a_taken_name_and_a_misspelt_name_are_said_in_words(place: Place) -> None:
    shell = place.customer
    await shell.succeed("cluster", "create", "demo")
    again = await shell.run("cluster", "create", "demo")
    assert again.code == 1
    assert "demo" in again.err
    near = await shell.run("cluster", "describe", "dmeo")
    assert "did you mean demo?" in near.err
    unknown = await shell.run("cluster", "describe", "00000000-0000-7000-8000-000000000000")
    assert unknown.code == 1
    assert "there is no cluster" in unknown.err


async def test_another_accounts_cluster_is_not_there(place: Place) -> None:
    made = await place.clm.for_tenant("999999999999").create("Cluster", "demo", {})
    for name in ("demo", made["id"]):
        result = await place.customer.run("cluster", "describe", name)
        assert result.code == 1
        assert "there is no cluster" in result.err


async def test_a_spec_comes_from_a_file_from_stdin_and_from_settings_over_them(place: Place, tmp_path: Any) -> None:
    shell = place.customer
    file = tmp_path / "demo.yaml"
    file.write_text("displayName: From a file\nproperties: {a: '1'}\n")
    arguments = ("--set", "properties.b=two", "--set", "deleteProtection=true")
    made = (await shell.succeed("cluster", "create", "one", "-f", str(file), *arguments, "-o", "json")).json()
    assert made["spec"]["displayName"] == "From a file"
    assert made["spec"]["properties"] == {"a": "1", "b": "two"}
    assert made["spec"]["deleteProtection"] is True
    described = (await shell.succeed("cluster", "describe", "one", "-o", "yaml")).out
    copied = (await shell.succeed("cluster", "create", "two", "-f", "-", "-o", "json", stdin=described)).json()
    assert copied["name"] == "two"
    assert copied["spec"] == made["spec"]
    whole = json.dumps({"name": "three", "spec": {"channel": "stable"}, "labels": {"a": "b"}})
    third = (await shell.succeed("cluster", "create", "-f", "-", "-o", "json", stdin=whole)).json()
    assert (third["name"], third["spec"]["channel"], third["labels"]) == ("three", "stable", {"a": "b"})


async def test_files_that_are_no_spec_are_usage_errors(place: Place, tmp_path: Any) -> None:
    for text in ("- a list", "{not: closed", "just text", ""):
        result = await place.customer.run("cluster", "create", "demo", "-f", "-", stdin=text)
        assert result.code == 2, (text, result)
        assert "Traceback" not in result.err
    for arguments in (
        ("-f", str(tmp_path / "absent")),
        ("--set", "no-value"),
        ("--label", "=x"),
        ("--timeout", "soon"),
    ):
        assert (await place.customer.run("cluster", "create", "demo", *arguments)).code == 2
    assert (await place.customer.run("cluster", "create")).code == 2


async def test_all_pages_are_listed_and_a_limit_is_kept(place: Place) -> None:
    for number in range(103):
        await place.own_clm.create("Cluster", f"demo-{number}", {})
    everything = (await place.customer.succeed("cluster", "list", "-o", "json")).json()
    assert everything["total"] == len(everything["items"]) == 103
    some = (await place.customer.succeed("cluster", "list", "-o", "json", "--limit", "101")).json()
    assert [item["name"] for item in some["items"]] == [f"demo-{number}" for number in range(102, 1, -1)]


async def test_a_kubeconfig_is_printed_when_there_is_one_and_refused_with_a_reason_before(place: Place) -> None:
    shell = place.customer
    made = (await shell.succeed("cluster", "create", "demo", "-o", "json")).json()
    early = await shell.run("cluster", "kubeconfig", "demo")
    assert early.code == 1
    assert early.out == ""
    assert "no kubeconfig now" in early.err
    assert "regionctl cluster wait demo --for ready" in early.err
    await report_on(place, "Cluster", made["id"], data={"kubeconfig": "YXBpVmVyc2lvbjogdjEK", "bundle": "b"})
    assert (await shell.succeed("cluster", "kubeconfig", "demo")).out == "apiVersion: v1\n"


async def test_delete_asks_a_person_and_refuses_a_script_that_does_not_say_yes(place: Place) -> None:
    shell = place.customer
    await shell.succeed("cluster", "create", "demo")
    refused = await shell.run("cluster", "delete", "demo")
    assert refused.code == 2
    assert "--yes" in refused.err
    async with shell.terminal("cluster", "delete", "demo") as terminal:
        await terminal.shows("Delete cluster demo")
        terminal.types("n\n")
        assert await terminal.ends() == 130
    assert "Provisioning" in (await shell.succeed("cluster", "list")).out
    async with shell.terminal("cluster", "delete", "demo") as terminal:
        await terminal.shows("[y/N]")
        terminal.types("y\n")
        assert await terminal.ends() == 0
    assert "Deleting" in (await shell.succeed("cluster", "list")).out


async def test_a_protected_cluster_is_deleted_only_after_its_protection_is_taken_away(place: Place) -> None:
    shell = place.customer
    await shell.succeed("cluster", "create", "demo", "--set", "deleteProtection=true", "--set", "displayName=Mine")
    refused = await shell.run("cluster", "delete", "demo", "--yes")
    assert refused.code == 1
    assert "deleteProtection" in refused.err
    changed = await shell.succeed(
        "cluster", "update", "demo", "--set", "deleteProtection=false", "--set", "displayName=null"
    )
    assert "generation 2" in changed.out
    same = await shell.succeed("cluster", "update", "demo", "--set", "deleteProtection=false")
    assert "nothing changed" in same.out
    document = (await shell.succeed("cluster", "describe", "demo", "-o", "json")).json()
    assert "displayName" not in document["spec"]
    await shell.succeed("cluster", "delete", "demo", "--yes")


async def test_node_pools_are_named_within_their_cluster(place: Place) -> None:
    shell = place.customer
    for cluster in ("one", "two"):
        await shell.succeed("cluster", "create", cluster)
        await shell.succeed("nodepool", "create", "--cluster", cluster, "--name", "workers", "--replicas", "3")
    listed = (await shell.succeed("nodepool", "list")).out
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [["workers", "two", "3"], ["workers", "one", "3"]]
    assert len((await shell.succeed("nodepool", "list", "--cluster", "one", "-o", "json")).json()["items"]) == 1
    ambiguous = await shell.run("nodepool", "describe", "workers")
    assert ambiguous.code == 1
    assert "--cluster" in ambiguous.err
    scaled = await shell.succeed("nodepool", "scale", "workers", "--cluster", "one", "--min", "1", "--max", "4")
    assert "generation 2" in scaled.out
    document = (await shell.succeed("nodepool", "describe", "workers", "--cluster", "one", "-o", "json")).json()
    assert document["spec"] == {"autoScaling": {"min": 1, "max": 4}}
    back = await shell.succeed("nodepool", "scale", document["id"], "--replicas", "5", "-o", "json")
    assert back.json()["spec"] == {"replicas": 5}
    text = (await shell.succeed("nodepool", "describe", document["id"])).out
    assert "one (" in text
    assert "5 wanted" in text
    assert "workers" in (await shell.succeed("cluster", "describe", "one")).out
    await shell.succeed("nodepool", "delete", "workers", "--cluster", "one", "--yes")
    await report_on(place, "NodePool", document["id"], "False", finalized="True")
    assert "no node pool" in (await shell.succeed("nodepool", "wait", document["id"], "--for", "deleted")).out
    missing = await shell.run("nodepool", "describe", "workers", "--cluster", "one")
    assert missing.code == 1
    for wrong in (("--min", "1"), ("--replicas", "1", "--min", "1", "--max", "2"), ()):
        assert (await shell.run("nodepool", "scale", "workers", "--cluster", "two", *wrong)).code == 2


async def test_requests_are_named_when_asked_for(place: Place) -> None:
    shell = place.customer
    created = await shell.succeed("cluster", "create", "demo", "-v")
    line = next(line for line in created.err.splitlines() if line.startswith("POST /api/v0/clusters → 201"))
    request_id = line.rpartition(" ")[2]
    document = (await shell.succeed("cluster", "describe", "demo", "-o", "json")).json()
    assert document["history"][-1]["request_id"] == request_id


async def test_accounts_are_let_in_shown_and_withdrawn(place: Place) -> None:
    shell = place.operator
    await shell.succeed("account", "create", "123456789012")
    listed = (await shell.succeed("account", "list")).out
    assert place.account in listed
    assert "123456789012" in listed
    assert (await shell.succeed("account", "describe", "123456789012", "-o", "json")).json()["privileged"] is False
    wrong = await shell.run("account", "create", "12")
    assert wrong.code == 1
    assert "accountId" in wrong.err
    assert (await shell.run("account", "delete", "../clusters", "--yes")).code == 2
    await shell.succeed("account", "delete", "123456789012", "--yes")
    gone = await shell.run("account", "delete", "123456789012", "--yes")
    assert gone.code == 1
    assert "there is no account" in gone.err
    used = await place.customer.succeed("cluster", "create", "demo")
    assert used.code == 0
    busy = await shell.run("account", "delete", place.account, "--yes")
    assert busy.code == 1
    assert "has 1 clusters" in busy.err
