"""Who owns what: children by owner uid, orphans adopted when the selector matches, strangers let go.

A child belongs to exactly one controller. Adoption and release are compare-and-swap writes with the child's uid, so
that two owners with overlapping selectors cannot both win.
"""

from __future__ import annotations

from regional.kube.client import ApiError, Informer
from regional.kube.controllers.context import Context
from regional.kube.objects import (
    Obj,
    is_deleting,
    labels_of,
    matches,
    name_of,
    namespace_of,
    owner_of,
    owner_reference,
    owners_of,
    spec_of,
    uid_of,
    version_of,
)


async def claim(context: Context, owner: Obj, children: Informer, *, selector: Obj | None = None) -> list[Obj]:
    """The children of `owner`, after adopting and releasing."""
    selector = selector if selector is not None else spec_of(owner).get("selector")
    mine: list[Obj] = []
    for child in children.indexed("owner", uid_of(owner)):
        if not selector or matches(selector, labels_of(child)) or is_deleting(child) or is_deleting(owner):
            mine.append(child)
        else:
            await _write_owners(context, children, child, [o for o in owners_of(child) if o["uid"] != uid_of(owner)])
    if is_deleting(owner) or not selector:
        return mine
    for child in children.in_namespace(namespace_of(owner)):
        if owner_of(child) is None and not is_deleting(child) and matches(selector, labels_of(child)):
            others = [o for o in owners_of(child) if o["uid"] != uid_of(owner)]
            adopted = await _write_owners(context, children, child, [*others, owner_reference(owner)])
            if adopted is not None:
                mine.append(adopted)
    return mine


async def _write_owners(context: Context, children: Informer, child: Obj, owners: list[Obj]) -> Obj | None:
    patch = {
        "metadata": {
            "uid": uid_of(child),
            "resourceVersion": version_of(child),
            "ownerReferences": owners or None,
        }
    }
    try:
        changed = await context.client.patch(
            children.api_version, children.kind, name_of(child), namespace_of(child), patch
        )
    except ApiError as error:
        if error.not_found or error.status == 422:
            return None
        raise
    children.observe(changed)
    return changed
