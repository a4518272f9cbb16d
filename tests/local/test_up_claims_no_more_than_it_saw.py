"""The last line of `regionctl up` is a tick only if everything is well."""

from __future__ import annotations

from regional.local.inspection import Inspection, Part
from regional.local.region import outcome

WELL = Part("pod", "clm/clm-api-1", "rc", "Ready", True)
LAME = Part("application", "lame", "rc", "Unknown/Healthy", False, message="no leg to stand on")


def test_a_region_whose_parts_are_well_gets_its_tick() -> None:
    assert outcome(Inspection("local", True, [WELL])) == ("step", "all parts well")


def test_a_part_that_is_not_well_takes_the_tick_away() -> None:
    assert outcome(Inspection("local", False, [WELL, LAME])) == ("failed", "parts that are not well: 1")
