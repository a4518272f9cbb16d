"""`regionctl maestro iot-policy`: the documents that Terraform attaches; a certificate may do its own and no more."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

from regional.cli.iot_policy import iot_policy
from regional.core.paths import checkout
from regional.core.problems import UserError

ACCOUNT = "123456789012"
IOT = f"arn:aws:iot:us-east-1:{ACCOUNT}"
REGION = ("--environment", "integration", "--region", "us-east-1")
OWN = "integration-us-east-1"
_NAME = "${iot:Certificate.Subject.CommonName}"
_MODULES = {"server": "maestro-broker", "agent": "maestro-agent-iot"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(iot_policy, arguments, standalone_mode=False)


def document(who: str) -> Any:
    printed = run(who, *REGION, "--account", ACCOUNT)
    assert printed.exception is None
    return json.loads(printed.output)


def allowed(who: str, name: str, action: str, resource: str) -> bool:
    """As IoT decides: the certificate's name stands in for the variable, * for anything in it."""
    for statement in document(who)["Statement"]:
        listed = statement["Resource"]
        for pattern in listed if isinstance(listed, list) else [listed]:
            exact = re.sub(r"([\[?])", r"[\1]", pattern.replace(_NAME, name))
            if statement["Action"] == action and fnmatch.fnmatchcase(f"{IOT}:{resource}", exact) and _plain(name):
                return True
    return False


def _plain(name: str) -> bool:
    return not set(name) & set("*?+#/$")


def test_an_agent_may_use_its_own_topics_and_ids_and_no_others() -> None:
    topics = f"sources/maestro-{OWN}/consumers"
    for action, resource in (
        ("iot:Connect", f"client/{OWN}.mc01"),
        ("iot:Connect", f"client/{OWN}.mc01-work-agent-client"),
        ("iot:Publish", f"topic/{topics}/mc01/agentevents"),
        ("iot:Subscribe", f"topicfilter/{topics}/mc01/sourceevents"),
        ("iot:Receive", f"topic/{topics}/mc01/sourceevents"),
    ):
        assert allowed("agent", "mc01", action, resource), resource
        assert not allowed("agent", "mc02", action, resource), resource
        assert not allowed("agent", "mc01", action, resource.replace(OWN, "integration-eu-west-1")), resource
    assert not allowed("agent", "mc01", "iot:Publish", f"topic/{topics}/mc01/sourceevents")
    assert not allowed("agent", "mc01", "iot:Subscribe", f"topicfilter/{topics}/+/sourceevents")
    assert not allowed("agent", "mc01", "iot:Connect", f"client/{OWN}.maestro-server-pod")


def test_the_server_may_send_specs_to_all_and_hear_all_of_its_region() -> None:
    topics = f"sources/maestro-{OWN}/consumers"
    for action, resource in (
        ("iot:Connect", f"client/{OWN}.maestro-server-6d5f8-x2k"),
        ("iot:Publish", f"topic/{topics}/mc01/sourceevents"),
        ("iot:Subscribe", f"topicfilter/{topics}/+/agentevents"),
        ("iot:Subscribe", f"topicfilter/$share/statussubscribers/{topics}/+/agentevents"),
        ("iot:Receive", f"topic/{topics}/mc01/agentevents"),
    ):
        assert allowed("server", "maestro-server", action, resource), resource
        elsewhere = resource.replace(OWN, "integration-eu-west-1")
        assert not allowed("server", "maestro-server", action, elsewhere), resource
    assert not allowed("server", "maestro-server", "iot:Publish", f"topic/{topics}/mc01/agentevents")


@pytest.mark.parametrize("who", ["server", "agent"])
def test_it_is_what_terraform_attaches(who: str) -> None:
    text = (checkout() / "terraform" / "modules" / _MODULES[who] / "main.tf").read_text()
    block = text[text.index("locals {") : text.index("\n}\n", text.index("locals {"))]
    known = dict(re.findall(r"^  ([a-z]+)\s+= \"(.*)\"$", block, re.M))
    known["iot"] = IOT

    def filled(template: str) -> str:
        template = template.replace("${var.region_id}", OWN).replace("$${", "$ {")
        while found := re.search(r"\$\{local\.([a-z]+)\}", template):
            inner = known[found.group(1)].replace("${var.region_id}", OWN).replace("$${", "$ {")
            template = template.replace(found.group(0), inner)
        return template.replace("$ {", "${")

    policy = text[text.index("Statement = [") : text.index('resource "aws_iot_policy_attachment"')]
    policy = policy.replace("[local.client,", '["${local.client}",')
    declared = {filled(item) for item in re.findall(r'"(\$\{local[^"]*)"', policy)}
    made = [statement["Resource"] for statement in document(who)["Statement"]]
    assert declared == {item for listed in made for item in (listed if isinstance(listed, list) else [listed])}


def test_what_is_not_known_is_asked_for() -> None:
    unknown = run("agent", *REGION)
    assert isinstance(unknown.exception, UserError)
    assert "--account" in unknown.exception.hint
    nowhere = run("agent", "--region", "atlantis", "--account", ACCOUNT)
    assert isinstance(nowhere.exception, UserError)
    assert "--aws-region" in nowhere.exception.hint


def test_an_account_that_is_none_is_called_that() -> None:
    refused = run("agent", *REGION, "--account", "123").exception
    assert isinstance(refused, UserError)
    assert refused.message == "'123' is not an account: they have 12 digits"
