"""Events as gRPC carries them: attributes by the prefix `ce-`, the content type without it, and data always binary."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from regional.maestro.protocol.cloudevents_pb import CloudEvent
from regional.maestro.protocol.events import DATA_TYPE, JSON, Event, MalformedEvent, moment, timestamp

HEARTBEAT = "io.open-cluster-management.cloudevents.heartbeat"
_PREFIX = "ce-"


def encode(event: Event) -> Any:
    """Every extension is a string, as in the stream of a Go server; only the time is a timestamp."""
    message = CloudEvent(id=event.id or str(uuid.uuid4()), source=event.source, spec_version="1.0", type=event.type)
    if event.time:
        message.attributes["ce-time"].ce_timestamp.FromDatetime(moment(event.time))
    for name, value in event.extensions.items():
        message.attributes[_PREFIX + name].ce_string = value
    message.attributes["contenttype"].ce_string = JSON
    message.binary_data = event.data
    return message


def heartbeat() -> Any:
    return CloudEvent(id=str(uuid.uuid4()), spec_version="1.0", type=HEARTBEAT)


def decode(message: Any) -> Event:
    """Raises MalformedEvent."""
    if message.spec_version != "1.0":
        raise MalformedEvent(f"specversion {message.spec_version[:20]!r} is not 1.0")
    missing = [name for name in ("id", "source", "type") if not getattr(message, name)]
    if missing:
        raise MalformedEvent(f"no {', '.join(missing)}")
    if not message.type.startswith(DATA_TYPE + ".") or message.type[len(DATA_TYPE) :].count(".") != 2:
        raise MalformedEvent(f"type {message.type[:120]!r} is not one of manifest bundles")
    attributes = {
        name[len(_PREFIX) :].lower(): _text(name, value)
        for name, value in message.attributes.items()
        if name.startswith(_PREFIX)
    }
    return Event(
        id=message.id,
        source=message.source,
        type=message.type,
        time=attributes.pop("time", ""),
        extensions=attributes,
        data=_data(message),
    )


def _text(name: str, value: Any) -> str:
    kind = value.WhichOneof("attr")
    if kind is None:
        raise MalformedEvent(f"{name[:80]!r} has no value")
    found = getattr(value, kind)
    if kind == "ce_boolean":
        return "true" if found else "false"
    if kind == "ce_timestamp":
        return _moment(name, found)
    if kind == "ce_bytes":
        raise MalformedEvent(f"{name[:80]!r} is neither text nor a number")
    return str(found)


def _moment(name: str, found: Any) -> str:
    try:
        moment: datetime = found.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise MalformedEvent(f"{name[:80]!r} is not a moment") from None
    return timestamp(moment)


def _data(message: Any) -> bytes:
    kind = message.WhichOneof("data")
    if kind == "proto_data":
        raise MalformedEvent("data is neither binary nor text")
    if kind == "text_data":
        text: str = message.text_data
        return text.encode()
    data: bytes = message.binary_data
    return data
