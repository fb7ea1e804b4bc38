"""Stopping rules: the order of arrival and restarts change nothing but how early a verdict is known."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.stopping.curves import Score, kept
from airflows.stopping.halving import Verdict, halve
from airflows.stopping.rungs import Standing, judge
from airflows.stopping.setting import Setting

STEPS = 6
LOSS = {"metric": "loss", "goal": "minimize"}
SETTINGS = (
    Setting("asha", **LOSS, min_steps=1, reduction=2),
    Setting("asha", **LOSS, min_steps=2, reduction=3),
    Setting("hyperband", **LOSS, min_steps=1, max_steps=6, reduction=2),
    Setting("median", **LOSS, min_steps=1, after_trials=2),
)
HALVING = Setting("asha", **LOSS, min_steps=2, reduction=2, max_steps=12, resume=True)
SEEDS = st.integers(0, 2**32)


def whole(curves):
    return [[Score(step, value) for step, value in enumerate(curve, 1)] for curve in curves]


def standings(setting, curves, seen, points):
    """The trials as they stand when so many values of each have been logged."""
    return [
        Standing(n, points[n], seen[n] < len(curve), kept(setting, points[n], curve[: seen[n]]))
        for n, curve in enumerate(curves)
    ]


def where(stops):
    return {point: stop.step for point, stop in stops.items()}


class Case:
    """Curves of many trials, and the order in which their values arrive: drawn by one number, which is fast."""

    def __init__(self, seed):
        self.chance = chance = random.Random(seed)
        self.setting = chance.choice(SETTINGS)
        values = [float(value) for value in range(20)] + [float("nan")]
        self.curves = whole(
            [chance.choices(values, k=chance.randint(1, STEPS)) for _ in range(chance.randint(1, 18))]
        )
        self.order = [n for n, curve in enumerate(self.curves) for _ in curve]
        chance.shuffle(self.order)
        replicates = chance.choice([1, 1, 2])
        self.points = [n // replicates for n in range(len(self.curves))]

    def judge(self, curves, seen):
        return judge(self.setting, standings(self.setting, curves, seen, self.points))

    def in_the_end(self):
        return where(self.judge(self.curves, [len(curve) for curve in self.curves]))


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_the_verdicts_do_not_depend_on_the_order_of_arrival(seed):
    """Values arrive one by one, and what is stopped logs nothing any more; nothing that was said is taken back."""
    case = Case(seed)
    seen, stops, cut = [0] * len(case.curves), {}, list(case.curves)
    for number in case.order:
        if seen[number] == len(cut[number]):
            continue
        seen[number] += 1
        now = where(case.judge(cut, seen))
        assert stops.items() <= now.items()
        stops = now
        cut = [curve[: max(seen[n], 1)] if case.points[n] in stops else curve for n, curve in enumerate(cut)]

    # A curve that was cut short never got as far as its next rung: the whole ones say the same.
    assert stops == case.in_the_end()


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_who_starts_anew_in_the_middle_says_the_same(seed):
    """A restart forgets all but the scores, and reads trials in any order."""
    case = Case(seed)
    seen = [0] * len(case.curves)
    for number in case.order[: case.chance.randint(0, len(case.order))]:
        seen[number] += 1
    here = standings(case.setting, case.curves, seen, case.points)
    said = judge(case.setting, here)

    assert judge(case.setting, case.chance.sample(here, len(here))) == said
    assert where(said).items() <= case.in_the_end().items()


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_whoever_waits_at_a_rung_learns_what_all_others_have(seed):
    """Trials run to a rung, wait there, and go on when told, one step at a time and in any order."""
    chance = random.Random(seed)
    curves = whole(
        [
            [float(chance.randrange(20)) for _ in range(chance.randint(1, 10))]
            for _ in range(chance.randint(1, 12))
        ]
    )
    seen, points = [0] * len(curves), list(range(len(curves)))
    verdicts = {}
    while True:
        runs = [n for n, curve in enumerate(curves) if seen[n] < len(curve) and n not in verdicts]
        runs += [
            n for n, verdict in verdicts.items() if verdict is Verdict.GOES_ON and seen[n] < len(curves[n])
        ]
        if not runs:
            break
        seen[chance.choice(runs)] += 1
        before = verdicts
        verdicts, _ = halve(HALVING, standings(HALVING, curves, seen, points), coming=0)
        assert {n for n, v in before.items() if v is Verdict.STOPS} <= {
            n for n, v in verdicts.items() if v is Verdict.STOPS
        }

    ends = [len(curve) for curve in curves]
    final, stops = halve(HALVING, standings(HALVING, curves, ends, points), coming=0)
    assert verdicts == final
    assert Verdict.WAITS not in final.values()
    # Nobody went on who should have waited.
    assert {n: seen[n] for n in stops} == where(stops)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30))
def test_nobody_goes_on_while_better_ones_may_still_come(coming):
    trial = Standing(0, 0, is_open=True, scores=[Score(2, 1.0)])

    assert halve(HALVING, [trial], coming=coming)[0] == {0: Verdict.WAITS}
    assert halve(HALVING, [trial], coming=0)[0] == {0: Verdict.GOES_ON}
