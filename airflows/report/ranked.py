"""The table of a report: every point by rank, then the trials that are not ranked. Pure, to plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.ranking import Group
from airflows.report.facts import Facts, Parameter
from airflows.report.figures.drawing import is_number, shown
from airflows.scores import is_sound
from airflows.scores import shown as number_word
from airflows.trial import Trial

_Form = tuple[bool, bool]
_NOTE_CHARS = 160
_MOST_NUMBERS = 6
_DIGITS = 10
_LARGEST_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and whether it holds numbers, for their alignment."""

    name: str
    is_numeric: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as the page's script takes it."""
        return {"name": self.name, "number": self.is_numeric}


def columns(facts: Facts) -> list[Column]:
    """Return the columns of the table."""
    several, replicated = _form(facts)
    made = [Column("rank", True)]
    made += [Column("front")] if several else []
    for goal in facts.goals:
        made.append(Column(goal.metric, True))
        made += [Column(f"sd of {goal.metric}" if several else "sd", True)] if replicated else []
    made += [Column("n", True)] if replicated else []
    made += [Column("95 % low", True), Column("95 % high", True)] if replicated and not several else []
    made += [Column("vs winner")] if replicated and not several else []
    made += [Column(parameter.name, _holds_numbers(facts, parameter)) for parameter in facts.parameters]
    return [
        *made,
        Column("trials"),
        Column("state"),
        Column("step", True),
        Column("minutes", True),
        Column("note"),
    ]


def rows(facts: Facts) -> Iterator[list[Any]]:
    """Yield the rows, the ranked ones first; a value is a number, a text, or None."""
    form = _form(facts)
    by_number = {trial.number: trial for trial, _ in facts.trials}
    ranked = set[int]()
    for group in facts.groups:
        ranked.update(group.trials)
        yield _of_group(
            facts, form, group, [by_number[number] for number in group.trials if number in by_number]
        )
    why = {} if facts.ranking is None else {one.number: one.reason for one in facts.ranking.unranked}
    for trial, overrides in facts.trials:
        if trial.number not in ranked:
            note = why.get(trial.number) or trial.message
            yield _of_trial(facts, form, (trial, overrides), note)


def _of_group(facts: Facts, form: _Form, group: Group, trials: Sequence[Trial]) -> list[Any]:
    several, replicated = form
    row: list[Any] = [group.rank]
    row += ["knee" if group.is_knee else "yes" if group.on_front else ""] if several else []
    for figures in group.objectives or [group]:
        row.append(_number(figures.value))
        row += [_number(figures.sd)] if replicated else []
    row += [group.n] if replicated else []
    if replicated and not several:
        row += [None, None] if group.ci95 is None else [_number(bound) for bound in group.ci95]
        row.append(_versus(group))
    row += _parameters(facts, group.overrides)
    steps = {step for step in group.steps if step is not None}
    states = list(dict.fromkeys(trial.state.value for trial in trials))
    note = group.note or ("stopped early" if group.stopped_early else "")
    return [
        *row,
        _numbers(group.trials),
        ", ".join(states),
        max(steps, default=None),
        _minutes(trials),
        shown(note, _NOTE_CHARS),
    ]


def _of_trial(facts: Facts, form: _Form, one: tuple[Trial, Mapping[str, Any]], note: str) -> list[Any]:
    trial, overrides = one
    several, replicated = form
    row: list[Any] = [None, *([""] if several else [])]
    value = _number(trial.value) if trial.value is not None else trial.raw_value or None
    for place, _ in enumerate(facts.goals):
        # What was read of a trial is the first of the sweep's own metrics.
        row.append(value if facts.is_own and not place else None)
        row += [None] if replicated else []
    row += [None] if replicated else []
    row += [None, None, ""] if replicated and not several else []
    row += _parameters(facts, overrides)
    return [
        *row,
        str(trial.number),
        trial.state.value,
        trial.value_step if facts.is_own else None,
        _minutes([trial]),
        shown(note, _NOTE_CHARS),
    ]


def _parameters(facts: Facts, overrides: Mapping[str, Any]) -> list[Any]:
    values = [parameter.value(overrides) for parameter in facts.parameters]
    return [_cell(value) for value in values]


def _cell(value: Any) -> Any:
    # The page's script has no integers beyond these.
    if value is None or (is_number(value) and abs(value) <= _LARGEST_EXACT):
        return value
    return shown(value)


def _holds_numbers(facts: Facts, parameter: Parameter) -> bool:
    values = [value for _, each in facts.trials if (value := parameter.value(each)) is not None]
    return bool(values) and all(map(is_number, values))


def _form(facts: Facts) -> _Form:
    """Return whether there are several objectives, and whether points have replicates."""
    return len(facts.goals) > 1, any(group.n > 1 for group in facts.groups)


def _versus(group: Group) -> str:
    if group.p_adjusted is None:
        return ""
    word = "better mean" if group.is_ahead else "within noise"
    word = "worse" if group.separable_from_winner else word
    return f"{word}, p={group.p_adjusted:.2g}"


def _number(value: float | None) -> float | str | None:
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if is_sound(value) else number_word(value)


def _numbers(numbers: Sequence[int]) -> str:
    words = " ".join(map(str, numbers[:_MOST_NUMBERS]))
    hidden = len(numbers) - _MOST_NUMBERS
    return f"{words} +{hidden}" if hidden > 0 else words


def _minutes(trials: Sequence[Trial]) -> float | None:
    """Return how long the last attempts ran together."""
    ran = [
        trial.ended_at - trial.started_at
        for trial in trials
        if trial.started_at is not None and trial.ended_at is not None
    ]
    return round(max(0.0, sum(ran)) / 60, 2) if ran else None
