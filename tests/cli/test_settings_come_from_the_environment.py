from __future__ import annotations

import pytest

from tests.cli.conftest import Place, Shell


@pytest.mark.parametrize("missing", ["API_GATEWAY_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
async def test_a_missing_setting_is_named_with_the_command_that_sets_it(place: Place, missing: str) -> None:
    result = await place.customer.having(**{missing: None}).run("cluster", "list")
    assert result.code == 1
    assert missing in result.err
    assert 'eval "$(regionctl env)"' in result.err
    assert result.out == ""


async def test_the_url_may_have_scheme_and_stage(place: Place) -> None:
    for url in (f"https://{place.door.host}/prod", f"https://{place.door.host}"):
        await place.customer.having(API_GATEWAY_URL=url).succeed("cluster", "list")


async def test_a_region_that_does_not_answer_is_told_apart_from_one_that_refuses(place: Place) -> None:
    result = await place.customer.having(API_GATEWAY_URL="127.0.0.1:1").run("cluster", "list")
    assert result.code == 3
    assert "cannot be reached" in result.err
    assert "regionctl status" in result.err


async def test_an_authority_that_is_not_this_regions_is_said_in_words(place: Place, tmp_path_factory: object) -> None:
    result = await place.customer.having(AWS_CA_BUNDLE=None).run("cluster", "list")
    assert result.code == 3
    assert "certificate" in result.err
    assert "Traceback" not in result.err
    result = await place.customer.having(AWS_CA_BUNDLE="/nowhere/ca.crt").run("cluster", "list")
    assert result.code == 1
    assert "/nowhere/ca.crt" in result.err


async def test_wrong_keys_are_refused_by_the_edge_and_the_hint_says_what_to_do(place: Place) -> None:
    for wrong in ({"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "AKIANOBODY"}):
        result = await place.customer.having(**wrong).run("cluster", "list")
        assert result.code == 1
        assert "regionctl env" in result.err


async def test_a_customer_may_not_run_the_region_and_is_told(place: Place) -> None:
    result = await place.customer.run("account", "list")
    assert result.code == 1
    assert "may not manage the region" in result.err


async def test_no_command_needs_the_settings_to_explain_itself() -> None:
    from pathlib import Path

    nobody = Shell({}, Path("/nowhere"))
    for command in ("cluster", "nodepool", "management-cluster", "bundle", "work", "account"):
        text = (await nobody.succeed(command, "--help")).out
        assert "regionctl " in text, text
    for command in (
        ("cluster", "create"),
        ("nodepool", "scale"),
        ("bundle", "describe"),
        ("work", "create"),
        ("trace",),
    ):
        assert "Example" in (await nobody.succeed(*command, "--help")).out
