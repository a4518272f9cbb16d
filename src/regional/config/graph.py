"""The declared regions as a picture (SVG): defaults, sectors, regions, and the commit that each cluster type runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from html import escape

from regional.config.model import Configuration, Region
from regional.config.shape import CLUSTER_TYPES

_ROW, _GAP, _TOP = 34, 14, 64
_COLUMNS = {"defaults": 20, "sector": 150, "region": 440, "pin": 760}
_WIDTHS = {"defaults": 90, "sector": 250, "region": 280, "pin": 140}
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1d2733 }
.head { font-weight: 600; fill: #51606f }
.small { font-size: 10px; fill: #51606f }
.pin { font-family: ui-monospace, monospace; font-size: 11px }
rect { fill: #fff; stroke: #8a97a5; rx: 5 }
rect.doomed { stroke: #b3261e; stroke-dasharray: 4 3 }
rect.live { fill: #eef2f6; stroke-dasharray: 2 2 }
path { fill: none; stroke: #b7c1cb }
"""


def graph(configuration: Configuration) -> str:
    """One row per region, grouped by sector in the order of the file; equal commits have equal colours."""
    sectors: dict[str, list[Region]] = {}
    for region in configuration.regions:
        sectors.setdefault(region.sector, []).append(region)
    listed = configuration.document.root.get("sectors")
    names = [entry.get("name") for entry in (listed.value if listed else [])]
    order = [node.value for node in names if node is not None and node.value in sectors]
    shapes: list[str] = []
    middles: list[float] = []
    y = _TOP
    for sector in order:
        start = y
        middle = start + (len(sectors[sector]) * _ROW - (_ROW - 26)) / 2
        for region in sectors[sector]:
            shapes += _region(region, y, middle)
            y += _ROW
        shapes += _box("sector", middle - 13, sector, _environment(sectors[sector]))
        middles.append(middle)
        y += _GAP
    if middles:
        root = (middles[0] + middles[-1]) / 2
        shapes = [*(_line("defaults", root, "sector", middle) for middle in middles), *shapes]
        shapes += _box("defaults", root - 13, "defaults", "")
    return _document(_headings(), shapes, y)


def _environment(regions: list[Region]) -> str:
    return f"environment {regions[0].environment}"


def _region(region: Region, y: float, sector: float) -> list[str]:
    clusters = len(region.management_clusters)
    note = f"{region.aws_region} · {clusters} MC{'' if clusters == 1 else 's'}"
    shapes = [_line("sector", sector, "region", y + 13)]
    shapes += _box("region", y, region.name, note, "doomed" if region.delete else "")
    shapes.append(_line("region", y + 13, "pin", y + 13))
    for number, kind in enumerate(sorted(CLUSTER_TYPES, reverse=True)):
        shapes += _pin(region, kind, _COLUMNS["pin"] + number * (_WIDTHS["pin"] + 10), y)
    return shapes


def _pin(region: Region, kind: str, x: float, y: float) -> list[str]:
    commit, values = region.config_revision.get(kind), region.values_revision.get(kind)
    title = f"{kind}: charts {commit or 'follow the live revision'}, values {values or 'follow the live revision'}"
    fill = f' style="fill: {_colour(commit)}"' if commit else ' class="live"'
    lock = "" if not values else " ▪ values" if values == commit else f" ▪ {values[:7]}"
    text = (commit[:8] if commit else "live") + lock
    return [
        f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{_WIDTHS["pin"]}" height="26"{fill}/>'
        f'<text class="pin" x="{x + 7}" y="{y + 17}">{escape(text)}</text></g>'
    ]


def _colour(commit: str) -> str:
    hue = int(hashlib.sha256(commit.encode()).hexdigest()[:4], 16) % 360
    return f"hsl({hue} 70% 90%)"


def _box(column: str, y: float, text: str, note: str, style: str = "") -> list[str]:
    x, width = _COLUMNS[column], _WIDTHS[column]
    mark = f' class="{style}"' if style else ""
    right = f'<text class="small" x="{x + width - 7}" y="{y + 17:g}" text-anchor="end">{escape(note)}</text>'
    return [
        f'<rect x="{x}" y="{y:g}" width="{width}" height="26"{mark}/>',
        f'<text x="{x + 8}" y="{y + 17:g}">{escape(_shortened(text, 22))}</text>' + (right if note else ""),
    ]


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _line(start: str, y1: float, end: str, y2: float) -> str:
    x1, x2 = _COLUMNS[start] + _WIDTHS[start], _COLUMNS[end]
    half = (x1 + x2) / 2
    return f'<path d="M{x1} {y1:g} C{half:g} {y1:g} {half:g} {y2:g} {x2} {y2:g}"/>'


def _headings() -> list[str]:
    columns = [(_COLUMNS["sector"], "sectors"), (_COLUMNS["region"], "regions")]
    pins = [
        (_COLUMNS["pin"] + number * (_WIDTHS["pin"] + 10), kind)
        for number, kind in enumerate(sorted(CLUSTER_TYPES, reverse=True))
    ]
    return [f'<text class="head" x="{x}" y="40">{text}</text>' for x, text in [*columns, *pins]]


def _document(headings: Iterable[str], shapes: Iterable[str], height: float) -> str:
    width = _COLUMNS["pin"] + 2 * (_WIDTHS["pin"] + 10) + 10
    lines = "\n".join([*headings, *shapes])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}" '
        f'role="img" aria-label="declared regions">\n<style>{_STYLE}</style>\n'
        f'<rect width="{width}" height="{height:g}" style="fill: #f8fafb; stroke: none"/>\n{lines}\n</svg>\n'
    )
