"""What a setting would have done to a sweep whose curves are known. Pure.

At best: a running sweep learns a value some moments after it was logged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflows.stopping.curves import Score, kept, on_its_own
from airflows.stopping.halving import halve
from airflows.stopping.rungs import Standing, Stop, judge
from airflows.stopping.setting import Setting


@dataclass(frozen=True, slots=True)
class Curve:
    """What one trial logged of the metric.

    Attributes:
        number: the trial's.
        point: its point's number.
        scores: all its values, by step.
        accelerator_s: what it cost.
        is_added: a replicate beyond those of the sweep file, which is not compared.
    """

    number: int
    point: int
    scores: Sequence[Score]
    accelerator_s: float = 0.0
    is_added: bool = False

    def left_after(self, step: int) -> float:
        """Return the share of the steps that lie after a step."""
        first, last = min(0, self.scores[0].step), self.scores[-1].step
        return (last - step) / (last - first) if last > first else 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """What would have been.

    Attributes:
        trials: how many had a curve.
        stops: why each trial would have been stopped, by number.
        steps: that were logged in all.
        steps_saved: of those, the ones after a stop.
        accelerator_s: that the trials cost.
        accelerator_s_saved: of those, by each trial's share of steps.
        lost: the trials of the winner that would have been stopped.
    """

    trials: int
    stops: Mapping[int, Stop]
    steps: int
    steps_saved: int
    accelerator_s: float
    accelerator_s_saved: float
    lost: Sequence[int] = field(default=())

    @property
    def share_saved(self) -> float:
        """The share of the steps that would have been saved."""
        return self.steps_saved / self.steps if self.steps else 0.0


def replay(setting: Setting, curves: Iterable[Curve], winners: Collection[int] = ()) -> Replay:
    """Return what a setting would have done.

    Args:
        setting: the rule.
        curves: of all trials that logged the metric.
        winners: the numbers of the winner's trials.
    """
    logged = {curve.number: curve for curve in curves if curve.scores}
    stops = _stops(setting, list(logged.values()))
    # A trial that logged nothing after the stop would have ended there anyway.
    stops = {n: stop for n, stop in stops.items() if stop.step < logged[n].scores[-1].step}
    left = {n: logged[n].left_after(stop.step) for n, stop in stops.items()}
    return Replay(
        trials=len(logged),
        stops=stops,
        steps=sum(_steps(curve) for curve in logged.values()),
        steps_saved=sum(logged[n].scores[-1].step - stop.step for n, stop in stops.items()),
        accelerator_s=sum(curve.accelerator_s for curve in logged.values()),
        accelerator_s_saved=sum(logged[n].accelerator_s * share for n, share in left.items()),
        lost=sorted(set(winners) & stops.keys()),
    )


def _steps(curve: Curve) -> int:
    return curve.scores[-1].step - min(0, curve.scores[0].step)


def _stops(setting: Setting, curves: Sequence[Curve]) -> dict[int, Stop]:
    """Return why each trial stops, by number, in the order of numbers."""
    alone = {curve.number: found for curve in curves if (found := _alone(setting, curve))}
    standings = [
        Standing(
            c.number, c.point, is_open=False, scores=kept(setting, c.point, _until(c, alone.get(c.number)))
        )
        for c in curves
        if not c.is_added
    ]
    by_point = halve(setting, standings, coming=0)[1] if setting.resume else judge(setting, standings)
    stops = {c.number: by_point[c.point] for c in curves if c.point in by_point and not c.is_added}
    for number, stop in alone.items():
        if number not in stops or stop.step < stops[number].step:
            stops[number] = stop
    return dict(sorted(stops.items()))


def _alone(setting: Setting, curve: Curve) -> Stop | None:
    found = on_its_own(setting, curve.scores)
    return None if found is None else Stop(found[0].step, found[0].value, found[1])


def _until(curve: Curve, stop: Stop | None) -> Sequence[Score]:
    return curve.scores if stop is None else [score for score in curve.scores if score.step <= stop.step]
