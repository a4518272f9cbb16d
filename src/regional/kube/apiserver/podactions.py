"""What is done to a pod besides editing it: put on a node (binding), asked to leave (eviction)."""

from __future__ import annotations

import msgspec

from regional.core.clock import Clock
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.deletes import DeleteOptions, Deleter, check_preconditions, delete_options
from regional.kube.apiserver.entries import Obj, encode
from regional.kube.apiserver.errors import StatusError, bad_request, other_object
from regional.kube.apiserver.evictions import Budgets
from regional.kube.apiserver.incoming import decode_body
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.writes import Writer
from regional.kube.messages import Response
from regional.kube.objects import set_condition
from regional.kube.schema.registry import BODY_KINDS, BUILTINS, by_kind

BINDING = next(kind for kind in BUILTINS if kind.kind == "Binding")
EVICTION = next(kind for kind in BODY_KINDS if kind.kind == "Eviction")
_SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class PodActions:
    def __init__(self, writer: Writer, deleter: Deleter, renderer: Renderer, clock: Clock, budgets: Budgets) -> None:
        self._budgets = budgets
        self._writer = writer
        self._deleter = deleter
        self._renderer = renderer
        self._clock = clock

    async def bind_by_name(self, call: Call) -> Response:
        """POST …/bindings, the older way: the pod is named in the body."""
        binding = decode_body(call.request, BINDING)
        pods = by_kind("", "v1", "Pod")
        assert pods is not None
        name = str(binding["metadata"].get("name") or "")
        if not name:
            raise bad_request("Name parameter required.")
        target = msgspec.structs.replace(call.target, plural="pods", name=name)
        return await self._bind(msgspec.structs.replace(call, kind=pods, target=target), binding)

    async def bind(self, call: Call) -> Response:
        binding = decode_body(call.request, BINDING)
        _check_named(call, binding, "Binding")
        return await self._bind(call, binding)

    async def _bind(self, call: Call, binding: Obj) -> Response:
        node = _target_node(binding)
        wanted = binding["metadata"]
        name = call.target.name

        def assign(pod: Obj) -> None:
            for what, field in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
                given, found = wanted.get(field), pod["metadata"][field]
                if given and given != found:
                    raise other_object(call.kind, call.namespace, name, given, found, what)
            if pod["metadata"].get("deletionTimestamp"):
                raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
            if pod["spec"].get("schedulingGates"):
                raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")
            if assigned := pod["spec"].get("nodeName"):
                raise _refused(name, f'pod {name} is already assigned to node "{assigned}"')
            pod["spec"]["nodeName"] = node
            set_condition(pod, "PodScheduled", True, "", now=self._clock.now())
            for condition in pod["status"]["conditions"]:
                condition.setdefault("lastProbeTime", None)
                for empty in [key for key in ("reason", "message") if condition.get(key) == ""]:
                    del condition[empty]

        await self._writer.alter(call, assign)
        return self._renderer.document(201, _SUCCESS, call.wanted)

    async def evict(self, call: Call) -> Response:
        eviction = decode_body(call.request, EVICTION)
        _check_named(call, eviction, "Eviction")
        options = eviction.get("deleteOptions") or {}
        request = msgspec.structs.replace(call.request, body=encode(options), headers={})
        inner = msgspec.structs.replace(call, request=request)
        wish: DeleteOptions = delete_options(inner)
        await self._budgets.spend(call.namespace, call.target.name, dry_run=wish.dry_run)
        if not wish.dry_run:

            def mark(pod: Obj) -> None:
                metadata = pod["metadata"]
                check_preconditions(call.kind, metadata["name"], metadata["uid"], metadata["resourceVersion"], wish)
                self._mark_disrupted(pod)

            await self._writer.alter(call, mark)
            wish = msgspec.structs.replace(wish, revision="")  # the mark is a new one
        await self._deleter.remove(inner, call.namespace, call.target.name, wish)
        return self._renderer.document(201, _SUCCESS, call.wanted)

    def _mark_disrupted(self, pod: Obj) -> None:
        """Whoever counts failures (a Job's podFailurePolicy) can tell this end from the pod's own."""
        now, message = self._clock.now(), "Eviction API: evicting"
        set_condition(pod, "DisruptionTarget", True, "EvictionByEvictionAPI", message, now=now)


def _check_named(call: Call, sent: Obj, what: str) -> None:
    """The body says again which pod is meant; one that says another was sent by mistake."""
    metadata = sent["metadata"]
    if metadata.get("namespace") not in (None, "", call.namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if metadata.get("name") != call.target.name:
        raise bad_request(f"name in URL does not match name in {what} object")


def _target_node(binding: Obj) -> str:
    target: Obj = binding.get("target") or {}
    problems = []
    if (kind := target.get("kind") or "") not in ("", "Node"):
        problems.append(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        problems.append("target.name: Required value")
    if problems:
        raise bad_request(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return str(target["name"])


def _refused(name: str, why: str) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
        {"name": name, "kind": "pods/binding"},
    )
