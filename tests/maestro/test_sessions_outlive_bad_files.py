"""Certificates are files that others replace: what cannot be used costs nobody a session that works."""

from __future__ import annotations

import pytest

from regional.core import pki
from regional.core.mqtt import NotPublished
from regional.maestro.protocol.bundles import spec_resync_events
from tests.maestro.harness import Maestro, Wire, connected, eventually, running


@pytest.mark.parametrize("file", ["tls.key", "tls.crt", "ca.crt", "config.yaml"])
@pytest.mark.parametrize("content", ["garbage", ""])
async def test_a_session_goes_on_until_its_new_files_are_good(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, file: str, content: str
) -> None:
    monkeypatch.setattr("regional.core.mqtt._CHANGE_SECONDS", 0.02)
    mount = maestro.secrets("mc01")
    wire = Wire(str(mount / "config.yaml"), "mc01")
    async with running(wire.broker.keep_connected()):
        await connected(wire.broker.dependency)
        former = wire.broker.certificate_id
        good = (mount / file).read_text()
        (mount / file).write_text(content)

        async def noticed() -> bool:
            return any("goes on with its former files" in record.message for record in caplog.records)

        await eventually(noticed)
        assert wire.broker.connected and await answered(wire)

        pair = pki.issue(maestro.broker.authorities.signer_of("mc01").pair(), "mc01")
        (mount / file).write_text(good)
        (mount / "tls.crt").write_text(pair.certificate)
        (mount / "tls.key").write_text(pair.key)

        async def new() -> bool:
            return wire.broker.certificate_id != former and await answered(wire)

        await eventually(new)


async def answered(wire: Wire) -> bool:
    (event,) = spec_resync_events("mc01", "mc01", [])
    try:
        await wire.send(event)
    except NotPublished:
        return False
    return True
