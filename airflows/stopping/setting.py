"""What a sweep's `stop` asks for, every default filled in, and the rungs that follow from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from airflows.scores import Goal, Take
from airflows.spec import StopMethod, SweepSpec

REDUCTION = 3.0
AFTER_TRIALS = 5
RANKED = frozenset({"asha", "hyperband", "median"})
"""The rules that compare trials with each other."""
GROWTH = 1.25
"""By how much the steps grow at which long curves are looked at."""
ALMOST = 1e-9
"""What a product of floats may lie below the whole number that is meant."""
_LAST_STEP = 2**62


class Keys(NamedTuple):
    """The keys of `stop` that go with a method, and those of them that it needs."""

    allowed: frozenset[str]
    needed: frozenset[str] = frozenset()


KEYS: Mapping[str, Keys] = {
    "asha": Keys(frozenset({"min_steps", "max_steps", "reduction", "resume"})),
    "hyperband": Keys(frozenset({"min_steps", "max_steps", "reduction"}), frozenset({"max_steps"})),
    "median": Keys(frozenset({"min_steps", "after_trials"})),
    "patience": Keys(frozenset({"min_steps", "steps", "min_delta"}), frozenset({"steps"})),
    "threshold": Keys(frozenset({"worse_than", "after_steps"}), frozenset({"worse_than"})),
    "nan": Keys(frozenset()),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is looked at, and by which rule.

    Attributes:
        method: the rule; `nan` alone when there is no other.
        metric: what it looks at.
        goal: which of two values is better.
        takes_best: a trial is as good as its best value so far; else as its value at a step.
        across: how the values of replicates become one.
        nan: a value that is NaN or infinite stops a trial.
        min_steps: no trial is stopped before this step.
        max_steps: the step at which a trial is done.
        reduction: of so many trials one goes on at each rung.
        after_trials: trials compared with before the first is stopped.
        after_steps: steps before a threshold counts.
        steps: steps without improvement before a trial is stopped.
        min_delta: what counts as an improvement must be larger.
        worse_than: the threshold.
        resume: trials wait at a rung, and go on from their checkpoint.
    """

    method: StopMethod
    metric: str
    goal: Goal
    takes_best: bool = False
    across: Literal["mean", "median", "worst"] = "mean"
    nan: bool = True
    min_steps: int = 1
    max_steps: int | None = None
    reduction: float = REDUCTION
    after_trials: int = AFTER_TRIALS
    after_steps: int = 0
    steps: int = 1
    min_delta: float = 0.0
    worse_than: float = 0.0
    resume: bool = False

    @property
    def sign(self) -> int:
        """What a value is multiplied with, so that less is better."""
        return 1 if self.goal == "minimize" else -1

    @property
    def compares(self) -> bool:
        """Whether trials are compared with each other."""
        return self.method in RANKED

    @property
    def worse(self) -> str:
        """The word for where a worse value lies."""
        return "above" if self.goal == "minimize" else "below"


def setting_of(spec: SweepSpec) -> Setting | None:
    """Return what a sweep file asks for; None when there is nothing to look at, or no rule."""
    stop, objectives = spec.stop, spec.all_objectives
    metric = stop.metric or next((o.metric for o in objectives), None)
    own = next((o for o in objectives if o.metric == metric), None)
    goal = stop.goal or (own.goal if own is not None else None)
    method = stop.method or "nan"
    if metric is None or (method == "nan" and not stop.nan):
        return None
    given = {name: value for name in KEYS[method].allowed if (value := getattr(stop, name)) is not None}
    return Setting(
        method=method,
        metric=metric,
        goal=goal or "minimize",
        takes_best=own is not None and Take.of(own.take).kind == "best",
        across="mean" if own is None else own.across_replicates,
        nan=stop.nan,
        **given,
    )


def rungs(setting: Setting, point: int) -> Iterator[int]:
    """Yield the steps at which a point is compared with others, ascending, without an end of its own."""
    step = setting.min_steps
    if setting.method == "hyperband":
        step = _grown(step, setting.reduction, bracket(setting, point))
    growth = GROWTH if setting.method == "median" else setting.reduction
    while step < (setting.max_steps or _LAST_STEP):
        yield step
        step = max(step + 1, math.ceil(step * growth - ALMOST))


def bracket(setting: Setting, point: int) -> int:
    """Return which bracket a point is in: how many rungs later than others it is first looked at."""
    if setting.method != "hyperband":
        return 0
    cycle = _cycle(setting.min_steps, setting.max_steps or setting.min_steps, setting.reduction)
    return cycle[point % len(cycle)]


def _grown(step: int, growth: float, times: int) -> int:
    for _ in range(times):
        step = max(step + 1, math.ceil(step * growth - ALMOST))
    return step


@lru_cache(maxsize=16)
def _cycle(least: int, most: int, reduction: float) -> tuple[int, ...]:
    """Return the brackets of points by number: each as often as Hyperband has it, evenly mixed."""
    last = int(math.log(max(1.0, most / least), reduction) + ALMOST)
    shares = {
        late: math.ceil((last + 1) / (last - late + 1) * reduction ** (last - late))
        for late in range(last + 1)
    }
    total, credit, cycle = sum(shares.values()), dict.fromkeys(shares, 0), list[int]()
    for _ in range(total):
        for late, share in shares.items():
            credit[late] += share
        chosen = max(credit, key=lambda late: (credit[late], -late))
        credit[chosen] -= total
        cycle.append(chosen)
    return tuple(cycle)
