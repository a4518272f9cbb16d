"""Get and list: answered from memory, at the revision the client asks for."""

from __future__ import annotations

from itertools import islice

from regional.core.clock import Clock
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.catalogue import store_name
from regional.kube.apiserver.entries import Entry, Obj
from regional.kube.apiserver.errors import bad_request, expired, future_revision, not_found, too_old
from regional.kube.apiserver.listoptions import ListOptions, continue_token, list_options, parse_token
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.selection import Selection, selection_of
from regional.kube.apiserver.store import Store
from regional.kube.messages import Response

PATIENCE = 3.0  # how long a request for a future revision is kept waiting

_TOKEN_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Reader:
    def __init__(self, store: Store, renderer: Renderer, clock: Clock) -> None:
        self._store = store
        self._renderer = renderer
        self._clock = clock

    def entry(self, call: Call) -> Entry:
        entry = self._store.get(store_name(call.kind), call.namespace, call.target.name)
        if entry is None:
            raise not_found(call.kind, call.target.name)
        return entry

    async def get(self, call: Call) -> Response:
        revision = call.request.parameter("resourceVersion")
        if revision:
            await self.wait_for(list_options(call.request, watch=True).revision or 0)
        include = call.request.parameter("includeObject")
        return self._renderer.single(200, call.kind, self.entry(call), call.wanted, include)

    async def wait_for(self, revision: int) -> None:
        waited = 0.0
        while self._store.revision < revision:
            if waited >= PATIENCE:
                raise future_revision(revision, self._store.revision)
            await self._clock.sleep(0.05)
            waited += 0.05

    async def listing(self, call: Call) -> Response:
        entries, meta = await self.page(call)
        include = call.request.parameter("includeObject")
        return await self._renderer.listing(call.kind, entries, meta, call.wanted, include)

    async def page(self, call: Call) -> tuple[list[Entry], Obj]:
        """What the parameters of a list ask for, and the list's own metadata."""
        options = list_options(call.request, watch=False)
        selection = selection_of(call.request, call.target, call.kind)
        if options.revision:
            await self.wait_for(options.revision)
        entries, meta = self._page(call, options, selection)
        if call.kind.custom is not None and call.wanted.shape == "object":
            meta = {"continue": ""} | meta  # custom kinds are untyped in Go, and their lists show it
        return entries, meta

    def _page(self, call: Call, options: ListOptions, selection: Selection) -> tuple[list[Entry], Obj]:
        shelf = self._store.shelf(store_name(call.kind))
        revision = self._store.revision
        start = ("", "")
        limit = 0 if options.revision == 0 else options.limit
        state = shelf.entries
        if options.token:
            wanted, start = parse_token(options.token, selection.namespace)
            if options.revision:
                raise bad_request("specifying resource version is not allowed when using continue")
            if wanted > 0:
                revision = wanted
        elif options.revision and (options.match == "Exact" or (not options.match and limit)):
            revision = options.revision
        if revision != self._store.revision:
            past = shelf.at(revision)
            if past is None and options.token:
                last = (start[0], start[1].rstrip("\0"))
                raise expired(_TOKEN_TOO_OLD, continue_token(-1, last, selection.namespace))
            if past is None:
                raise too_old(revision, shelf.undo_floor)
            state = past
        found = selection.entries(shelf, state, start)
        entries = list(islice(found, limit)) if limit else list(found)
        meta: Obj = {"resourceVersion": str(revision)}
        if limit and len(entries) == limit and next(found, None) is not None:
            meta["continue"] = continue_token(revision, entries[-1].key, selection.namespace)
            if not selection.filtered:
                meta["remainingItemCount"] = selection.size(shelf, state, start) - limit
        return entries, meta
