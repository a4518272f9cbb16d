"""CloudEvents as gRPC messages: the few of `io.cloudevents.v1` that Maestro speaks.

Described here by their published field numbers, rather than generated: a compiler for four messages would be one more
tool on every machine that builds this.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, empty_pb2, message_factory, timestamp_pb2

PACKAGE = "io.cloudevents.v1"
SERVICE = f"{PACKAGE}.CloudEventService"
_File = descriptor_pb2.FileDescriptorProto
_Field = descriptor_pb2.FieldDescriptorProto

_STRING, _BYTES, _BOOL, _INT32, _MESSAGE = (
    _Field.TYPE_STRING,
    _Field.TYPE_BYTES,
    _Field.TYPE_BOOL,
    _Field.TYPE_INT32,
    _Field.TYPE_MESSAGE,
)


def _add(message: Any, name: str, number: int, kind: int, type_name: str = "", *, one_of: int | None = None) -> Any:
    field = message.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    if type_name:
        field.type_name = type_name
    if one_of is not None:
        field.oneof_index = one_of
    return field


def _described() -> Any:
    file = _File(name="regional/cloudevents.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, any_pb2.DESCRIPTOR.name])
    value = file.message_type.add(name="CloudEventAttributeValue")
    value.oneof_decl.add(name="attr")
    kinds = (("boolean", _BOOL), ("integer", _INT32), ("string", _STRING), ("bytes", _BYTES))
    for number, (name, kind) in enumerate((*kinds, ("uri", _STRING), ("uri_ref", _STRING)), 1):
        _add(value, f"ce_{name}", number, kind, one_of=0)
    _add(value, "ce_timestamp", 7, _MESSAGE, ".google.protobuf.Timestamp", one_of=0)

    event = file.message_type.add(name="CloudEvent")
    for number, name in enumerate(("id", "source", "spec_version", "type"), 1):
        _add(event, name, number, _STRING)
    entry = event.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, _STRING)
    _add(entry, "value", 2, _MESSAGE, f".{PACKAGE}.CloudEventAttributeValue")
    attributes = _add(event, "attributes", 5, _MESSAGE, f".{PACKAGE}.CloudEvent.AttributesEntry")
    attributes.label = _Field.LABEL_REPEATED
    event.oneof_decl.add(name="data")
    _add(event, "binary_data", 6, _BYTES, one_of=0)
    _add(event, "text_data", 7, _STRING, one_of=0)
    _add(event, "proto_data", 8, _MESSAGE, ".google.protobuf.Any", one_of=0)

    _add(file.message_type.add(name="PublishRequest"), "event", 1, _MESSAGE, f".{PACKAGE}.CloudEvent")
    subscription = file.message_type.add(name="SubscriptionRequest")
    for number, name in enumerate(("source", "cluster_name", "data_type"), 1):
        _add(subscription, name, number, _STRING)
    return file


_pool = descriptor_pool.Default()
_pool.Add(_described())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


CloudEvent = _message("CloudEvent")
PublishRequest = _message("PublishRequest")
SubscriptionRequest = _message("SubscriptionRequest")
Empty: Any = empty_pb2.Empty
