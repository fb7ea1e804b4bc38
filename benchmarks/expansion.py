"""What a point of a large space costs before anything runs: time for each, and memory for all.

Promised: 10^6 grid points with their effective overrides at most 15 µs a point and 60 MB. Beside each figure
stands the time of a bare loop over `itertools.product` that builds the same dicts.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from airflows.keys import effective
from airflows.sweepfile import LoadedSweep, sweep_from_mapping

POINTS = 1_000_000
BASE: Mapping[str, Any] = {
    "experiment_name": "expansion",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": dict.fromkeys("abcdef", 0) | {"optimizer": "adam"},
}
TENS: Mapping[str, Any] = {f"parameters.{name}": [place / 10 for place in range(10)] for name in "abcdef"}
CONDITIONAL: Mapping[str, Any] = {
    "parameters.optimizer": ["adam", "adamw"],
    **{f"parameters.{name}": {"min": 1, "max": 10, "step": 1} for name in "abcde"},
    "parameters.f": {"min": 0.1, "max": 0.9, "step": 0.1, "when": {"parameters.optimizer": "adamw"}},
}


class Case(NamedTuple):
    """One line of the table."""

    name: str
    tree: Mapping[str, Any]
    bare: Callable[[], Iterable[Any]]
    start: int = 0
    is_whole: bool = False


class Figure(NamedTuple):
    """What a case cost."""

    points: int
    seconds: float
    grown_mb: float


def product_of_tens() -> Iterable[Any]:
    """Build the dicts of `TENS` without airflows."""
    return (dict(zip(TENS, values, strict=True)) for values in itertools.product(*TENS.values()))


def steps() -> Iterable[Any]:
    """Build the dicts of one key that takes a million values."""
    return ({"parameters.a": place / 10} for place in range(POINTS))


CASES = (
    Case("6 keys of 10 values", {"space": TENS}, product_of_tens),
    Case("... each as a train.yaml", {"space": TENS}, product_of_tens, is_whole=True),
    Case("... the last 10 of them", {"space": TENS}, product_of_tens, start=POINTS - 10),
    Case("1 key of 10^6 steps", {"space": {"parameters.a": {"min": 0, "max": 99_999.9, "step": 0.1}}}, steps),
    Case(
        "a condition, 2 rules",
        {
            "space": CONDITIONAL,
            "exclude": [{"parameters.a": 1, "parameters.e": 2}, {"parameters.b": 3, "parameters.f": 0.3}],
        },
        product_of_tens,
    ),
    Case(
        "random, 10^5 of them",
        {"space": TENS, "search": {"method": "random", "trials": 100_000}},
        product_of_tens,
    ),
)


def load(case: Case) -> LoadedSweep:
    """Return the case as a sweep."""
    return sweep_from_mapping({"name": "expansion", "base": BASE, **case.tree}, directory=Path())


def walk(case: Case) -> int:
    """Walk over the points of a case and return how many there were."""
    sweep = load(case)
    points = sweep.expansion.points(case.start)
    if not case.is_whole:
        return sum(1 for point in points if point.overrides)
    return sum(1 for point in points if effective(sweep.base.tree, point.overrides))


def measure(case: Case, answers: Connection) -> None:
    """Walk in this process, which ends afterwards, so that its peak of memory is the walk's own."""
    load(CASES[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    points = walk(case)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers.send(Figure(points, seconds, (after - before) * 1024 / 1e6))


def measured(case: Case) -> Figure:
    """Return what a case costs in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_measure_by_name, args=(case.name, there))
    process.start()
    figure: Figure = here.recv()
    process.join()
    return figure


def _measure_by_name(name: str, answers: Connection) -> None:
    measure(next(case for case in CASES if case.name == name), answers)


def bare_microseconds(case: Case) -> float:
    """Return the time a point takes in the bare loop, in microseconds."""
    began = time.perf_counter()
    deque(case.bare(), maxlen=0)
    return (time.perf_counter() - began) / POINTS * 1e6


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'':26}{'points':>10}{'µs/point':>10}{'bare loop':>10}{'ratio':>8}{'MB more':>9}{'seconds':>9}")
    for case in CASES:
        figure, bare = measured(case), bare_microseconds(case)
        each = figure.seconds / figure.points * 1e6
        print(
            f"{case.name:26}{figure.points:10}{each:10.2f}{bare:10.2f}{each / bare:8.1f}"
            f"{figure.grown_mb:9.1f}{figure.seconds:9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
