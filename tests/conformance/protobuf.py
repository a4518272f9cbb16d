"""Just enough protobuf to write a request body by hand and to look into an answer."""

from __future__ import annotations

from collections.abc import Iterator

Value = int | str | bytes


def varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1  # negative numbers are 64-bit two's complement
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields: tuple[int, Value]) -> bytes:
    """`message((1, "name"), (2, 5), (3, message(…)))`."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(content)) + content
    return out


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """A Kubernetes body: four magic bytes, then the type and the message of that type."""
    return b"k8s\0" + message((1, message((1, api_version), (2, kind))), (2, raw), (3, ""), (4, ""))


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a message of varints and length-delimited fields."""
    at = 0

    def read() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = content[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(content):
        tag = read()
        if tag & 7 == 0:
            yield tag >> 3, read()
        else:
            assert tag & 7 == 2, f"wire type {tag & 7} at {at}"
            size = read()
            assert at + size <= len(content)
            yield tag >> 3, content[at : at + size]
            at += size
