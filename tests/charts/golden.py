"""Golden renderings: `cases/<chart>/<case>/values.yaml` over the chart's own values must come to `expected.yaml`.

`make goldens` writes them anew; the difference is then read in the commit. Left out are definitions of custom kinds and
alerts (long, and read by tests of their own) and the text of mounted files with its digests: to edit those is not to
edit the chart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.charts.rendering import CHARTS, template

CASES = sorted(file.parent for file in (Path(__file__).parent / "cases").glob("*/*/values.yaml"))
ELIDED = "(elided)"
LEFT_OUT = ("CustomResourceDefinition", "PrometheusRule")


def rendered(case: Path) -> str:
    (chart,) = CHARTS.glob(f"*/{case.parent.name}")
    objects = [_short(found) for found in template(chart, "-f", str(case / "values.yaml"))]
    kept = [found for found in objects if found["kind"] not in LEFT_OUT]
    kept.sort(key=lambda found: (found["kind"], found["metadata"]["name"]))
    return yaml.dump_all(kept, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)


def _short(found: dict[str, Any]) -> dict[str, Any]:
    if found["kind"] == "ConfigMap" and found["metadata"]["name"].endswith("-tasks"):
        found["data"] = dict.fromkeys(found["data"], ELIDED)
    if found["kind"] == "Deployment":
        annotations = found["spec"]["template"]["metadata"].get("annotations", {})
        annotations.update({key: ELIDED for key in annotations if key.startswith("checksum/")})
    return found


class _Dumper(yaml.SafeDumper):
    """Without anchors, and with texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def write() -> None:
    for case in CASES:
        (case / "expected.yaml").write_text(rendered(case))


if __name__ == "__main__":
    write()
