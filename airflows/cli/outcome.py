"""`results` and `best`: who won, by how much, and how to run it again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from airflows.cli import htmlfile, options, ranked
from airflows.cli.causes import causes_story
from airflows.cli.failure import NoResultError, UsageError
from airflows.cli.places import places_of
from airflows.cli.terminal import Session
from airflows.documents import Document, results_document
from airflows.errors import MissingExtraError
from airflows.hosts import avoided_hosts
from airflows.report.packed import gain_of
from airflows.report.words import override_words
from airflows.trial import State

if TYPE_CHECKING:
    from airflows.engine.promotion import Registration
    from airflows.engine.results import SweepResults
    from airflows.ledger import Ledger
    from airflows.objective import Objective
    from airflows.ranking import Group, Scored
    from airflows.tracking import Reading, Tracker

Format = Literal["table", "csv", "json", "parquet"]
As = Literal["table", "overrides", "yaml"]
Goal = Literal["minimize", "maximize"]

# As MLflow has it.
_ALIAS = re.compile(r"(?!latest$|[vV]\d+$)[\w-]+", re.ASCII)


def results(
    session: Session,
    sweep_id: options.SweepId,
    *,
    top: Annotated[int | None, typer.Option("--top", metavar="N", min=1, help="Only the best N.")] = None,
    form: Annotated[Format, typer.Option("--format", help="parquet needs --to and pyarrow.")] = "table",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write csv or parquet into a file.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="NAME", help="Rank by another metric; see --goal.")
    ] = None,
    goal: Annotated[
        Goal | None, typer.Option("--goal", help="Which of two values of --metric is better.")
    ] = None,
    where: options.Where = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Which parameters matter; needs airflows[optuna].")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a report with all plots; needs airflows[report]."),
    ] = None,
) -> int:
    """Print the ranked table."""
    from airflows.cli.lookup import conditions, reading, the_sweep  # noqa: PLC0415
    from airflows.engine.results import gather, verdict_document  # noqa: PLC0415

    home = options.home()
    if html is not None:
        htmlfile.refuse_mixtures(
            {"--top": top, "--where": where, "--to": to, f"--format {form}": form != "table"}
        )
    ledger = reading(home)
    found = gather(ledger, the_sweep(ledger, sweep_id))
    if metric is not None:
        found = _ranked_by(ledger, found, metric, goal, home)
    elif goal is not None:
        message = "--goal goes with --metric."
        raise UsageError(message, hint="The objective's own goal is in the sweep file.")
    kept = _kept(found, conditions(where), top)
    if form in {"csv", "parquet"} and not session.is_json:
        return _write_table(session, ledger, found, kept, form, to)
    versions = ledger.code_versions(found.row.id)
    avoided = avoided_hosts(ledger.ended_attempts(found.row.id))
    judged = verdict_document(ledger, found)
    document = results_document(found, kept, _causes(ledger, found), versions, avoided, judged)
    gain = gain_of(ledger.attempts(found.row.id), pack) if (pack := found.sweep.spec.pack) > 1 else None
    document["packing"] = None if gain is None else gain.to_dict()
    document["places"] = places_of(ledger, found.row)
    if importance:
        document["importance"] = _importance(found)
    if html is not None:
        size = htmlfile.write_report(ledger, found, html, home)
        told = f"{html}  {size / 1e6:.1f} MB, opens in any browser and asks nothing of any network"
        session.answer(document | {"html": {"file": str(html), "bytes": size}}, [told])
    elif form == "json":
        session.document(document)
    else:
        session.answer(document, ranked.results_lines(document, session.style))
    return 0


def _importance(found: SweepResults) -> Document:
    from airflows.engine.importance import importance_of  # noqa: PLC0415

    return importance_of(found).to_dict()


def _causes(ledger: Ledger, found: SweepResults) -> list[Document]:
    return causes_story(ledger, found.row) if found.counts.get(State.FAILED) else []


def _kept(found: SweepResults, where: Mapping[str, Any], top: int | None) -> list[Group]:
    from airflows.cli.lookup import has_overrides  # noqa: PLC0415

    ranked = () if found.ranking is None else found.ranking.ranked
    return [group for group in ranked if has_overrides(group.overrides, where)][:top]


def _ranked_by(
    ledger: Ledger, found: SweepResults, metric: str, goal: Goal | None, home: Path
) -> SweepResults:
    """Return the results ranked by another metric, as MLflow has it."""
    from airflows.engine.results import aim_of, ranking_by, scored_trials  # noqa: PLC0415

    objective = _objective_of(found, metric, goal)
    trials = list(scored_trials(ledger, found.row, objective))
    tracker, runs = tracker_of(found, home), [trial.run_id for trial in trials if trial.run_id]
    read = tracker.read(runs, objective)
    if len(read) < len(runs):
        # The right address, and other runs behind it: this says how many are missing.
        tracker.verify(runs)
    scored = [_rescored(trial, read.get(trial.run_id)) for trial in trials]
    ranking = ranking_by(found.row.edits, [aim_of(objective, found.sweep.spec)], scored)
    return replace(found, objective=objective, objectives=(), ranking=ranking)


def _objective_of(found: SweepResults, metric: str, goal: Goal | None) -> Objective:
    from airflows.objective import Objective  # noqa: PLC0415

    own = next((one for one in found.objectives if one.metric == metric), found.objective)
    if goal is None and (own is None or own.metric != metric):
        message = f"which value of {metric} is better?"
        raise UsageError(message, hint="Say --goal minimize or --goal maximize.")
    made: dict[str, Any] = {"metric": metric, "goal": goal or (own.goal if own else None)}
    return Objective(**made) if own is None else own.model_copy(update=made)


def tracker_of(found: SweepResults, home: Path) -> Tracker:
    """Return MLflow, turned to the runs of a sweep.

    Raises:
        NoResultError: it ran without.
    """
    from airflows.engine.reporting import attached_tracker  # noqa: PLC0415
    from airflows.tracking.uris import OFF  # noqa: PLC0415

    row = found.row
    if row.tracking_uri in {"", OFF}:
        message = f"{row.id} ran without MLflow, so it has no metrics."
        raise NoResultError(message, hint="See `tracking` in the sweep file.")
    return attached_tracker(row, found.sweep.spec, home)


def _rescored(trial: Scored, reading: Reading | None) -> Scored:
    from airflows.scores import shown  # noqa: PLC0415

    if reading is None or reading.value is None:
        return replace(trial, value=None, raw="", step=None)
    return replace(trial, value=reading.value, raw=shown(reading.value), step=reading.step)


def _write_table(
    session: Session,
    ledger: Ledger,
    found: SweepResults,
    kept: Sequence[Group],
    form: Format,
    to: Path | None,
) -> int:
    from airflows.engine.results import further_values, trials_with_overrides  # noqa: PLC0415
    from airflows.report.tables import results_csv  # noqa: PLC0415

    is_cut = found.ranking is not None and len(kept) < len(found.ranking.ranked)
    numbers = {number for group in kept for number in group.trials}
    trials = [
        (trial, overrides)
        for trial, overrides in trials_with_overrides(ledger, found.row)
        if not is_cut or trial.number in numbers
    ]
    lines = results_csv(found, trials, further=further_values(ledger, found))
    if form == "parquet":
        return _write_parquet("".join(lines), to)
    if to is None:
        session.text(*(line.removesuffix("\n") for line in lines))
    else:
        with to.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
    return 0


def _write_parquet(text: str, to: Path | None) -> int:
    if to is None:
        message = "--format parquet needs --to FILE."
        raise UsageError(message, hint="Parquet is no text, so it goes into a file.")
    try:
        arrow, arrow_csv, parquet = map(import_module, ("pyarrow", "pyarrow.csv", "pyarrow.parquet"))
    except ModuleNotFoundError as exc:
        message = "--format parquet needs pyarrow, which is not installed."
        raise MissingExtraError(message, hint="Run: pip install pyarrow") from exc
    parquet.write_table(arrow_csv.read_csv(arrow.BufferReader(text.encode())), to)
    return 0


def best(
    session: Session,
    sweep_id: options.SweepId,
    *,
    form: Annotated[
        As, typer.Option("--as", help="overrides: --override words; yaml: a ready train.yaml.")
    ] = "table",
    register: Annotated[
        str | None,
        typer.Option(
            "--register",
            metavar="NAME[@ALIAS]",
            help="Register its model in MLflow, and point the alias at that version.",
        ),
    ] = None,
) -> int:
    """Print the winner alone; of several objectives the knee of the Pareto front."""
    from airflows.cli.lookup import reading, the_sweep  # noqa: PLC0415
    from airflows.engine.results import gather, verdict_document  # noqa: PLC0415

    home = options.home()
    model = None if register is None else model_and_alias(register)
    ledger = reading(home)
    found = gather(ledger, the_sweep(ledger, sweep_id))
    winner = found.winner or found.knee
    if winner is None or found.objective is None:
        raise _no_winner(found)
    # What it ran with runs again.
    overrides = {**_of_the_trial(ledger, found, winner), **winner["changed"]}
    made = None if model is None else _register(found, model, home)
    if session.is_json:
        judged = verdict_document(ledger, found)
        session.document(winner | {"verdict": judged, "registered": None if made is None else made.to_dict()})
    elif form == "overrides":
        session.text(" ".join(override_words(overrides)))
    elif form == "yaml":
        session.text(_train_yaml(found, overrides))
    else:
        judged = verdict_document(ledger, found)
        session.text(*ranked.best_lines(winner, found.objective.metric, session.style, judged))
    if not found.complete:
        session.note("The sweep is not finished: this is the best so far.")
    if made is not None and not session.is_json:
        session.note(*registered_lines(made))
    return 0


def model_and_alias(text: str) -> tuple[str, str]:
    """Return what `NAME` or `NAME@ALIAS` says, no alias as empty.

    Raises:
        UsageError: it has another form, or MLflow takes no such alias.
    """
    name, at, alias = text.rpartition("@") if "@" in text else (text, "", "")
    if not name.strip() or (at and not _ALIAS.fullmatch(alias)):
        message = f"--register {text}: it takes a model's name, and after @ an alias if you like."
        hint = "Such as digits@champion; an alias has letters, digits, - and _, and is not `latest` or v1."
        raise UsageError(message, hint=hint)
    return name, alias


def _register(found: SweepResults, model: tuple[str, str], home: Path) -> Registration:
    from airflows.engine.promotion import register  # noqa: PLC0415

    name, alias = model
    return register(found, model=name, alias=alias, home=home)


def registered_lines(made: Registration) -> list[str]:
    """Return what has become of a model."""
    made_now = "registered as" if made.is_new else "was registered already as"
    lines = [f"Its model {made_now} version {made.version} of {made.model}."]
    if not made.alias:
        return lines
    name = f"{made.model}@{made.alias}"
    if made.previous is None:
        return [*lines, f"{name} points at version {made.version} now."]
    if made.previous == made.version:
        return [*lines, f"{name} pointed at it already."]
    return [*lines, f"{name} has moved from version {made.previous} to version {made.version}."]


def _no_winner(found: SweepResults) -> NoResultError:
    if found.objective is None:
        message = f"{found.row.id} has no objective, so it has no winner."
        return NoResultError(message, hint="Rank it with: airflows results SWEEP --metric NAME --goal GOAL")
    message = f"{found.row.id} has no winner" + (
        " yet." if not found.complete else ": no point can be ranked."
    )
    return NoResultError(
        message, hint=f"`airflows results {found.row.id}` says why each trial is not ranked."
    )


def _of_the_trial(ledger: Ledger, found: SweepResults, winner: Document) -> Mapping[str, Any]:
    """Return the overrides of the winning trial, its replicate's value included."""
    from airflows.cli.lookup import overrides_of  # noqa: PLC0415

    number = int(winner["trial"].rpartition("/")[2])
    return overrides_of(ledger, found.row, ledger.trials(found.row.id, numbers=[number]))[number]


def _train_yaml(found: SweepResults, overrides: Mapping[str, Any]) -> str:
    from airflows.keys import effective  # noqa: PLC0415
    from airflows.yamlio import dump  # noqa: PLC0415

    return dump(effective(found.sweep.base.tree, overrides)).rstrip("\n")
