"""What Prefect's pages show of a sweep: tables, Markdown and messages. Pure, without Prefect."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from airflows.documents import Document, causes_of, counts_document, plain, value_of, without_passwords
from airflows.engine.results import SweepResults
from airflows.engine.source import Replicates
from airflows.ledger import AttemptRow, SweepRow
from airflows.report.words import override_words
from airflows.trial import State, Trial

MOST_ROWS = 100
_MOST_CAUSES = 5
_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class View:
    """A sweep as it was just read from the ledger; `trials` with their points' overrides."""

    results: SweepResults
    trials: Sequence[tuple[Trial, Mapping[str, Any]]]
    attempts: Sequence[AttemptRow]

    @property
    def row(self) -> SweepRow:
        """The sweep."""
        return self.results.row


@dataclass(frozen=True, slots=True)
class Artifact:
    """One of a sweep's artifacts. `data` is what Prefect's kind of artifact takes."""

    key: str
    kind: str
    data: Any
    description: str


def artifacts_of(view: View) -> list[Artifact]:
    """Return a sweep's artifacts as they are to be now: progress, trials, winner, link to MLflow."""
    name, counts = artifact_name(view.row.name), view.results.counts
    about = f"Sweep {view.row.id}"
    made = [
        Artifact(
            f"{name}-progress", "progress", percent_of(view.row, counts), _counts_text(view.row, counts)
        ),
        Artifact(f"{name}-trials", "table", json.dumps(without_passwords(table_of(view))), _table_note(view)),
    ]
    if view.results.objective is not None:
        made.append(Artifact(f"{name}-winner", "markdown", without_passwords(winner_text(view)), about))
    link = link_text(view.row)
    if link:
        made.append(Artifact(f"{name}-mlflow", "markdown", link, about))
    return made


def artifact_name(sweep: str) -> str:
    """Return a sweep's name as Prefect's artifact keys take it: lower-case letters, digits, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", sweep.lower()).strip("-") or "sweep"


def percent_of(row: SweepRow, counts: Mapping[State, int]) -> float:
    """Return how many of a sweep's trials are final, in per cent."""
    final = sum(count for state, count in counts.items() if state.is_final)
    total = max(row.total or 0, sum(counts.values()))
    return 0.0 if not total else round(100 * final / total, 1)


def table_of(view: View) -> list[dict[str, Any]]:
    """Return the table's rows: ranked trials first, then what failed, what runs, what waits."""
    ranks = _ranks(view.results)
    order = {State.FAILED: 1, State.RUNNING: 2, State.STOPPING: 2, State.QUEUED: 3, State.SUBMITTING: 3}

    def place(item: tuple[Trial, Any]) -> tuple[int, int, int]:
        trial = item[0]
        rank = ranks.get(trial.number)
        return (0, rank, trial.number) if rank is not None else (order.get(trial.state, 4), 0, trial.number)

    replicates = Replicates(view.results.sweep.spec)
    return [
        {
            "trial": trial.number,
            "rank": ranks.get(trial.number),
            "state": trial.state.value,
            "value": plain(value_of(trial)),
            **{key: _cell(v) for key, v in replicates.overrides(overrides, trial.replicate).items()},
            "message": _short(trial.message or trial.reason.sentence),
        }
        for trial, overrides in sorted(view.trials, key=place)[:MOST_ROWS]
    ]


def winner_text(view: View) -> str:
    """Return the winner as Markdown, or why there is none."""
    results, row = view.results, view.row
    if results.objective is None:
        return ""
    head = f"## {row.id}: "
    found = results.winner or results.knee
    metric = f"{results.objective.metric} ({results.objective.goal})"
    if found is None:
        none = "no winner" if row.ended_at is not None else "no winner yet"
        return "\n\n".join([f"{head}{none}", f"Objective: {metric}.", *_why_unranked(results)])
    so_far = "" if row.ended_at is not None else ", so far"
    words = " \\\n  ".join(override_words(_overrides_of(view, found["trial"])))
    facts = [
        f"| {metric} | {_value_text(found)} |",
        f"| trial | {found['trial']} |",
        f"| MLflow run | {found['mlflow_run_id'] or 'none'} |",
        f"| ranked | {_counted(results)} |",
    ]
    table = "\n".join(["| | |", "|---|---|", *facts])
    run = f"```\nairflows run -f train.yaml \\\n  {words}\n```" if words else ""
    what = "the winner" if results.winner else "the knee of the Pareto front"
    return "\n\n".join(part for part in (f"{head}{what}{so_far}", table, run, row.message) if part)


