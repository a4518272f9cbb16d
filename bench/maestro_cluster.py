"""Rows of the Maestro bench with our agent, a process of its own, on our Kubernetes API with fsync."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from maestro_load import Watch, create, delete
from maestro_machine import HEALTH_PORT, HTTP_PORT, Program, listening
from regional.core import paths
from regional.core.paths import RegionPaths
from regional.kube.client import ApiError, Client
from regional.local.addresses import API_PORT, Addresses
from regional.local.provisioner.cluster_directory import ClusterDirectory
from verdicts import Limit, p50, p95

if TYPE_CHECKING:
    from maestro import Bench, Maestro

MS = 1e3
CONSUMER = "real"


@dataclass
class Site:
    """A management cluster: its API and its agent."""

    maestro: Maestro
    api: Program
    agent: Program


@contextlib.asynccontextmanager
async def site(bench: Bench) -> AsyncIterator[Site]:
    machine, home = bench.machine, bench.machine.home
    region = RegionPaths("bench", home)
    region.root.mkdir(parents=True, exist_ok=True)
    addresses = Addresses(region)
    directory = ClusterDirectory(region.cluster(CONSUMER), CONSUMER, addresses.block(CONSUMER))
    directory.ensure()
    block = directory.block
    place = ("--address", block.api, "--port", str(API_PORT), "--service-cidr", block.service_cidr)
    files = ("--data", str(directory.data), "--pki", str(directory.certificates), "--controllers", "garbage,namespace")
    api = machine.role("kube-api", block.api, "--cluster", CONSUMER, *files, *place)
    listening(block.api, API_PORT, api)
    try:
        await _prepared(directory.admin_kubeconfig)
        async with bench.server(CONSUMER) as maestro:
            mount = machine.mounted(CONSUMER)
            works = home / "works"
            works.mkdir(exist_ok=True)
            agent = machine.role(
                "maestro-agent",
                machine.address(HEALTH_PORT),
                *("--workload-source-config", str(mount / "config.yaml"), "--works-dir", str(works)),
                *("--consumer-name-file", str(mount / "consumerName"), "--kubeconfig", str(directory.admin_kubeconfig)),
            )
            try:
                await maestro.client.one(create(CONSUMER, "first"))
                await maestro.quiet()
                yield Site(maestro, api, agent)
            finally:
                agent.stop()
    finally:
        api.stop()
        addresses.release_all()


async def _prepared(kubeconfig: Path) -> None:
    """The definition that the agent's chart brings, served; and a namespace for the objects."""
    chart = paths.checkout() / "argocd" / "config" / "management-cluster" / "maestro-agent" / "templates"
    definition: dict[str, Any] = yaml.safe_load((chart / "crd-appliedmanifestworks.yaml").read_text())
    async with Client.from_kubeconfig(kubeconfig) as client, asyncio.timeout(60):
        await client.create(definition)
        while True:
            with contextlib.suppress(ApiError):
                await client.list("work.open-cluster-management.io/v1", "AppliedManifestWork")
                break
            await asyncio.sleep(0.05)
        if await client.get_or_none("v1", "Namespace", "default") is None:
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})


async def with_our_agent(bench: Bench) -> None:
    async with site(bench) as found:
        await _burst(bench, found)
        await _singles(bench, found)


async def _burst(bench: Bench, site: Site) -> None:
    maestro, names = site.maestro, [f"real-{number}" for number in range(bench.size.applied)]
    programs = {"server": maestro.server, "agent": site.agent, "kube-api": site.api}

    async def created() -> None:
        await maestro.client.all([create(CONSUMER, name) for name in names])
        await maestro.quiet()

    async def deleted() -> None:
        await maestro.client.all([delete(name) for name in names])
        while await maestro.database.fetchval("SELECT count(*) FROM resources") > 1:
            await asyncio.sleep(0.01)

    for measure, work, limit, theirs in (
        ("burst of creates → Applied, our agent", created, 150, 25.9),
        (f"delete {len(names)}, our agent", deleted, 100, 7.3),
    ):
        taken = await bench.spent(work, **programs)
        rate = len(names) / taken.seconds
        note = f"Go {theirs:g}: ours is {rate / theirs:.1f}×"
        bench.row(measure, "/s", rate, None, Limit(at_least=limit), note)
        for name in ("agent", "kube-api"):
            bench.row(f"  CPU per bundle, {name}", "ms", taken.cpu[name] / len(names) * MS)
    bench.row("  agent's memory after it", "MB", site.agent.memory(), None, Limit(), "Go 90–117")


async def _singles(bench: Bench, site: Site) -> None:
    maestro, seconds = site.maestro, []
    async with Watch(maestro.address, HTTP_PORT) as watch:
        for number in range(bench.size.singles):
            name = f"one-{number}"
            began = time.perf_counter()
            await maestro.client.one(create(CONSUMER, name))
            await watch.until_applied([(name, 1)])
            seconds.append(watch.applied[name, 1] - began)
    bench.row("one bundle at a time, our agent, p50", "ms", p50(seconds) * MS)
    bench.row("  p95", "ms", p95(seconds) * MS)
    bench.breakdown([*maestro.server.lines(), *site.agent.lines()], p50(seconds) * MS)
