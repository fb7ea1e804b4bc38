"""How good and how quick the methods are that learn, on functions whose best value is known.

Promised: tpe and gp find better values than random in as many trials, within 10 % of what Optuna's own
`optimize` finds with the same sampler; the question "which point next?" takes less than 0.2 s after 1,000
trials, and of 10,000 random points each takes as long as the first. Sweeps are asked and told here as a
driver does it, one trial at a time, but run no processes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from airflows.errors import MissingExtraError
from airflows.search.adaptive import Outcome, Sampler, Setting, open_sampler, require_packages
from airflows.sweepfile import LoadedSweep, sweep_from_mapping

Point = Mapping[str, Any]
LONG = 1000
# A Gaussian process takes the longer the more it knows, by itself: that is Optuna's time, not ours.
FEW = (50, 200)
RANDOM = 10_000
_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def branin(point: Point) -> float:
    """Two parameters, three equal valleys; 0.397887 at best."""
    x, y = point["parameters.a"], point["parameters.b"]
    bow = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return float(bow**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def hartmann6(point: Point) -> float:
    """Six parameters; -3.32237 at best."""
    made = [point[f"parameters.{name}"] for name in "abcdef"]
    inner = [
        sum(a * (value - p) ** 2 for a, value, p in zip(row, made, place, strict=True))
        for row, place in zip(_A, _P, strict=True)
    ]
    return -sum(weight * math.exp(-each) for weight, each in zip((1.0, 1.2, 3.0, 3.2), inner, strict=True))


class Problem(NamedTuple):
    """A function, what is searched, and how many trials each method has."""

    name: str
    function: Callable[[Point], float]
    space: Mapping[str, tuple[float, float]]
    trials: Mapping[str, int]


PROBLEMS = (
    Problem("Branin", branin, {"parameters.a": (-5, 10), "parameters.b": (0, 15)}, {"tpe": 60, "gp": 25}),
    Problem("Hartmann-6", hartmann6, {f"parameters.{n}": (0, 1) for n in "abcdef"}, {"tpe": 100, "gp": 40}),
)


def sweep_of(problem: Problem, method: str, trials: int, seed: int) -> LoadedSweep:
    """Return a sweep over a problem's space."""
    return sweep_from_mapping(
        {
            "name": "known",
            "base": {
                "experiment_name": "known",
                "command": "true",
                "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
                "parameters": dict.fromkeys("abcdef", 0.5),
            },
            "space": {
                key: {"min": float(low), "max": float(high)} for key, (low, high) in problem.space.items()
            },
            "search": {"method": method, "trials": trials, "seed": seed},
            "objective": {"metric": "loss", "goal": "minimize"},
        },
        directory=Path(),
    )


def asked(sweep: LoadedSweep, function: Callable[[Point], float]) -> Iterator[float]:
    """Yield the values of a sweep's trials, one after another."""
    known = [point.overrides for point in sweep.expansion.points()]
    if sweep.expansion.known is None:
        yield from map(function, known)
        return
    sampler = sampler_of(sweep)
    for number in range(sweep.spec.search.trials or 0):
        if number < len(known):
            overrides: Point = known[number]
            sampler.add(overrides)
        else:
            overrides = sampler.ask().overrides
        value = function(overrides)
        sampler.finish(number, Outcome("complete", (value,)))
        yield value


def sampler_of(sweep: LoadedSweep) -> Sampler:
    """Return the sampler of a sweep, which knows nothing yet."""
    method = sweep.spec.method
    if method not in {"tpe", "gp", "cmaes", "nsga2"}:
        raise ValueError(method)
    return open_sampler(sweep.space, sweep.base.tree, Setting(method, sweep.spec.search.seed))


def optimized(problem: Problem, method: str, trials: int, seed: int) -> float:
    """Return the best value that Optuna finds by itself."""
    import optuna  # noqa: PLC0415 - an extra

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}

    def objective(trial: Any) -> float:
        return problem.function({key: trial.suggest_float(key, *ends) for key, ends in problem.space.items()})

    study = optuna.create_study(sampler=samplers[method](seed=seed))
    study.optimize(objective, n_trials=trials)
    return float(study.best_value)


def compare(problem: Problem, method: str, seeds: int) -> None:
    """Print a line of the table: the best values of random, ours and Optuna's own, over the seeds."""
    trials = problem.trials[method]
    ours = [min(asked(sweep_of(problem, method, trials, seed), problem.function)) for seed in range(seeds)]
    drawn = [min(asked(sweep_of(problem, "random", trials, seed), problem.function)) for seed in range(seeds)]
    optunas = [optimized(problem, method, trials, seed) for seed in range(seeds)]
    wins = sum(one < other for one, other in zip(ours, drawn, strict=True))
    random, mean, own = (statistics.fmean(values) for values in (drawn, ours, optunas))
    apart = (mean - own) / abs(own)
    print(
        f"{problem.name:<10} {method:<4} {trials:>6} {random:>10.4f} {mean:>10.4f} {own:>10.4f}"
        f" {apart:>+8.1%} {wins:>7} of {seeds}",
        flush=True,
    )


def ask_times(method: str, trials: int) -> None:
    """Print how long it takes to build up a history, and to ask after it."""
    sweep = sweep_of(PROBLEMS[1], method, trials + 10, 0)
    drawn = sweep_of(PROBLEMS[1], "random", trials, 1).expansion.points()
    began = time.perf_counter()
    sampler = sampler_of(sweep)
    for number, point in enumerate(drawn):
        sampler.add(point.overrides)
        sampler.finish(number, Outcome("complete", (hartmann6(point.overrides),)))
    rebuilt = time.perf_counter() - began
    times = []
    for _ in range(5):
        began = time.perf_counter()
        sampler.ask()
        times.append(time.perf_counter() - began)
    print(
        f"{method:<6} {trials:>6} {rebuilt:>12.2f} s {statistics.median(times) * 1e3:>10.1f} ms", flush=True
    )


def random_times() -> None:
    """Print how long the first and the last thousand of 10,000 random points take, each."""
    points = sweep_of(PROBLEMS[1], "random", RANDOM, 0).expansion.points()
    for start in (0, RANDOM - LONG):
        if start:
            next(islice(points, start - LONG - 1, None))
        began = time.perf_counter()
        made = sum(1 for _ in zip(count(), islice(points, LONG), strict=False))
        each = (time.perf_counter() - began) / made
        print(f"random {start:>6} {'':>14} {each * 1e3:>10.3f} ms")


def is_there(method: str) -> bool:
    """Whether all that a method needs is installed; says what is not."""
    try:
        require_packages(method)
    except MissingExtraError as exc:
        print(f"{method} is left out: {exc}")
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="how often each search is repeated")
    parser.add_argument("--methods", nargs="*", default=["tpe", "gp"], help="tpe, and gp, which takes longer")
    options = parser.parse_args(arguments)
    methods = [method for method in options.methods if is_there(method)]
    print("ask    trials    history from    one ask")
    for method in filter(is_there, ("tpe", "cmaes", "nsga2")):
        ask_times(method, LONG)
    for trials in FEW if "gp" in methods else ():
        ask_times("gp", trials)
    random_times()
    print(f"\nmeans of the best value over {options.seeds} seeds")
    print("function   by   trials     random       ours     Optuna   apart  better than random")
    for problem in PROBLEMS:
        for method in methods:
            compare(problem, method, options.seeds)


if __name__ == "__main__":
    main()
