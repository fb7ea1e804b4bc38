"""What the stopping rules save, and what they lose, on a set of noisy learning curves.

Each trial's loss falls to its own end at its own pace, with noise at each step; a few diverge, and a few are
slow at first and good in the end. All trials of a sweep run to the end once; each rule is then replayed over
the same curves. Regret is how much worse the best trial that was kept is than the best of all, in units of
the spread between the best and the median trial.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from airflows.stopping.curves import Score
from airflows.stopping.replay import Curve, replay
from airflows.stopping.setting import Setting

TRIALS, STEPS, SEEDS = 81, 81, 20
SLOW, DIVERGING = 0.1, 0.05
LOSS = {"metric": "loss", "goal": "minimize"}
RULES: Mapping[str, Setting | None] = {
    "no stopping": None,
    "asha": Setting("asha", min_steps=3, reduction=3, max_steps=STEPS, **LOSS),
    "asha, resume": Setting("asha", min_steps=3, reduction=3, max_steps=STEPS, resume=True, **LOSS),
    "asha, best so far": Setting("asha", min_steps=3, reduction=3, max_steps=STEPS, takes_best=True, **LOSS),
    "hyperband": Setting("hyperband", min_steps=3, reduction=3, max_steps=STEPS, **LOSS),
    "median": Setting("median", min_steps=9, after_trials=5, **LOSS),
}


class Outcome(NamedTuple):
    """What a rule came to on one sweep."""

    stopped: float
    saved: float
    regret: float
    lost: bool


def curve(number: int, chance: random.Random) -> Curve:
    """Return one trial's curve."""
    end = chance.betavariate(2, 3)
    pace = math.exp(chance.gauss(0, 0.5)) * (0.35 if chance.random() < SLOW else 1.0)
    diverges_at = chance.randrange(2, STEPS) if chance.random() < DIVERGING else STEPS + 1
    scores = []
    for step in range(1, STEPS + 1):
        if step >= diverges_at:
            scores.append(Score(step, math.nan))
            break
        level = end + (2.5 - end) * (1 + step) ** -pace
        scores.append(Score(step, level + chance.gauss(0, 0.04)))
    return Curve(number, number, scores, accelerator_s=float(len(scores)))


def outcome(setting: Setting | None, curves: Sequence[Curve]) -> Outcome:
    """Return what a rule comes to on a sweep."""
    ends = {c.number: c.scores[-1].value for c in curves if not math.isnan(c.scores[-1].value)}
    best = min(ends, key=ends.__getitem__)
    if setting is None:
        return Outcome(0.0, 0.0, 0.0, lost=False)
    done = replay(setting, curves, [best])
    kept = min(value for number, value in ends.items() if number not in done.stops)
    spread = statistics.median(ends.values()) - ends[best]
    return Outcome(
        len(done.stops) / len(curves), done.share_saved, (kept - ends[best]) / spread, bool(done.lost)
    )


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{SEEDS} sweeps of {TRIALS} trials with {STEPS} steps; mean over the sweeps")
    print(f"{'':20}{'stopped':>9}{'saved':>8}{'regret':>9}{'worst':>8}{'winner lost':>13}")
    sweeps = []
    for seed in range(SEEDS):
        chance = random.Random(seed)  # noqa: S311 - the same curves every time
        sweeps.append([curve(number, chance) for number in range(TRIALS)])
    for name, setting in RULES.items():
        found = [outcome(setting, curves) for curves in sweeps]
        stopped, saved, regret = (statistics.mean(column) for column in list(zip(*found, strict=True))[:3])
        worst, lost = max(each.regret for each in found), sum(each.lost for each in found)
        print(
            f"{name:20}{stopped:9.0%}{saved:8.0%}{regret:9.3f}{worst:8.2f}{f'{lost} of {SEEDS}':>13}",
            flush=True,
        )


if __name__ == "__main__":
    main()
