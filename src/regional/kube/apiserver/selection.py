"""Which objects a list, a watch or a deletecollection means: namespace, label selector, field selector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from regional.kube.apiserver.entries import Entry, Key
from regional.kube.apiserver.routing import Target
from regional.kube.apiserver.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from regional.kube.apiserver.shelf import Shelf
from regional.kube.messages import Request
from regional.kube.schema.registry import Kind


class Selection(msgspec.Struct, frozen=True):
    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    @property
    def filtered(self) -> bool:
        return bool(self.labels) or bool(self.fields)

    def matches(self, entry: Entry) -> bool:
        if self.namespace and entry.namespace != self.namespace:
            return False
        return self.labels.matches(entry.labels) and self.fields.matches(entry)

    def keys(self, shelf: Shelf, start: Key = ("", "")) -> list[Key]:
        """Candidates in order, by the narrowest way the shelf knows."""
        equal = self.fields.equalities()
        namespace = self.namespace or equal.get("metadata.namespace", "")
        if (name := equal.get("metadata.name")) is not None and (namespace or ("", name) in shelf.entries):
            return [key for key in [(namespace, name)] if key >= start]
        if (found := shelf.indexed(equal)) is not None:
            return [key for key in found if key >= start and (not namespace or key[0] == namespace)]
        return shelf.keys(namespace, start)

    def entries(
        self, shelf: Shelf, entries: Mapping[Key, Entry] | None = None, start: Key = ("", "")
    ) -> Iterator[Entry]:
        """`entries` is the state to choose from; the present one unless a past one is given."""
        if entries is None or entries is shelf.entries:
            present = shelf.entries
            candidates: list[Key] = self.keys(shelf, start)
            if not self.filtered:  # the keys are those of the namespace already
                yield from map(present.__getitem__, candidates)
                return
        else:
            present = dict(entries)
            candidates = sorted(key for key in present if key >= start)
        for key in candidates:
            entry = present.get(key)
            if entry is not None and self.matches(entry):
                yield entry

    def size(self, shelf: Shelf, entries: Mapping[Key, Entry], start: Key) -> int:
        """How many there are from `start` on; only for selections that filter nothing."""
        if entries is shelf.entries:
            return len(shelf.keys(self.namespace, start))
        return sum(1 for _ in self.entries(shelf, entries, start))


# Selectors speak of a field of the served kind; the shelf knows the stored one's.
_STORED_FIELDS = {"regarding": "involvedObject", "reportingController": "reportingComponent"}


def selection_of(request: Request, target: Target, kind: Kind) -> Selection:
    labels = parse_labels(request.parameter("labelSelector"))
    fields = parse_fields(request.parameter("fieldSelector"), kind)
    if kind.store != (kind.group, kind.plural):
        fields = FieldSelector(tuple((_stored(field), value, equal) for field, value, equal in fields.terms))
    if target.name:  # a watch on one object, by its path
        fields = FieldSelector((*fields.terms, ("metadata.name", target.name, True)))
    return Selection(target.namespace if kind.namespaced else "", labels, fields)


def _stored(field: str) -> str:
    head, dot, tail = field.partition(".")
    return _STORED_FIELDS.get(head, head) + dot + tail
