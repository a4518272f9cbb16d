"""Service account tokens for pods: asked of the API (TokenRequest), bound to the pod, renewed at 80 % of their life."""

from __future__ import annotations

from datetime import timedelta

from regional.core.clock import Clock
from regional.kube.client import ApiError, Client
from regional.kube.node.volumes import VolumeProblem
from regional.kube.objects import Obj, name_of, namespace_of, parse_time, spec_of, uid_of


class ApiTokens:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def token(self, pod: Obj, audience: str, seconds: int) -> tuple[str, float]:
        account = spec_of(pod).get("serviceAccountName") or "default"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod)},
            },
        }
        try:
            answer = await self._client.create_in("v1", "ServiceAccount", account, namespace_of(pod), "token", request)
        except ApiError as error:
            raise VolumeProblem(f'no token for service account "{account}": {error.message}') from error
        now = self._clock.now()
        expires = parse_time(answer["status"].get("expirationTimestamp")) or now + timedelta(seconds=seconds)
        return answer["status"]["token"], max(1.0, (expires - now).total_seconds() * 0.8)
