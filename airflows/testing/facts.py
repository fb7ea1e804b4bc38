"""A sweep that was never run, of any size, as a report is told of it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from airflows.ledger import AttemptRow
from airflows.pareto import rank_front
from airflows.ranking import Aim, Scored, rank
from airflows.report.causes import causes
from airflows.report.facts import Curve, Curves, Facts, Goal, Parameter, curve_numbers
from airflows.scores import Take
from airflows.search.importance import Importance
from airflows.trial import Handle, Reason, State, Trial

SWEEP = "digits-7f3a9c"
BEGAN_AT = 1_790_000_000.0
_HOSTS = ("node-01", "node-02", "node-03", "node-04")
_ERROR = "ValueError: loss is not finite"


def made_up(
    trials: int, *, replicates: int = 1, objectives: int = 1, steps: int = 50, failing: float = 0.08
) -> Facts:
    """Return the facts of a sweep over a learning rate, a width, an optimiser and its momentum.

    Args:
        trials: how many.
        replicates: of each point.
        objectives: 1 or 2: the loss, and the latency.
        steps: of each learning curve.
        failing: share of trials that fail.
    """
    draw = random.Random(trials)  # noqa: S311 - seeded values, not keys
    points = [_overrides(draw) for _ in range(math.ceil(trials / replicates))]
    rows, attempts, scored = [], [], []
    for number in range(trials):
        point, replicate = divmod(number, replicates)
        is_failed = draw.random() < failing
        value = None if is_failed else _loss(points[point]) + draw.gauss(0, 0.01)
        trial = _trial(number, point, replicate, value)
        own = _attempts(trial, draw)
        rows.append((trial, points[point]))
        attempts += own
        latency = points[point]["parameters.width"] / 20 + draw.random()
        scored.append(_scored(trial, points[point], (latency,) * (objectives - 1)))
    aims = [Aim("val/loss", "minimize", Take("best"), replicates=replicates), Aim("latency_ms", "minimize")]
    ranking = rank(aims[0], scored) if objectives == 1 else rank_front(aims, scored)
    chosen = curve_numbers(ranking, [trial for trial, _ in rows])
    shown = [Curve(number, _curve(points[number // replicates], steps, draw)) for number in chosen]
    cut = f"{len(shown)} of {trials:,} trials are shown: the best, others from all over."
    return Facts(
        sweep=SWEEP,
        state="succeeded",
        is_complete=True,
        goals=[Goal(aim.metric, aim.goal, aim.take.rule) for aim in aims[:objectives]],
        ranking=ranking,
        words=["It ran once, and so its value is the best of several noisy ones."] if replicates == 1 else [],
        trials=rows,
        attempts=attempts,
        parameters=_PARAMETERS,
        importance=_importance(len(ranking.ranked)),
        curves=Curves(shown, cut if len(shown) < trials else ""),
        causes=causes(SWEEP, attempts, rows),
        details={"backend": "slurm", "accelerators of one trial": "8 x GPU_8xH100"},
        code={"c0ffee" * 10: trials},
        source="name: digits\nspace:\n  parameters.lr: {min: 0.0001, max: 0.1, log: true}\n",
        began_at=BEGAN_AT,
        ended_at=max((each.ended_at or 0.0 for each in attempts), default=BEGAN_AT),
        made_at=BEGAN_AT + 1_000_000,
    )


_PARAMETERS = (
    Parameter("lr", ("parameters.lr",), is_log=True),
    Parameter("width", ("parameters.width",)),
    Parameter("optimizer", ("parameters.optimizer",)),
    Parameter("momentum", ("parameters.momentum",)),
    Parameter("batch, accumulate", ("parameters.batch", "parameters.accumulate")),
)


def _overrides(draw: random.Random) -> dict[str, Any]:
    optimizer = draw.choice(["adamw", "sgd", "lion"])
    made: dict[str, Any] = {
        "parameters.lr": float(f"{10 ** draw.uniform(-4, -1):.4g}"),
        "parameters.width": draw.choice(range(64, 1025, 32)),
        "parameters.optimizer": optimizer,
    }
    if optimizer == "sgd":
        made["parameters.momentum"] = round(draw.uniform(0.5, 0.99), 3)
    batch, accumulate = draw.choice([(32, 4), (64, 2), (128, 1)])
    return made | {"parameters.batch": batch, "parameters.accumulate": accumulate}


def _loss(overrides: Mapping[str, Any]) -> float:
    far = abs(math.log10(overrides["parameters.lr"]) + 2.4)
    lag = {"adamw": 0.0, "lion": 0.02, "sgd": 0.08}[overrides["parameters.optimizer"]]
    return 0.2 + 0.15 * math.pow(far, 1.5) + 40.0 / float(overrides["parameters.width"]) + lag


def _trial(number: int, point: int, replicate: int, value: float | None) -> Trial:
    state, reason = (State.SUCCEEDED, Reason.NONE) if value is not None else (State.FAILED, Reason.ERROR)
    began = BEGAN_AT + 60 * (number // len(_HOSTS))
    return Trial(
        *(SWEEP, number, point, replicate, state, reason),
        message="" if value is not None else _ERROR,
        backend="slurm",
        started_at=began,
        ended_at=began + 30 + number % 25,
        host=_HOSTS[number % len(_HOSTS)],
        run_id=f"run{number}",
        value=value,
        value_step=None if value is None else 50,
    )


def _attempts(trial: Trial, draw: random.Random) -> list[AttemptRow]:
    is_preempted = draw.random() < 0.05  # noqa: PLR2004 - one in twenty
    made = [_attempt(trial, 0, State.FAILED, Reason.PREEMPTED)] if is_preempted else []
    return [*made, _attempt(trial, len(made), trial.state, trial.reason)]


def _attempt(trial: Trial, attempt: int, state: State, reason: Reason) -> AttemptRow:
    began, ended = trial.started_at or 0.0, trial.ended_at or 0.0
    is_first_of_two = reason is Reason.PREEMPTED
    middle = (began + ended) / 2
    signature = f"{reason.value}: {_ERROR}" if reason is Reason.ERROR else reason.value
    return AttemptRow(
        number=trial.number,
        attempt=attempt,
        token=f"digits-7f3a9c-{trial.number:04d}-a{attempt}",
        backend="slurm",
        batch="b",
        handle=Handle(f"slurm:{trial.number}"),
        host=trial.host,
        state=state.value,
        reason=reason.value,
        signature=signature,
        message=_ERROR if reason is Reason.ERROR else reason.sentence,
        exit_code=0 if state is State.SUCCEEDED else 1,
        claimed_at=began - 12,
        submitted_at=began - 10,
        started_at=began if is_first_of_two or attempt == 0 else middle,
        ended_at=middle if is_first_of_two else ended,
        resumed_from="",
        code="c0ffee" * 10,
        accelerators=8,
    )


def _scored(trial: Trial, overrides: Mapping[str, Any], others: tuple[float, ...]) -> Scored:
    return Scored(
        *(trial.number, trial.point, overrides, trial.state, trial.reason, trial.value),
        step=trial.value_step,
        message=trial.message,
        run_id=trial.run_id,
        others=others if trial.value is not None else (),
    )


def _curve(overrides: Mapping[str, Any], steps: int, draw: random.Random) -> list[tuple[float, float]]:
    end, slow = _loss(overrides), 0.15 * steps
    return [(step, end + 2 * math.exp(-step / slow) + draw.gauss(0, 0.02)) for step in range(steps)]


def _importance(points: int) -> Importance:
    shares = {"parameters.lr": 0.61, "parameters.width": 0.22, "parameters.optimizer": 0.12}
    shares |= {"parameters.momentum": 0.04, "parameters.batch, parameters.accumulate": 0.01}
    return Importance(points, shares, dict.fromkeys(shares, points))
