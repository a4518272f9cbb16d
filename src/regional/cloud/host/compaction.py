"""Which journaled calls still matter. Dropping one must be provably without effect on what remains visible.

Each call carries its own seed and account, so leaving calls out does not shift the ids of others. Dropped are:
sessions that have expired; a secret's values older than the current and the previous one (AWS deprecates them too);
the whole life of an SSM parameter or a secret that was deleted for good; S3 objects overwritten or deleted in buckets
without versions. SSM parameters that are merely overwritten stay: each put counts up the parameter's version. A call
that is not understood makes everything before it, about the same thing, stay.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from regional.cloud.host.calls import Call, Described, bucket_and_key, describe, json_body

_VALUE_FIELDS = frozenset({"SecretId", "SecretString", "SecretBinary", "ClientRequestToken"})
_PLAIN_OBJECT_QUERIES = frozenset({"", "x-id=PutObject", "x-id=DeleteObject"})
Place = tuple[str, str, str]  # account, region, name


class _Life(msgspec.Struct):
    """A named thing since its creation, as far as we followed it."""

    calls: list[int] = []
    values: list[int] = []  # of these, the plain value updates since the last call of another kind
    understood: bool = True


def needed(calls: list[Call], now: float) -> list[Call]:
    superseded = _Superseded(calls)
    return [
        call
        for index, call in enumerate(calls)
        if index not in superseded.dropped and not (call.session_key and call.session_until <= now)
    ]


class _Superseded:
    def __init__(self, calls: list[Call]) -> None:
        self.dropped: set[int] = set()
        self._parameters: defaultdict[Place, _Life] = defaultdict(_Life)
        self._secrets: defaultdict[Place, _Life] = defaultdict(_Life)
        self._objects: dict[tuple[str, str], int] = {}
        described = [describe(call) for call in calls]
        self._versioned = {
            bucket_and_key(call)[0]
            for call, what in zip(calls, described, strict=True)
            if what.service == "s3" and "versioning" in call.query
        }
        rules = {"ssm": self._parameter, "secretsmanager": self._secret, "s3": self._object}
        for index, (call, what) in enumerate(zip(calls, described, strict=True)):
            if rule := rules.get(what.service):
                rule(index, call, what)

    def _parameter(self, index: int, call: Call, what: Described) -> None:
        body = json_body(call)
        names = (
            body.get("Names") if isinstance(body.get("Names"), list) else [body.get("Name") or body.get("ResourceId")]
        )
        assert isinstance(names, list)
        for name in names:
            place = (call.account, what.region, str(name).lstrip("/"))
            life = self._parameters[place]
            life.calls.append(index)
            if what.action == "DeleteParameter":
                self._end(self._parameters, place)
            elif what.action != "PutParameter":
                life.understood = False

    def _secret(self, index: int, call: Call, what: Described) -> None:
        body = json_body(call)
        place = (call.account, what.region, _secret_name(str(body.get("SecretId") or body.get("Name") or "")))
        life = self._secrets[place]
        life.calls.append(index)
        if what.action == "DeleteSecret" and body.get("ForceDeleteWithoutRecovery") is True:
            self._end(self._secrets, place)
        elif what.action in ("PutSecretValue", "UpdateSecret") and set(body) <= _VALUE_FIELDS:
            life.values.append(index)
            if len(life.values) > 2:
                self.dropped.add(life.values.pop(0))
        else:
            life.values.clear()
            life.understood = life.understood and what.action == "CreateSecret"

    def _object(self, index: int, call: Call, what: Described) -> None:
        bucket, key = bucket_and_key(call)
        if call.header("x-amz-copy-source"):
            self._objects.clear()  # it read some other key as it was then
        if not key or bucket in self._versioned:
            return
        previous = self._objects.pop((bucket, key), None)
        if call.query not in _PLAIN_OBJECT_QUERIES or call.method not in ("PUT", "DELETE") or call.header("if-match"):
            return
        if previous is not None:
            self.dropped.add(previous)
        self._objects[(bucket, key)] = index

    def _end(self, lives: defaultdict[Place, _Life], place: Place) -> None:
        life = lives.pop(place)
        if life.understood:
            self.dropped.update(life.calls)


def _secret_name(identifier: str) -> str:
    """`arn:aws:secretsmanager:…:secret:name-AbCdEf` and `name` are the same secret."""
    if identifier.startswith("arn:"):
        return identifier.rpartition(":")[2].rpartition("-")[0]
    return identifier
