"""Protobuf request bodies decode into the very objects their JSON twins are.

The samples were encoded by Kubernetes' own Go library from the JSON beside them.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regional.kube.schema.errors import DecodeError
from regional.kube.schema.protobuf import MAGIC, decode

SAMPLES = json.loads((Path(__file__).parent / "protobuf_samples.json").read_text())


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["json"]["kind"])
def test_a_body_equals_its_json_twin(sample: dict[str, Any]) -> None:
    assert decode(base64.b64decode(sample["protobuf"])) == without_nulls(sample["json"])


def test_a_body_that_is_no_protobuf_is_refused() -> None:
    with pytest.raises(DecodeError, match="expected prefix"):
        decode(b'{"kind":"Pod"}')


def test_a_kind_nobody_knows_is_refused() -> None:
    body = MAGIC + b"\x0a\x0c\x0a\x02v1\x12\x06Gadget\x12\x00"
    with pytest.raises(DecodeError, match="Gadget"):
        decode(body)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def message(number: int, content: bytes) -> bytes:
    """One field that holds a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def body_of(api_version: str, kind: str, content: bytes) -> bytes:
    return MAGIC + message(1, message(1, api_version.encode()) + message(2, kind.encode())) + message(2, content)


@pytest.mark.parametrize("seconds", [b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x40"])
def test_a_time_that_no_calendar_has_is_refused(seconds: bytes) -> None:
    created = message(8, b"\x08" + seconds)
    with pytest.raises(DecodeError):
        decode(body_of("v1", "ConfigMap", message(1, created)))


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    schema = b""
    for _ in range(3_000):
        schema = message(28, schema)  # not: {not: {…}}
    version = message(1, b"v1") + message(4, message(1, schema))
    spec = message(1, b"example.com") + message(7, version)
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode(body_of("apiextensions.k8s.io/v1", "CustomResourceDefinition", message(2, spec)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(SAMPLES) - 1), st.integers(0, 10_000), st.binary(max_size=4))
def test_a_damaged_body_is_refused_or_read_but_never_crashes(index: int, at: int, noise: bytes) -> None:
    body = base64.b64decode(SAMPLES[index]["protobuf"])
    cut = 4 + at % (len(body) - 4)
    try:
        decode(body[:cut] + noise + body[cut + len(noise) :])
    except DecodeError:
        pass
