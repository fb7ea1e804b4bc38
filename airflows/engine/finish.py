"""The end of a sweep: state, message, winner, and MLflow's parent run closed with the artifacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from airflows.engine.reporting import showing
from airflows.engine.results import SweepResults, further_values, gather, trials_with_overrides
from airflows.engine.site import Site
from airflows.hiding import public_overrides, public_source
from airflows.ledger import Lease, Ledger, SweepState, Wish
from airflows.report.tables import results_csv, winner_yaml
from airflows.tracking import EndedRun, RunsMissingError, SweepEnd
from airflows.trial import Reason, State


def finish(site: Site, sweep: str, lease: Lease, wish: Wish, *, now: float) -> None:
    """Close MLflow's parent run and write the sweep's end. May be repeated after a crash.

    Args:
        site: what the sweep works with.
        sweep: its id.
        lease: of its driver.
        wish: what the driver carried out: a STOP that came after that cancelled nothing.
        now: seconds since the epoch, UTC.

    Raises:
        TrackingUnavailableError: MLflow does not answer; the sweep stays open and may be finished later.
        LeaseLostError: another driver took over.
    """
    row = site.ledger.sweep(sweep)
    results = gather(site.ledger, row)
    state, message = conclusion(results, wish, row.halted)
    winner = results.winner
    trials = list(trials_with_overrides(site.ledger, row))
    shown_trials = [(trial, public_overrides(overrides)) for trial, overrides in trials]
    ended = replace(row, state=state, message=message, ended_at=now)
    shown = showing(site.tracker, site.ledger, replace(results, row=ended), trials)
    end = SweepEnd(
        state=state,
        message=message,
        description=shown.description,
        artifacts={
            **shown.artifacts,
            "sweep.yaml": public_source(row.source),
            "results.csv": results_csv(results, shown_trials, further=further_values(site.ledger, results)),
            "winner.yaml": winner_yaml(results, winner or results.knee, results.sweep.base.tree),
        },
        winner={} if winner is None else {"trial": winner["trial"], "value": repr(winner["value"])},
        run_ids=[trial.run_id for trial, _ in trials if trial.run_id],
    )
    unended = [trial for trial, _ in trials if trial.run_id and not trial.state.is_final]
    site.tracker.close(
        [EndedRun(t.run_id, State.STOPPED, Reason.LIMIT, t.attempt, t.message) for t in unended]
    )
    notes = [*_repeats(site.ledger, sweep), *site.tracker.close_sweep(end)]
    try:
        site.tracker.verify(end.run_ids)
    except RunsMissingError as exc:
        # The parent run is ended all the same, and the table is not silently shorter than MLflow's.
        state, notes = SweepState.FAILED, [*notes, str(exc)]
    message = " ".join([message, *notes]).strip()
    site.ledger.update_sweep(lease, state=state, message=message, winner=winner, ended_at=now)


def _repeats(ledger: Ledger, sweep: str) -> list[str]:
    """Return how many points a method that learns has chosen again, where it has."""
    count = sum(point.same_as is not None for point in ledger.points(sweep))
    if not count:
        return []
    what = "1 point was an earlier one" if count == 1 else f"{count} points were earlier ones"
    return [f"{what} again, and not run twice: the value is shared."]


def conclusion(results: SweepResults, wish: Wish, halted: str) -> tuple[SweepState, str]:
    """Return (state, sentence) of a sweep with nothing left to do."""
    counts = results.counts
    if wish is Wish.STOP and not (results.complete and not counts.get(State.CANCELLED)):
        return SweepState.CANCELLED, "It was cancelled by a person."
    kind, _, why = halted.partition(": ")
    if halted:
        state = SweepState.STOPPED if kind == "stopped" else SweepState.FAILED
        return state, f"Nothing new was started: {why}."
    failed = results.failed
    total = sum(counts.values())
    if failed:
        return SweepState.FAILED, f"{failed} of {total} trials failed{_most_common(results)}."
    if not counts.get(State.SUCCEEDED, 0) and not counts.get(State.STOPPED, 0):
        return SweepState.CANCELLED, "All its trials were cancelled by a person."
    return SweepState.SUCCEEDED, _how_ranked(results)


def _most_common(results: SweepResults) -> str:
    ranking = results.ranking
    if ranking is None:
        return ""
    why = Counter(u.reason for u in ranking.unranked if u.reason.startswith("failed: "))
    if not why:
        return ""
    reason, count = why.most_common(1)[0]
    return f"; {count} with: {reason.removeprefix('failed: ')}".rstrip(".")


def _how_ranked(results: SweepResults) -> str:
    ranking = results.ranking
    if ranking is None:
        return ""
    ranked = sum(len(group.trials) for group in ranking.ranked)
    total = sum(results.counts.values())
    if ranked == total:
        return ""
    why: Mapping[str, int] = Counter(u.reason for u in ranking.unranked)
    words = "; ".join(f"{count} {reason}" for reason, count in list(why.items())[:3])
    return f"The ranking uses {ranked} of {total} trials ({words})."
