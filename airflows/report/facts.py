"""What a report tells of, read once: plain values, from which every figure and the page are made. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from airflows.ranking import Group, Ranking
from airflows.search.importance import Importance
from airflows.trial import State, Trial

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow
    from airflows.report.causes import Cause

_Item = TypeVar("_Item")
_NULL = "null"
_RAN = frozenset({State.RUNNING, State.STOPPING, State.SUCCEEDED, State.FAILED, State.STOPPED})

MOST_CURVES = 40
"""So many learning curves are shown; more than that nobody tells apart."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One objective: the metric, `minimize` or `maximize`, and which of a trial's values counts."""

    metric: str
    goal: str
    rule: str = "last"

    @property
    def sign(self) -> int:
        """What a value is multiplied with so that less is better."""
        return 1 if self.goal == "minimize" else -1


@dataclass(frozen=True, slots=True)
class Parameter:
    """What was varied: one key, or several that are coupled.

    Attributes:
        name: the key, for people without `parameters.`; of coupled keys all of them.
        keys: as overrides have them.
        is_log: it is looked at by its logarithm.
    """

    name: str
    keys: tuple[str, ...]
    is_log: bool = False

    def value(self, overrides: Mapping[str, Any]) -> Any:
        """Return its value in a point: text for coupled keys and for null, None where it is not active."""
        if not all(key in overrides for key in self.keys):
            return None
        values = [_NULL if overrides[key] is None else overrides[key] for key in self.keys]
        return values[0] if len(values) == 1 else ", ".join(map(str, values))


@dataclass(frozen=True, slots=True)
class Curve:
    """What one trial logged of the metric: (step, value) by step."""

    number: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curves:
    """The learning curves that were read, and in words why there are not more, or none."""

    shown: Sequence[Curve] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a report tells of a sweep, finished or not.

    Attributes:
        sweep: its id.
        state: as in the JSON documents.
        message: one sentence about how it ended.
        is_complete: every trial is final and its metric was read.
        goals: one for each objective, none without any.
        is_own: these are the sweep's own; False where it is ranked by another metric.
        ranking: None without an objective.
        words: how far the winner can be trusted, in sentences.
        trials: every trial with its point's overrides, by number.
        attempts: by trial and attempt.
        parameters: what was varied, in the order of the sweep file.
        importance: how much each parameter matters; None where it could not be told.
        importance_note: why it could not.
        curves: learning curves.
        causes: why attempts failed.
        details: what people ask of where it ran, name to text.
        code: digest of the code -> trials that ran it.
        source: the sweep file as it took effect.
        began_at: seconds since the epoch, UTC, like all times here.
        ended_at: None while it runs.
        made_at: when this was read.
    """

    sweep: str
    state: str = "running"
    message: str = ""
    is_complete: bool = False
    goals: Sequence[Goal] = ()
    is_own: bool = True
    ranking: Ranking | None = None
    words: Sequence[str] = ()
    trials: Sequence[tuple[Trial, Mapping[str, Any]]] = ()
    attempts: Sequence[AttemptRow] = ()
    parameters: Sequence[Parameter] = ()
    importance: Importance | None = None
    importance_note: str = ""
    curves: Curves = field(default_factory=Curves)
    causes: Sequence[Cause] = ()
    details: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    began_at: float = 0.0
    ended_at: float | None = None
    made_at: float = 0.0

    @property
    def groups(self) -> Sequence[Group]:
        """The ranked points, best first."""
        return () if self.ranking is None else self.ranking.ranked

    @property
    def best(self) -> Group | None:
        """The winner's point, of several objectives the knee's; None without."""
        if self.ranking is None:
            return None
        found = self.ranking.winner or self.ranking.knee
        return None if found is None else found.group

    @property
    def best_trial(self) -> int | None:
        """The trial that stands for it."""
        found = None if self.ranking is None else self.ranking.winner or self.ranking.knee
        return None if found is None else found.number

    def leading_parameters(self, most: int) -> list[Parameter]:
        """Return what varied among the ranked points, the most important ones first."""
        shares = {} if self.importance is None else dict(self.importance.shares)
        varied = [parameter for parameter in self.parameters if self._varies(parameter)]
        order = sorted(varied, key=lambda one: -shares.get(", ".join(one.keys), 0.0))
        return order[:most]

    def _varies(self, parameter: Parameter) -> bool:
        return len({repr(parameter.value(group.overrides)) for group in self.groups}) > 1


def values_of(group: Group) -> list[float]:
    """Return a point's values, one for each objective."""
    return [figures.value for figures in group.objectives] or [group.value]


def curve_numbers(ranking: Ranking | None, trials: Sequence[Trial], most: int = MOST_CURVES) -> list[int]:
    """Return of which trials the learning curves are worth reading: the best half, and some from all over.

    Without a ranking they are from all over; trials that have not run have none.
    """
    able = {trial.number for trial in trials if trial.run_id and trial.state in _RAN}
    ranked = [min(group.trials) for group in ranking.ranked] if ranking is not None else []
    best = [number for number in ranked if number in able][: most // 2]
    if ranking is not None and ranking.winner is not None and ranking.winner.number in able:
        best = list(dict.fromkeys([ranking.winner.number, *best]))
    rest = sorted(able - set(best))
    return best + spread(rest, most - len(best))


def spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """Return at most so many of these, from all over, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most < 2:  # noqa: PLR2004 - no room for both ends
        return list(items[:most])
    return [items[at * (len(items) - 1) // (most - 1)] for at in range(most)]
