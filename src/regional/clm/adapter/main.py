"""`regionctl serve adapter`: runs the task files of one adapter for the events that concern it."""

from __future__ import annotations

import base64
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from regional.clm.adapter.engine import Engine
from regional.clm.adapter.status_watch import StatusWatch
from regional.clm.adapter.task import load_task
from regional.clm.adapter.transport import MaestroTransport
from regional.clm.adapter.worker import Worker
from regional.clm.client import ClmClient
from regional.clm.entities import REGISTRY
from regional.clm.events import Queue
from regional.clm.settings import ClmSettings, database_of
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mounts import mounted
from regional.core.problems import UserError
from regional.core.role import Dependency, keep_reaching, run_role
from regional.core.settings import load
from regional.maestro.client import MaestroClient

log = logging.getLogger(__name__)


class Settings(ClmSettings, kw_only=True, frozen=True):
    adapter_name: str = "hypershift"
    task_files: list[str] = msgspec.field(default_factory=list)  # KIND=FILE
    clm_url: str = "http://clm-api.clm:8000"
    maestro_url: str = "http://maestro-http.maestro-server:8080"
    release_repository: str = "openshift-release-dev/ocp-release"
    release_version: str = "4.22.0"
    release_suffix: str = "-multi"
    controller_availability_policy: str = "SingleReplica"
    service_address: str = "127.0.0.1"
    pull_secret_file: str = ""
    at_once: int = 16


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("clm-adapter", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    database = database_of(settings, "clm-adapter")
    clm, maestro = (
        ClmClient(settings.clm_url, actor=f"adapter/{settings.adapter_name}"),
        MaestroClient(settings.maestro_url),
    )
    engines = engines_of(settings, clm, maestro)
    queue = Queue(settings.adapter_name, settings.pod_name or f"process-{os.getpid()}")
    worker = Worker(database, queue, engines, at_once=settings.at_once)
    watch = StatusWatch(database, maestro, REGISTRY, settings.adapter_name)
    maestro_up, clm_up = Dependency("maestro"), Dependency("clm-api")
    tasks = [
        database.keep_connected(),
        keep_reaching(f"{settings.maestro_url}/healthz", maestro_up),
        keep_reaching(f"{settings.clm_url}/healthz", clm_up),
    ]
    if engines:
        tasks += [database.keep_session(worker.work), watch.follow()]
    says = f"adapter {settings.adapter_name} runs tasks for {', '.join(engines) or 'no kind'}"
    try:
        await run_role(settings, [database.dependency, maestro_up, clm_up], tasks, says=says)
    finally:
        await worker.close()
        await clm.close()
        await maestro.close()


def engines_of(settings: Settings, clm: ClmClient, maestro: MaestroClient) -> dict[str, Engine]:
    """One for each kind that has a task file. Raises UserError that names what is wrong."""
    transport = MaestroTransport(maestro)
    config = configuration(settings)
    engines = {}
    for entry in settings.task_files:
        kind, separator, path = entry.partition("=")
        entity = REGISTRY.of_kind(kind)
        if not separator or entity is None or settings.adapter_name not in entity.required_adapters:
            raise UserError(f"--task-files {entry!r} is not KIND=FILE with a kind that needs {settings.adapter_name}")
        engines[kind] = Engine(load_task(mounted(Path(path))), clm, transport, config)
    return engines


def configuration(settings: Settings) -> dict[str, Any]:
    """What tasks see as `config`."""
    pull_secret = '{"auths":{}}'
    if settings.pull_secret_file:
        pull_secret = mounted(Path(settings.pull_secret_file)).read_text()
    return {
        "adapter": settings.adapter_name,
        "release_repository": settings.release_repository,
        "release_version": settings.release_version,
        "release_suffix": settings.release_suffix,
        "controller_availability_policy": settings.controller_availability_policy,
        "service_address": settings.service_address,
        "pull_secret": base64.b64encode(pull_secret.encode()).decode(),
    }
