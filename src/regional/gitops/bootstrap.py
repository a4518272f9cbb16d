"""The bootstrap task: brings a fresh, private cluster to the point where GitOps takes over, and proves that it did.

The controller is installed from the very chart, values and revision with which it will manage itself: the task
evaluates the cluster's own ApplicationSet and applies the Application `argocd` that comes out, marked as that
Application's. When the controller then syncs itself there is nothing to change, and no second owner. Every step looks
before it acts, so a run that was killed anywhere is finished by the next one, and a run on a live cluster changes
nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from regional.core.clock import Clock, SystemClock
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.problems import UserError
from regional.core.settings import load
from regional.gitops.applicationset import API_VERSION, EvaluationError, evaluate
from regional.gitops.generators import GeneratorError
from regional.gitops.handoff import Handoff
from regional.gitops.health import HEALTHY, Health, health_of
from regional.gitops.helm import Helm
from regional.gitops.identity import ClusterIdentity, Facts
from regional.gitops.inventory import Inventory
from regional.gitops.manifests import ObjectKey
from regional.gitops.operation import SUCCEEDED, Operation
from regional.gitops.repo import RepoError, Repositories
from regional.gitops.sources import ComparisonError, Sources
from regional.gitops.targets import TargetState
from regional.gitops.waves import parse_options, plan
from regional.kube.client import ApiError, ApiUnreachable, Client
from regional.kube.objects import Obj, name_of, spec_of, status_of, uid_of

CONTROLLER = "argocd"
FIELD_MANAGER = "bootstrap"
POLL = 0.1
Report = Callable[[str], None]


class BootstrapSettings(msgspec.Struct, kw_only=True):
    kubeconfig: str
    git_repo: str
    git_revision: str
    environment: str
    region_alias: str
    aws_region: str
    cluster_type: str
    cluster_name: str
    facts: list[str] = []  # --fact key=value, any number of times
    namespace: str = "argocd"
    timeout: float = 300.0
    wait_all: bool = False
    helm: str = "helm"
    git: str = "git"

    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(
            cluster_type=self.cluster_type,
            cluster_name=self.cluster_name,
            environment=self.environment,
            region_alias=self.region_alias,
            aws_region=self.aws_region,
            git_repo=self.git_repo,
            git_revision=self.git_revision,
            namespace=self.namespace,
            facts=Facts.parse(self.facts),
        )


class Bootstrap:
    def __init__(
        self, client: Client, settings: BootstrapSettings, cache: Path, *, report: Report, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._report = report
        self._identity = settings.identity()
        self._deadline = self._clock.monotonic() + settings.timeout
        self._repositories = Repositories(cache, git=settings.git)
        self._helm = Helm(cache / "helm", binary=settings.helm)
        self._sources = Sources(self._repositories, self._helm)
        self._uids: dict[tuple[str, ObjectKey], str] = {}  # (apiVersion, which object) -> uid

    async def run(self) -> None:
        self._identity.check()
        try:
            await self._wait_for_api()
            application = await self._steadily("read the cluster's ApplicationSet", self._own_application)
            await self._steadily("install the controller", lambda: self._install(application))
            await self._wait_for_controller()
            await self._steadily("write the cluster's identity", lambda: self._apply(self._identity.secret()))
            self._report("identity: secret local-cluster-identity is in place")
            await self._steadily("create the root Application", lambda: self._apply(self._identity.root()))
            self._report(f"root: Application root follows {self._identity.manifests} at {self._identity.git_revision}")
            await self._wait_for_handoff()
        finally:
            await self._helm.close()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _left(self) -> float:
        return self._deadline - self._clock.monotonic()

    async def _steadily(self, what: str, act: Callable[[], Awaitable[Obj | None]]) -> Obj:
        """Again while the API does not answer: it may be restarting, and every step may be done twice."""
        while True:
            try:
                return await act() or {}
            except ApiUnreachable as error:
                if self._left() <= 0:
                    raise UserError(f"cannot {what}: {error}") from None
            except ApiError as error:
                raise UserError(f"cannot {what}: {error}") from None
            await self._clock.sleep(POLL)

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _wait_for_api(self) -> None:
        reason = "no answer"
        while self._left() > 0:
            try:
                status, _, body = await self._client.request("GET", "/readyz")
                if status == 200:
                    self._report("api: the cluster answers")
                    return
                reason = f"{status} {body[:200].decode(errors='replace')}".strip()
            except ApiUnreachable as error:
                reason = str(error)
            await self._clock.sleep(POLL)
        raise UserError(f"the cluster's API was not ready in {self._settings.timeout:.0f} s: {reason}")

    async def _own_application(self) -> Obj:
        """The Application `argocd` that the cluster's ApplicationSet will generate for this identity."""
        identity = self._identity
        status, _, body = await self._client.request("GET", "/version")
        if status == 200:
            self._sources.kube_version = str(msgspec.json.decode(body).get("gitVersion", "")).removeprefix("v")
        try:
            rendering = await self._sources.render(identity.root())
        except ComparisonError as error:
            raise UserError(
                str(error), hint=f"is {identity.manifests} rendered and committed? see `regionctl config render`"
            ) from None
        sets = [obj for obj in rendering.objects if obj["kind"] == "ApplicationSet"]
        found: list[Obj] = []
        warnings: list[str] = []
        for applicationset in sets:
            try:
                evaluation = await evaluate(applicationset, [identity.cluster()], self._directories)
            except EvaluationError as error:
                raise UserError(f"ApplicationSet {name_of(applicationset)}: {error}") from None
            found += evaluation.applications
            warnings += evaluation.warnings
        if warnings:
            raise UserError("the cluster's ApplicationSet is not safe to start: " + "; ".join(warnings))
        own = next((app for app in found if name_of(app) == CONTROLLER), None)
        if own is None:
            names = ", ".join(name_of(app) for app in found) or "none"
            raise UserError(
                f"no Application {CONTROLLER!r} for this cluster: it would not manage itself (has: {names})"
            )
        self._report(f"plan: {len(found)} applications at {rendering.revisions}: {', '.join(map(name_of, found))}")
        return own

    async def _directories(self, url: str, revision: str) -> tuple[str, ...]:
        try:
            return await self._repositories.directories(url, await self._repositories.resolve(url, revision))
        except RepoError as error:
            raise GeneratorError(str(error)) from None

    async def _install(self, application: Obj) -> None:
        try:
            targets = await TargetState(self._client, self._sources).of(application)
        except ComparisonError as error:
            raise UserError(f"the controller's chart: {error}") from None
        if await self._self_managed():
            for target in targets.objects:
                live = await self._client.get_or_none(
                    target["apiVersion"], target["kind"], name_of(target), target["metadata"].get("namespace")
                )
                self._uids |= {(target["apiVersion"], ObjectKey.of(target)): uid_of(live)} if live else {}
            self._report("install: the controller is there and manages itself")
            return
        options = parse_options((spec_of(application).get("syncPolicy") or {}).get("syncOptions") or [])
        inventory = Inventory(self._client, lambda *_: None)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._identity.namespace}}
        tasks = plan(
            targets.objects,
            {},
            (),
            options=options,
            revision=targets.revisions.commits[0],
            started=int(self._clock.now().timestamp()),
        )
        try:
            operation = Operation(
                self._client, inventory, self._clock, tasks, options=options, prune=False, namespace=namespace
            )
            while operation.phase == "Running":
                await operation.step()
                if operation.phase == "Running":
                    if self._left() <= 0:
                        raise UserError(f"the controller's chart was not applied in time: {operation.message}")
                    await self._clock.sleep(POLL)
        finally:
            await inventory.close()
        if operation.phase != SUCCEEDED:
            raise UserError(f"the controller's chart was not applied: {operation.message}")
        self._uids = {
            (task.obj["apiVersion"], task.key): uid_of(task.live)
            for task in operation.tasks
            if task.live and not task.hook
        }
        self._report(f"install: {len(self._uids)} objects of the controller applied at {targets.revisions}")

    async def _self_managed(self) -> bool:
        """Handed over before, and able to go on by itself: then the chart is the controller's business, not ours."""
        try:
            application = await self._client.get_or_none(
                API_VERSION, "Application", CONTROLLER, self._identity.namespace
            )
        except ApiError as error:
            if error.not_found:
                return False
            raise
        synced = (status_of(application or {}).get("sync") or {}).get("status") == "Synced"
        return synced and (await self._controller_health()).status == HEALTHY

    async def _controller_health(self) -> Health:
        deployment = await self._client.get_or_none("apps/v1", "Deployment", CONTROLLER, self._identity.namespace)
        if deployment is None:
            return Health("Missing", "its Deployment does not exist")
        if spec_of(deployment).get("replicas") == 0:
            return Health("Missing", "its Deployment has no replicas")
        return health_of(deployment) or Health("Unknown")

    async def _wait_for_controller(self) -> None:
        health = Health("Unknown", "the API did not answer")
        while self._left() > 0:
            try:
                health = await self._controller_health()
            except ApiUnreachable as error:
                health = Health("Unknown", str(error))
            if health.status == HEALTHY:
                self._report("controller: Deployment argocd is available")
                return
            await self._clock.sleep(POLL)
        raise UserError(f"the controller did not become available: {health.message}{await self._pods()}")

    async def _pods(self) -> str:
        """Why pods wait, for the error a person reads."""
        try:
            pods = await self._client.list("v1", "Pod", self._identity.namespace)
        except ApiError:
            return ""
        reasons = []
        for pod in pods:
            for container in status_of(pod).get("containerStatuses") or []:
                waiting = (container.get("state") or {}).get("waiting") or {}
                if waiting:
                    reasons.append(
                        f"pod {name_of(pod)}: {waiting.get('reason', '')} {waiting.get('message', '')}".strip()
                    )
        return "; " + "; ".join(reasons) if reasons else ""

    async def _apply(self, obj: Obj) -> Obj:
        return await self._client.apply(obj, field_manager=FIELD_MANAGER, force=True)

    async def _wait_for_handoff(self) -> None:
        handoff = Handoff(
            self._client, self._identity, self._repositories, self._uids, wait_all=self._settings.wait_all
        )
        told = ""
        waiting = "nothing was looked at"
        while self._left() > 0:
            try:
                waiting = await handoff.missing()
            except ApiUnreachable as error:
                waiting = str(error)
            if not waiting:
                self._report("handoff: the controller manages itself and the cluster; nothing is left to do here")
                return
            if waiting != told:
                told = waiting
                self._report(f"handoff: waiting: {waiting}")
            await self._clock.sleep(POLL)
        raise UserError(f"the handoff was not complete in {self._settings.timeout:.0f} s: {waiting}")


