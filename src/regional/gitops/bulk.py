"""Many releases through few runs of the real Helm: what a preview of hundreds of regions needs.

Releases that read the same values share a rendering. The others are rendered many at a time: Helm is given a chart made
of one wrapper per release, each with the chart inside under its own name, so that `.Chart`, `.Release`, `.Files` and
`.Values` are to its templates what they would be alone. Files that come out as they are go round Helm. Whatever this
cannot do faithfully, or what fails, is rendered by itself, and so has Helm's own words for its error.
"""

from __future__ import annotations

import asyncio
import io
import re
import tarfile
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from regional.gitops.chartfacts import ChartFacts, chart_facts
from regional.gitops.goyaml import YamlError, load_yaml
from regional.gitops.helm import Helm, HelmError, Release

TOGETHER = 100
WORTHWHILE = 3
_DOCUMENT = re.compile(r"^---\n# Source: (\S+)\n", re.MULTILINE)
_COMMENT = re.compile(rb"^#[^\n]*\n", re.MULTILINE)


class Wanted(msgspec.Struct, frozen=True):
    chart: Path
    release: Release


async def render_all(helm: Helm, wanted: Sequence[Wanted]) -> list[str | HelmError]:
    """One text or one error for each, in order."""
    kinds: dict[str, list[int]] = {}
    for number, one in enumerate(wanted):
        kinds.setdefault(_digest(one), []).append(number)
    first = [wanted[numbers[0]] for numbers in kinds.values()]
    texts = dict(zip(kinds, await _distinct(helm, first), strict=True))
    out: list[str | HelmError] = [""] * len(wanted)
    for digest, numbers in kinds.items():
        for number in numbers:
            out[number] = texts[digest]
    return out


def _digest(one: Wanted) -> str:
    """Equal for releases whose renderings are equal."""
    values = _merged(one.release)
    if values is None:
        return one.release.digest()
    read = msgspec.json.encode(chart_facts(one.chart).read(values), order="deterministic")
    return msgspec.structs.replace(one.release, values=(read,)).digest()


async def _distinct(helm: Helm, wanted: Sequence[Wanted]) -> list[str | HelmError]:
    groups: dict[bytes, list[int]] = {}
    for number, one in enumerate(wanted):
        groups.setdefault(_company(one), []).append(number)
    out: list[str | HelmError] = [""] * len(wanted)

    async def fill(numbers: list[int], together: bool) -> None:
        some = [wanted[number] for number in numbers]
        texts = await (_together(helm, some) if together else _each(helm, some))
        for number, text in zip(numbers, texts, strict=True):
            out[number] = text

    jobs = []
    for company, numbers in groups.items():
        together = bool(company) and len(numbers) >= WORTHWHILE
        size = TOGETHER if together else len(numbers)
        jobs += [fill(numbers[at : at + size], together) for at in range(0, len(numbers), size)]
    await asyncio.gather(*jobs)
    return out


def _company(one: Wanted) -> bytes:
    """Equal for releases that one run of Helm can render; empty for one that wants to be alone."""
    values = _merged(one.release)
    if values is None or one.release.parameters or one.release.skip_tests or not chart_facts(one.chart).plain:
        return b""
    # A null takes a chart's default away, and does that only at the top; below it, `global` is always there.
    if _has_null(values) or "global" not in values:
        return b""
    return msgspec.json.encode(msgspec.structs.replace(one.release, values=()))


async def _each(helm: Helm, wanted: Sequence[Wanted]) -> list[str | HelmError]:
    async def one(want: Wanted) -> str | HelmError:
        try:
            return await helm.template(want.chart, want.release)
        except HelmError as error:
            return error

    return list(await asyncio.gather(*(one(want) for want in wanted)))


async def _together(helm: Helm, wanted: Sequence[Wanted]) -> list[str | HelmError]:
    chart, release = wanted[0].chart, wanted[0].release
    facts = chart_facts(chart)
    values = {f"r{number:04}": {facts.name: _merged(one.release)} for number, one in enumerate(wanted)}
    everything = msgspec.structs.replace(release, values=(msgspec.json.encode(values),), include_crds=False)
    with tempfile.NamedTemporaryFile(dir=helm.scratch(), prefix="together.", suffix=".tgz") as archive:
        await asyncio.to_thread(_pack, archive.name, chart, facts, list(values))
        try:
            text = await helm.template(Path(archive.name), everything, keep=False)
        except HelmError:
            return await _each(helm, wanted)
    constant = _constant(chart, facts, crds=release.include_crds)
    shares = _split(text, facts.name)
    return [constant + shares.get(name, "") for name in values]


def _pack(archive: str, chart: Path, facts: ChartFacts, wrappers: Sequence[str]) -> None:
    """As one file, because thousands of small ones cost more than the rendering."""
    files = {file.relative_to(chart): file for file in chart.rglob("*") if file.is_file()}
    kept = {
        name.as_posix(): file.read_bytes()
        for name, file in files.items()
        if name.as_posix() not in facts.constant and name.parts[0] != "crds"
    }
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:

        def add(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(f"all/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

        add("Chart.yaml", b"apiVersion: v2\nname: all\nversion: 0.0.0\n")
        for wrapper in wrappers:
            add(f"charts/{wrapper}/Chart.yaml", f"apiVersion: v2\nname: {wrapper}\nversion: 0.0.0\n".encode())
            for name, content in kept.items():
                add(f"charts/{wrapper}/charts/{facts.name}/{name}", content)


def _constant(chart: Path, facts: ChartFacts, *, crds: bool) -> str:
    names = [file.relative_to(chart).as_posix() for file in sorted(chart.glob("crds/**/*")) if file.is_file()]
    texts = [f"# Source: {name}\n{(chart / name).read_text()}" for name in [*(names if crds else ()), *facts.constant]]
    return "".join(f"---\n{text.rstrip()}\n" for text in texts)


def _split(text: str, chart: str) -> dict[str, str]:
    """Each document goes to the wrapper that its `# Source:` line names."""
    parts = _DOCUMENT.split(text)
    shares: dict[str, list[str]] = {}
    for source, body in zip(parts[1::2], parts[2::2], strict=True):
        _, _, wrapper, _, rest = source.split("/", 4)
        shares.setdefault(wrapper, []).append(f"---\n# Source: {rest}\n{body}")
    return {wrapper: "".join(documents) for wrapper, documents in shares.items()}


def _merged(release: Release) -> dict[str, Any] | None:
    """The layers of values as Helm puts them together; None if it would not."""
    return _layers(tuple(_COMMENT.sub(b"", layer) for layer in release.values))


@lru_cache(maxsize=4096)
def _layers(layers: tuple[bytes, ...]) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    for layer in layers:
        values = _parsed(layer)
        if values is None:
            return None
        out = _over(out, values)
    return out


@lru_cache(maxsize=4096)
def _parsed(layer: bytes) -> dict[str, Any] | None:
    try:
        values = load_yaml(layer)
    except YamlError:
        return None
    return {} if values is None else values if isinstance(values, dict) else None


def _over(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in top.items():
        present = out.get(key)
        out[key] = _over(present, value) if isinstance(present, dict) and isinstance(value, dict) else value
    return out


def _has_null(value: Any) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(_has_null(child) for child in children)
