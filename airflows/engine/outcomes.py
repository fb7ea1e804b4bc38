"""What became of points, as a sampler is told it: replicates taken together as in the ranking. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflows.engine.results import aim_of
from airflows.ranking import Aim, Scored, rank
from airflows.scores import is_sound, mean, shown
from airflows.search.adaptive import Outcome
from airflows.spec import SweepSpec
from airflows.trial import State, Trial


def aims_of(spec: SweepSpec) -> list[Aim]:
    """Return what each objective of a sweep file means."""
    return [aim_of(objective, spec) for objective in spec.all_objectives]


def scored(
    trial: Trial, constrained: Mapping[str, float], others: Mapping[int, float], objectives: int
) -> Scored:
    """Return a final trial with what was read for it.

    Args:
        trial: the trial.
        constrained: the value of each metric that a constraint names.
        others: the values of the further objectives, by place from 1.
        objectives: how many there are.
    """
    return Scored(
        number=trial.number,
        point=trial.point,
        overrides={},
        state=trial.state,
        reason=trial.reason,
        value=trial.value,
        raw=trial.raw_value,
        step=trial.value_step,
        constrained=constrained,
        others=tuple(others.get(place) for place in range(1, objectives)),
    )


def outcome_of(aims: Sequence[Aim], members: Sequence[Scored]) -> Outcome:
    """Return what became of a point.

    Args:
        aims: one for each objective.
        members: its trials, all of them final.
    """
    if any(member.state is State.STOPPED for member in members):
        return _stopped(members)
    values: list[float] = []
    for place, aim in enumerate(aims):
        ranked = rank(aim, [_for_objective(member, place) for member in members]).ranked
        if not ranked:
            return Outcome("diverged" if _has_diverged(aims, members) else "failed")
        values.append(ranked[0].value)
    violations = _violations(aims, [member for member in members if member.state is State.SUCCEEDED])
    if violations is None:
        # What a constraint is about was not logged: the point can win as little as one without a value.
        return Outcome("diverged")
    return Outcome("complete", tuple(values), violations=violations)


def _stopped(members: Sequence[Scored]) -> Outcome:
    steps = [member.step for member in members if member.step is not None]
    values = [m.value for m in members if m.value is not None and is_sound(m.value)]
    if not (steps and values):
        return Outcome("stopped")
    return Outcome("stopped", step=max(steps), score=mean(values))


def _for_objective(member: Scored, place: int) -> Scored:
    if not place:
        return member
    value = member.others[place - 1]
    raw = "" if value is None else shown(value)
    return replace(member, value=value if value is not None and is_sound(value) else None, raw=raw)


def _has_diverged(aims: Sequence[Aim], members: Sequence[Scored]) -> bool:
    each = (_for_objective(member, place) for member in members for place in range(len(aims)))
    return any(m.state is State.SUCCEEDED and m.raw and m.value is None for m in each)


def _violations(aims: Sequence[Aim], members: Sequence[Scored]) -> dict[str, float] | None:
    """Return by how much each constraint is broken by the replicate that breaks it most; None if unknown."""
    found: dict[str, float] = {}
    for constraint in (constraint for aim in aims for constraint in aim.constraints):
        values = [member.constrained.get(constraint.metric) for member in members]
        known = [value for value in values if value is not None and is_sound(value)]
        if len(known) < len(values):
            return None
        name = f"{constraint.metric} {constraint.op} {constraint.bound!r}"
        found[name] = max(violation(constraint.op, value, constraint.bound) for value in known)
    return found


def violation(op: str, value: float, bound: float) -> float:
    """Return by how much a value breaks a constraint: at most 0 where it is kept.

    Example:
        >>> violation("<=", 25.0, 20.0), violation(">", 0.9, 0.9) > 0
        (5.0, True)
    """
    least = max(abs(bound), 1.0) * 1e-9
    match op:
        case "<=":
            return value - bound
        case ">=":
            return bound - value
        case "<":
            return value - bound if value != bound else least
        case ">":
            return bound - value if value != bound else least
        case "==":
            return abs(value - bound)
        case _:
            return -abs(value - bound) if value != bound else least
