"""CloudEvents as MQTT 5 messages, in the binding that Maestro uses.

Not the official binding's names: each attribute is a user property with the prefix `ce-`, the content type is MQTT's
own, and the payload is the bare data. Structured mode is understood and never sent. Values arrive as strings.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

DATA_TYPE = "io.open-cluster-management.works.v1alpha1.manifestbundles"
JSON = "application/json"
STRUCTURED = "application/cloudevents+json"
_PREFIX = "ce-"
_REQUIRED = ("specversion", "id", "source", "type")
_CORE = (*_REQUIRED, "time")

SPEC = "spec"
STATUS = "status"
CREATE = "create_request"
UPDATE = "update_request"
DELETE = "delete_request"
RESYNC = "resync_request"
RESYNC_RESPONSE = "resync_response"


class MalformedEvent(ValueError):
    """What arrived is not an event of ours; the text says what is wrong with it."""


class Event(msgspec.Struct, kw_only=True, frozen=True):
    source: str
    type: str
    id: str = ""
    time: str = ""
    extensions: dict[str, str] = {}
    data: bytes = b""

    @property
    def subresource(self) -> str:
        return self.type.rsplit(".", 2)[1]

    @property
    def action(self) -> str:
        return self.type.rsplit(".", 1)[1]

    @property
    def consumer(self) -> str:
        return self.extensions.get("clustername", "")

    @property
    def resource_id(self) -> str:
        return self.extensions.get("resourceid", "")

    @property
    def version(self) -> int:
        """The spec's version; 0 when the event does not say."""
        text = self.extensions.get("resourceversion") or "0"
        try:
            return int(text)
        except ValueError:
            raise MalformedEvent(f"resourceversion {text[:40]!r} is not a number") from None


class Message(msgspec.Struct, frozen=True):
    """An event as MQTT carries it."""

    properties: list[tuple[str, str]]
    content_type: str
    payload: bytes


def event_type(subresource: str, action: str) -> str:
    return f"{DATA_TYPE}.{subresource}.{action}"


def encode(event: Event) -> Message:
    core = {"specversion": "1.0", "id": event.id or str(uuid.uuid4()), "source": event.source, "type": event.type}
    if event.time:
        core["time"] = event.time
    properties = [(_PREFIX + name, value) for name, value in (core | event.extensions).items()]
    return Message(properties, JSON if event.data else "", event.data)


def decode(properties: Iterable[tuple[str, str]], content_type: str, payload: bytes) -> Event:
    if content_type.startswith(STRUCTURED):
        attributes, data = _structured(payload)
    else:
        attributes = {name[len(_PREFIX) :].lower(): value for name, value in properties if name.startswith(_PREFIX)}
        data = payload
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise MalformedEvent(f"no {', '.join(missing)}")
    if any("\x00" in value for value in attributes.values()):
        raise MalformedEvent("an attribute holds a NUL character")
    if attributes["specversion"] != "1.0":
        raise MalformedEvent(f"specversion {attributes['specversion'][:20]!r} is not 1.0")
    kind = attributes["type"]
    if not kind.startswith(DATA_TYPE + ".") or kind[len(DATA_TYPE) :].count(".") != 2:
        raise MalformedEvent(f"type {kind[:120]!r} is not one of manifest bundles")
    return Event(
        id=attributes["id"],
        source=attributes["source"],
        type=kind,
        time=attributes.get("time", ""),
        extensions={name: value for name, value in attributes.items() if name not in _CORE},
        data=data,
    )


def _structured(payload: bytes) -> tuple[dict[str, str], bytes]:
    try:
        document = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        data = bytes(document.pop("data", b""))
        encoded = document.pop("data_base64", None)
        if encoded is not None:
            data = base64.b64decode(msgspec.json.decode(encoded, type=str), validate=True)
        document.pop("datacontenttype", None)
        attributes = {name.lower(): _text(msgspec.json.decode(value)) for name, value in document.items()}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedEvent(f"structured event: {error}") from None
    return attributes, data


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode()


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with as many decimals as the moment has, the way Go prints it."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6]  # without its +00:00
    return text.rstrip("0").rstrip(".") + "Z"


def moment(text: str) -> datetime:
    """RFC 3339; decimals beyond microseconds are cut off. Raises MalformedEvent."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedEvent(f"time {text[:40]!r} is not RFC 3339") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
