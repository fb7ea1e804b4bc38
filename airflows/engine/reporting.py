"""What a report tells of a sweep: read from the ledger and MLflow, and made into a page or a description."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflows.engine.importance import importance_of, is_log
from airflows.engine.results import SweepResults, aim_of, trials_with_overrides, verdict_of
from airflows.engine.site import recorded_uri
from airflows.engine.start import require_same_store
from airflows.errors import AirflowsError, MissingExtraError
from airflows.hiding import public_overrides, public_source, public_text
from airflows.ledger import Ledger, SweepRow
from airflows.report.causes import causes
from airflows.report.description import description
from airflows.report.facts import Curve, Curves, Facts, Goal, Parameter, curve_numbers
from airflows.report.hiding import public_ranking
from airflows.report.page import page
from airflows.report.verdict import verdict_words
from airflows.search.importance import Importance
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep
from airflows.tracking import OFF, OpenedSweep, SweepRun, Tracker, choose_uri, open_tracker
from airflows.trial import Trial

Rows = Sequence[tuple[Trial, Mapping[str, Any]]]

_NO_MLFLOW = "It ran without MLflow, so there are no learning curves."


@dataclass(frozen=True, slots=True)
class Showing:
    """What a sweep's page in MLflow shows: the description in Markdown, and further artifacts in parts."""

    description: str = ""
    artifacts: Mapping[str, Sequence[str]] = field(default_factory=dict)


def attached_tracker(row: SweepRow, spec: SweepSpec, home: Path) -> Tracker:
    """Return MLflow, turned to the runs of a sweep; it is not asked anything yet.

    Raises:
        ConflictError: what is configured is another MLflow than the sweep's.
        TrackingUnavailableError: its store cannot be used.
    """
    # The recorded one is right from every directory; a relative path of the file is not.
    wanted = recorded_uri(row) or spec.tracking.uri
    tracker = open_tracker(choose_uri(wanted, os.environ, home), home=home)
    require_same_store(tracker, row)
    tracker.attach(SweepRun(row.id, "", owner=row.nonce), OpenedSweep(row.experiment_id, row.parent_run_id))
    return tracker


def facts_of(
    ledger: Ledger, found: SweepResults, *, now: float, rows: Rows | None = None, curves: Curves | None = None
) -> Facts:
    """Return what a report tells of a sweep.

    Args:
        ledger: where it is.
        found: its results, perhaps ranked by another metric.
        now: seconds since the epoch, UTC.
        rows: every trial with its overrides, where they are known.
        curves: learning curves, from `read_curves`.
    """
    row, spec = found.row, found.sweep.spec
    known = trials_with_overrides(ledger, row) if rows is None else rows
    trials = [(trial, public_overrides(overrides)) for trial, overrides in known]
    attempts = ledger.attempts(row.id)
    shares, why_not = _importance(found)
    judged = verdict_of(ledger, found)
    objectives = found.objectives or ((found.objective,) if found.objective else ())
    return Facts(
        sweep=row.id,
        state=row.state.value,
        message=row.message,
        is_complete=found.complete,
        goals=[Goal(o.metric, o.goal, aim_of(o, spec).take.rule) for o in objectives],
        is_own=list(objectives) == spec.all_objectives,
        ranking=None if found.ranking is None else public_ranking(found.ranking),
        words=[]
        if judged is None
        else verdict_words(judged, row.id, has_replicates=spec.replicates is not None),
        trials=trials,
        attempts=attempts,
        parameters=_parameters(found.sweep, trials),
        importance=shares,
        importance_note=why_not,
        curves=curves or Curves(),
        causes=causes(row.id, attempts, trials),
        details=_details(found),
        code=ledger.code_versions(row.id),
        source=public_source(row.source),
        began_at=row.created_at,
        ended_at=row.ended_at,
        made_at=now,
    )


def read_curves(tracker: Tracker | None, found: SweepResults, rows: Rows) -> Curves:
    """Return the learning curves of some trials. MLflow that does not answer is a note, not an error.

    Args:
        tracker: attached to the sweep's runs; None without MLflow.
        found: the sweep's results.
        rows: every trial with its overrides.
    """
    if tracker is None or tracker.is_off:
        return Curves(note=_NO_MLFLOW)
    if found.objective is None:
        return Curves(note="The sweep file has no objective, so no metric is chosen.")
    trials = {trial.number: trial for trial, _ in rows}
    numbers = curve_numbers(found.ranking, list(trials.values()))
    by_run = {trials[number].run_id: number for number in numbers}
    try:
        logged = dict(tracker.curve(list(by_run), found.objective.metric))
    except AirflowsError as exc:
        return Curves(note=f"The learning curves could not be read: {exc}")
    shown = [
        Curve(number, [(each.step, each.value) for each in sorted(logged.get(run, ()), key=_by_step)])
        for run, number in by_run.items()
    ]
    able = sum(bool(trial.run_id) for trial in trials.values())
    cut = f"{len(shown)} of {able:,} trials are shown: the best, others from all over."
    return Curves(shown, cut if len(shown) < able else "")


