"""A grid of a million points, of which a few are wanted, costs no more than a small one: counted, not timed."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflows.plans import Plan
from airflows.sweepfile import sweep_from_mapping
from airflows.vetting import validate_points

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "timeout_minutes": 60,
    "parameters": {"a": 1, "b": 1},
}
CAP = 500
# A hundred times the points; what grows is the longest axis, of which a block is kept.
_MOST = 1.6


def expand(side: int, **changes: Any) -> list[dict[str, Any]]:
    """Load, check and expand a square of `side` x `side` points, of which 500 are wanted."""
    axis = {"min": 1, "max": side, "step": 1}
    tree = {
        "name": "demo",
        "base": BASE,
        "space": {"parameters.a": axis, "parameters.b": axis},
        "include": [{"parameters.a": -1}],
        "exclude": [{"parameters.a": 1, "parameters.b": 2}],
        "search": {"trials": CAP},
        **changes,
    }
    sweep = sweep_from_mapping(tree, directory=Path())
    validate_points(sweep)
    assert sweep.expansion.count() == CAP
    assert sweep.expansion.number({"parameters.a": 1, "parameters.b": side}) in {None, side - 2}
    Plan.of(sweep, code="")
    return [point.overrides for point in sweep.expansion.points()]


def calls(work: Callable[[], Any]) -> int:
    """Return how many calls of Python functions a piece of work takes."""
    count = 0

    def profile(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def peak(work: Callable[[], Any]) -> int:
    """Return the bytes that a piece of work needs at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


RANDOM = {"search": {"method": "random", "trials": CAP, "seed": 1}}


@pytest.mark.parametrize("changes", [{}, RANDOM], ids=["grid", "random"])
def test_a_million_points_take_hardly_more_operations_than_ten_thousand(changes: dict[str, Any]) -> None:
    expand(50, **changes)
    small, large = (calls(lambda side=side: expand(side, **changes)) for side in (100, 1000))

    assert large <= _MOST * small


@pytest.mark.parametrize("changes", [{}, RANDOM], ids=["grid", "random"])
def test_a_million_points_take_hardly_more_memory_than_ten_thousand(changes: dict[str, Any]) -> None:
    expand(50, **changes)
    small, large = (peak(lambda side=side: expand(side, **changes)) for side in (100, 1000))

    assert large <= _MOST * small
    assert large < 3_000_000