def _say(line: str) -> None:
    print(line, flush=True)


async def bootstrap(
    settings: BootstrapSettings, *, client: Client | None = None, report: Report = _say, clock: Clock | None = None
) -> None:
    """Raises UserError with one clear reason."""
    own = client or Client.from_kubeconfig(settings.kubeconfig, user_agent="bootstrap")
    with tempfile.TemporaryDirectory(prefix="regional-bootstrap-") as cache:
        try:
            await Bootstrap(own, settings, Path(cache), report=report, clock=clock).run()
        finally:
            if client is None:
                await own.close()


def parse(argv: list[str]) -> BootstrapSettings:
    """`--fact` may be given again and again, which the settings of roles do not know."""
    rest: list[str] = []
    facts: list[str] = []
    words = iter(argv)
    for word in words:
        flag, separator, value = word.partition("=")
        if flag == "--fact":
            facts.append(value if separator else next(words, ""))
        else:
            rest.append(word)
    settings = load(BootstrapSettings, rest)
    settings.facts = [*settings.facts, *facts]
    return settings


def main(argv: list[str]) -> int:
    settings = parse(argv)
    setup_logging("bootstrap", "warning")
    run(bootstrap(settings))
    return 0


__all__ = ["Bootstrap", "BootstrapSettings", "bootstrap", "main", "parse"]
