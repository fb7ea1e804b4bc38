"""What another `stop` would have done to a sweep: its recorded curves, judged anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.engine.results import SweepResults
from airflows.engine.source import Replicates
from airflows.errors import SpecError
from airflows.ledger import Ledger, SweepRow
from airflows.ranking import Group
from airflows.report.accounting import spent_by_trial, total
from airflows.spec import SweepSpec
from airflows.stopping.curves import series
from airflows.stopping.replay import Curve, Replay, replay
from airflows.stopping.setting import Setting, setting_of
from airflows.sweepfile import sweep_from_mapping
from airflows.tracking import Tracker
from airflows.yamlio import parse

_OPTION = "--stop"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would have been.

    Attributes:
        row: the sweep.
        setting: the rule, with all defaults.
        given: the keys of `stop` as they were given.
        replay: what the rule would have done.
        winner: the groups that won, several with several objectives.
        best_kept: the best group of which nothing would have been stopped.
    """

    row: SweepRow
    setting: Setting
    given: Mapping[str, Any]
    replay: Replay
    winner: Sequence[Group]
    best_kept: Group | None


def what_if(ledger: Ledger, found: SweepResults, tracker: Tracker, stops: Sequence[str]) -> WhatIf:
    """Replay a setting over the curves of a sweep.

    Args:
        ledger: the durable record.
        found: the sweep's results.
        tracker: attached to the sweep's runs.
        stops: keys of `stop` as `KEY=VALUE`, or a method alone; empty for those of the sweep file.

    Raises:
        SpecError: the setting is wrong, or there is none.
        TrackingUnavailableError: MLflow does not answer.
    """
    spec = _spec_with(found.row, stops)
    setting = setting_of(spec)
    if setting is None or (spec.stop.method is None and not stops):
        message = f"the file of sweep {found.row.id} has no stopping rule."
        raise SpecError(message, file=_OPTION, hint="Name one: --stop method=asha --stop min_steps=3")
    ranked = () if found.ranking is None else found.ranking.ranked
    winners = [group for group in ranked if group.rank == 1]
    curves = list(_curves(ledger, found.row, tracker, spec, setting.metric))
    done = replay(setting, curves, [number for group in winners for number in group.trials])
    kept = next((group for group in ranked if not done.stops.keys() & set(group.trials)), None)
    return WhatIf(found.row, setting, spec.stop.model_dump(exclude_none=True), done, winners, kept)


def _spec_with(row: SweepRow, stops: Sequence[str]) -> SweepSpec:
    tree = dict(parse(row.source, file=f"sweep {row.id}", dialect="sweep").value)
    if stops:
        tree["stop"] = {}
    sets = [f"stop.{text}" if "=" in text else f"stop.method={text}" for text in stops]
    try:
        return sweep_from_mapping(tree, directory=Path(row.directory), file=_OPTION, sets=sets).spec
    except SpecError as exc:
        raise SpecError(exc.message, file=_OPTION, field=exc.field, hint=exc.hint) from exc


def _curves(ledger: Ledger, row: SweepRow, tracker: Tracker, spec: SweepSpec, metric: str) -> Iterator[Curve]:
    now = row.ended_at or row.created_at
    spent = {number: total(each) for number, each in spent_by_trial(ledger.attempts(row.id), now).items()}
    replicates = Replicates(spec).count
    trials = {trial.run_id: trial for trial in ledger.trials(row.id) if trial.run_id}
    for run_id, points in tracker.curve(list(trials), metric):
        trial = trials[run_id]
        cost = spent.get(trial.number)
        seconds = 0.0 if cost is None else cost.useful_s + cost.lost_s
        scores = [score for score in series(points) if score.step >= 0]
        yield Curve(trial.number, trial.point, scores, seconds, trial.replicate >= replicates)