def _by_step(point: Any) -> tuple[int, int]:
    return point.step, point.at_ms


def report(facts: Facts) -> Iterator[str]:
    """Return the parts of the HTML report.

    Raises:
        MissingExtraError: plotly, which draws the plots, is not installed.
    """
    return page(facts, plotly_script())


def showing(tracker: Tracker, ledger: Ledger, found: SweepResults, rows: Rows) -> Showing:
    """Return what MLflow's page of a sweep that ends shows; nothing that goes wrong here fails the sweep.

    Args:
        tracker: MLflow, attached to the sweep's runs.
        ledger: where the sweep is.
        found: its results, the row as it is about to be written.
        rows: every trial with its overrides.
    """
    if tracker.is_off:
        return Showing()
    try:
        curves = read_curves(tracker, found, rows)
        facts = facts_of(ledger, found, now=found.row.ended_at or 0.0, rows=rows, curves=curves)
        has_report = _plotly_file() is not None
        parts = {"report.html": tuple(report(facts))} if has_report else {}
        return Showing(description(facts, has_report=has_report), parts)
    except Exception as exc:  # noqa: BLE001 - a sweep of days does not fail for its page
        again = f"`airflows results {found.row.id} --html report.html`"
        return Showing(f"The report could not be made ({type(exc).__name__}). Try {again}.")


def plotly_script() -> str:
    """Return plotly's script, which a report holds; its Python package is not imported.

    Raises:
        MissingExtraError: it is not installed.
    """
    path = _plotly_file()
    if path is None:
        message = "the HTML report needs plotly, which is not installed."
        raise MissingExtraError(message, hint="Run: pip install 'airflows[report]'")
    return path.read_text(encoding="utf-8")


def _plotly_file() -> Path | None:
    found = find_spec("plotly")
    roots = () if found is None else found.submodule_search_locations or ()
    paths = (Path(root, "package_data", "plotly.min.js") for root in roots)
    return next((path for path in paths if path.is_file()), None)


def _importance(found: SweepResults) -> tuple[Importance | None, str]:
    if found.objective is None:
        return None, "The sweep file has no objective, so nothing is ranked."
    try:
        return importance_of(found), ""
    except MissingExtraError as exc:
        return None, str(exc)


def _parameters(sweep: LoadedSweep, rows: Rows) -> list[Parameter]:
    """Return what was varied: the axes of the space, and the keys that rows of `include` add."""
    made = {axis.keys: is_log(axis) for axis in sweep.space.axes}
    known = {key for keys in made for key in keys}
    made |= {(key,): False for _, overrides in rows for key in overrides if key not in known}
    short = {keys: ", ".join(key.removeprefix("parameters.") for key in keys) for keys in made}
    taken = list(short.values())
    return [
        Parameter(short[keys] if taken.count(short[keys]) == 1 else ", ".join(keys), keys, logarithmic)
        for keys, logarithmic in made.items()
    ]


def _details(found: SweepResults) -> dict[str, str]:
    row, config = found.row, found.sweep.base.config
    environment = config.environment
    image = None if environment is None else environment.docker_image
    made = {
        "backend": row.backend,
        "accelerators of one trial": f"{config.compute.num_accelerators} x {config.compute.accelerator_type}",
        "command": public_text(config.command or ""),
        "image": "" if image is None else image.url,
        "packages": ", ".join(environment.dependencies or ()) if environment is not None else "",
        "environment version": "" if environment is None else environment.version or "",
        "MLflow": "" if row.tracking_uri in {"", OFF} else row.tracking_uri,
        "MLflow parent run": row.parent_run_id,
        "directory": row.directory,
        **_git_state(row),
    }
    return {name: text for name, text in made.items() if text}


def _git_state(row: SweepRow) -> dict[str, str]:
    """Return what git said of the code, where this machine has it."""
    if not row.code:
        return {}
    try:
        text = Path(row.root, "snapshots", row.code, "git_state.json").read_text(encoding="utf-8")
        state = json.loads(text)
    except (OSError, ValueError):
        return {}
    changed = ", with changes that are not committed" if state.get("dirty") else ""
    commit = state.get("tip_commit")
    told = {"git commit": f"{commit}{changed}" if commit else "", "git branch": state.get("branch") or ""}
    return {**told, "git repository": state.get("repo_url") or ""}