def link_text(row: SweepRow) -> str:
    """Return Markdown that leads to a sweep's parent run in MLflow, empty without MLflow."""
    uri = without_passwords(row.tracking_uri)
    if uri in {"", "none"} or not row.parent_run_id:
        return ""
    if uri.startswith(("http://", "https://")):
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        path = f"#/experiments/{row.experiment_id}/runs/{row.parent_run_id}"
        return f"[{row.id} in MLflow]({parts.scheme}://{host}{parts.path.rstrip('/')}/{path})"
    where = f"MLflow run `{row.parent_run_id}` in experiment {row.experiment_id}"
    if uri.startswith("sqlite:"):
        return f"{where}.\n\n```\nmlflow ui --backend-store-uri {shlex.quote(uri)}\n```"
    return f"{where} of `{uri}`."


def result_of(view: View) -> Document:
    """Return what the flow returns."""
    found = view.results.winner
    made: Document = {
        "sweep": view.row.id,
        "state": view.row.state.value,
        "message": view.row.message,
        "trials": counts_document(view.results.counts, view.row.total),
        "trial": None if found is None else found["trial"],
        "overrides": None if found is None else dict(_overrides_of(view, found["trial"])),
        "value": None if found is None else found["value"],
        "mlflow_run_id": None if found is None else found["mlflow_run_id"],
    }
    checked: Document = without_passwords(plain(made))
    return checked


def failure_text(view: View) -> str:
    """Return why a sweep failed: its own sentence, and the causes of failed attempts, grouped."""
    row = view.row
    causes = [c for c in causes_of(row.id, view.attempts) if c["signature"] not in row.message]
    lines = [f"{row.id} {row.state.value}: {row.message or 'nothing could be ranked.'}"]
    lines += [
        f"{cause['count']} times: {_short(cause['message'] or cause['signature'])} ({cause['example']})"
        for cause in causes[:_MOST_CAUSES]
    ]
    if len(causes) > _MOST_CAUSES:
        lines.append(f"and {len(causes) - _MOST_CAUSES} more causes: airflows get {row.id}")
    lines.append(f"After a fix: airflows resume {row.id} --failed")
    text: str = without_passwords("\n".join(lines))
    return text


def progress_line(row: SweepRow, counts: Mapping[State, int]) -> str:
    """Return one line about how a sweep stands."""
    return f"{row.id}: {percent_of(row, counts):.0f} %; {_counts_text(row, counts)}"


def _counts_text(row: SweepRow, counts: Mapping[State, int]) -> str:
    shown = counts_document(counts, row.total)
    words = [f"{count} {state}" for state, count in shown.items() if count and state != "total"]
    total = "?" if shown["total"] is None else shown["total"]
    return f"{total} trials: {', '.join(words) or 'none yet'}"


def _table_note(view: View) -> str:
    more = len(view.trials) - MOST_ROWS
    left = f"; {more:,} more: airflows results {view.row.id}" if more > 0 else ""
    return f"Sweep {view.row.id}, {_counts_text(view.row, view.results.counts)}{left}"


def _ranks(results: SweepResults) -> dict[int, int]:
    groups = () if results.ranking is None else results.ranking.ranked
    return {number: group.rank for group in groups for number in group.trials}


def _overrides_of(view: View, trial_id: str) -> Mapping[str, Any]:
    """Return the winning trial's overrides, its replicate's value included."""
    number = int(trial_id.rpartition("/")[2])
    trial, overrides = next(item for item in view.trials if item[0].number == number)
    return Replicates(view.results.sweep.spec).overrides(overrides, trial.replicate)


def _value_text(found: Mapping[str, Any]) -> str:
    sd = f" ± {found['sd']:.3g}" if found["sd"] is not None else ""
    return f"{found['value']:.6g}{sd}" + (f" over {found['n']} replicates" if found["n"] > 1 else "")


def _counted(results: SweepResults) -> str:
    ranked = sum(len(group.trials) for group in results.ranking.ranked) if results.ranking else 0
    return f"{ranked} of {sum(results.counts.values())} trials"


def _why_unranked(results: SweepResults) -> list[str]:
    unranked = [] if results.ranking is None else results.ranking.unranked[:_MOST_CAUSES]
    return [f"- trial {trial.number}: {_short(trial.reason)}" for trial in unranked]


def _cell(value: Any) -> Any:
    return (
        plain(value)
        if value is None or isinstance(value, bool | int | float | str)
        else json.dumps(plain(value))
    )


def _short(text: str) -> str:
    # Before it is cut: the rest of an address would not be known as one.
    line: str = without_passwords(text).strip().partition("\n")[0]
    return line if len(line) <= _MESSAGE_CHARS else f"{line[: _MESSAGE_CHARS - 1]}…"
