"""The JSON documents as text for people. Pure: a document in, lines out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflows.cli.causes import causes_lines
from airflows.cli.forecasting import cost_fields, forecast_text
from airflows.cli.places import places_lines
from airflows.cli.table import (
    NOTHING,
    number_text,
    one_line,
    overrides_text,
    seconds_between,
    short_keys,
    shortened,
    table,
    value_text,
    when,
)
from airflows.cli.terminal import Style
from airflows.times import human_duration

Document = Mapping[str, Any]

_LOOKS = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "stopped": "yellow",
    "running": "cyan",
}
_HANDLE_WIDTH = 48
_HANDLE_REST = re.compile(r"[:@].*", re.DOTALL)


def state_text(state: str, style: Style) -> str:
    """Return a state in its colour."""
    look = _LOOKS.get(state)
    return style.paint(str(state), look) if look else str(state)


def counts_text(trials: Document) -> str:
    """Return `12 of 27 ended, 2 running, 1 failed`."""
    ended = sum(trials[state] for state in ("succeeded", "failed", "stopped", "cancelled"))
    total = trials["total"]
    words = [f"{ended} of {total} ended" if total is not None else f"{ended} ended"]
    others = ("running", "queued", "failed", "stopped", "cancelled")
    return ", ".join(words + [f"{trials[state]} {state}" for state in others if trials[state]])


def took_text(document: Document) -> str:
    """Return how long something took or has been taking."""
    seconds = seconds_between(document["started_at"], document["ended_at"])
    return NOTHING if seconds is None else human_duration(seconds)


# list


def sweeps_lines(sweeps: Sequence[Document], style: Style) -> list[str]:
    """Return the table of `list`."""
    header = ("SWEEP", "STATE", "ENDED", "RUNNING", "FAILED", "BEST", "STARTED", "TOOK", "BACKEND", "DRIVER")
    rows = [
        (
            sweep["sweep"],
            str(sweep["state"]),
            _progress(sweep["trials"]),
            str(sweep["trials"]["running"] + sweep["trials"]["queued"]),
            str(sweep["trials"]["failed"]),
            number_text(sweep["best"]),
            when(sweep["started_at"]),
            took_text(sweep),
            sweep["backend"],
            driver_text(sweep),
        )
        for sweep in sweeps
    ]
    return table(header, rows, style, right=frozenset({"ENDED", "RUNNING", "FAILED", "BEST", "TOOK"}))


def _progress(trials: Document) -> str:
    ended = sum(trials[state] for state in ("succeeded", "failed", "stopped", "cancelled"))
    return f"{ended}/{'?' if trials['total'] is None else trials['total']}"


def driver_text(sweep: Document) -> str:
    """Return who drives a sweep."""
    driver = sweep["driver"]
    if driver is None:
        return "none" if sweep["ended_at"] is None else NOTHING
    return f"{driver['host']}:{driver['pid']}"


def trials_lines(trials: Sequence[Document], style: Style) -> list[str]:
    """Return the table of `list --runs`."""
    names = short_keys(key for trial in trials for key in trial["overrides"])
    header = ("TRIAL", "STATE", "REASON", "ATTEMPT", "VALUE", "TOOK", "HANDLE", "OVERRIDES")
    rows = [
        (
            trial["trial"],
            str(trial["state"]),
            trial["reason"] or "",
            str(trial["attempt"]),
            number_text(trial["value"]),
            took_text(trial),
            handle_text(trial["backend"], trial["handle"]),
            overrides_text(trial["overrides"], names),
        )
        for trial in trials
    ]
    return table(header, rows, style, right=frozenset({"ATTEMPT", "VALUE", "TOOK"}))


def handle_text(backend: str | None, handle: str | None) -> str:
    """Return a run's id as the backend's own commands have it, such as `slurm:4711_12`.

    What a handle holds beside that is for us: another machine's processes, ids that start again some day.
    """
    if not handle:
        return ""
    whole = handle if handle.startswith(f"{backend}:") else f"{backend or '?'}:{handle}"
    kind, _, own = whole.partition(":")
    return shortened(f"{kind}:{_HANDLE_REST.sub('', own)}", _HANDLE_WIDTH)


# get


def fields_lines(fields: Iterable[tuple[str, str]], style: Style) -> list[str]:
    """Return `name  value` lines, those without a value left out."""
    kept = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"{style.paint(name.ljust(width), 'dim')}  {one_line(value)}" for name, value in kept]


def sweep_lines(sweep: Document, style: Style) -> list[str]:
    """Return `get SWEEP`."""
    lines = [f"{style.paint(sweep['sweep'], 'bold')}  {state_text(sweep['state'], style)}"]
    lines += fields_lines(
        [
            ("message", sweep["message"] or ""),
            ("trials", counts_text(sweep["trials"])),
            ("orphaned", orphaned_text(sweep)),
            ("waits", ", ".join(f"{one['count']} x {one['detail']}" for one in sweep.get("waiting", ()))),
            ("best", "" if sweep["best"] is None else number_text(sweep["best"])),
            ("objective", ", ".join(map(objective_text, sweep["objectives"] or [sweep["objective"]]))),
            ("plan", sweep["plan"] or ""),
            ("started", when(sweep["started_at"])),
            ("ended", "" if sweep["ended_at"] is None else when(sweep["ended_at"])),
            ("took", took_text(sweep)),
            ("backend", sweep["backend"]),
            ("driver", _driver_sentence(sweep)),
            ("forecast", forecast_text(sweep["forecast"])),
            *cost_fields(sweep),
            ("MLflow", mlflow_text(sweep)),
            ("files", sweep["root"]),
        ],
        style,
    )
    lines += places_lines(sweep.get("places"), style)
    return lines + causes_lines(sweep["causes"], style, avoided=sweep["avoided"])


def orphaned_text(sweep: Document) -> str:
    """Return how many trials count no more, empty for none."""
    count = sweep["orphaned"]
    return f"{count} of the trials: their points are no longer in the sweep file" if count else ""


def _driver_sentence(sweep: Document) -> str:
    driver = sweep["driver"]
    if driver is not None:
        return f"process {driver['pid']} on {driver['host']}, since {when(driver['since'])}"
    if sweep["ended_at"] is not None:
        return ""
    return f"none; take it up with: airflows resume {sweep['sweep']}"


def mlflow_text(sweep: Document) -> str:
    """Return where MLflow has a sweep."""
    uri = sweep["tracking_uri"]
    if not uri or uri == "none":
        return "off"
    return f"{uri}, experiment {sweep['experiment_id']}, parent run {sweep['parent_run_id']}"


def objective_text(objective: Document | None) -> str:
    """Return `maximize val_accuracy (take last)`."""
    if objective is None:
        return ""
    return f"{objective['goal']} {objective['metric']} (take {take_text(objective.get('take', 'last'))})"


def take_text(take: Any) -> str:
    """Return a `take` in words."""
    if isinstance(take, Mapping):
        return ", ".join(f"{kind} {n}" for kind, n in take.items() if n is not None)
    return str(take)


def trial_lines(trial: Document, style: Style) -> list[str]:
    """Return `get SWEEP/12`: what it is, its attempts, and the story its events tell."""
    lines = [f"{style.paint(trial['trial'], 'bold')}  {state_text(trial['state'], style)}"]
    lines += fields_lines(
        [
            ("why", trial["message"] or ""),
            ("waits", trial.get("waiting") or ""),
            ("value", "" if trial["value"] is None else _value_at_step(trial)),
            ("MLflow run", trial["mlflow_run_id"] or ""),
            *cost_fields(trial),
            *((key, value_text(value)) for key, value in trial["overrides"].items()),
        ],
        style,
    )
    for attempt in trial["attempts"]:
        lines += ["", *_attempt_lines(attempt, trial, style)]
    if not trial["attempts"]:
        lines += ["", "It has not been started yet."]
    return lines


def _value_at_step(trial: Document) -> str:
    step = trial["value_step"]
    return number_text(trial["value"]) + ("" if step is None else f" at step {step}")


def _attempt_lines(attempt: Document, trial: Document, style: Style) -> list[str]:
    title = style.paint(f"attempt {attempt['attempt']}", "bold")
    lines = [f"{title}  {state_text(attempt['state'], style)}"]
    lines += [
        f"  {when(event['at'])}  {event_text(event, attempt)}"
        for event in trial["events"]
        if event["attempt"] == attempt["attempt"]
    ]
    logs = attempt["log_paths"]
    more = f" (and {len(logs) - 1} more nodes)" if len(logs) > 1 else ""
    lines += [
        f"  {line}"
        for line in fields_lines(
            [
                ("handle", handle_text(attempt["backend"], attempt["handle"])),
                ("host", attempt["host"] or ""),
                ("exit code", "" if attempt["exit_code"] is None else str(attempt["exit_code"])),
                ("resumed from", attempt["resumed_from"] or ""),
                *cost_fields(attempt),
                ("files", attempt["launch_dir"]),
                ("log", f"{logs[0]}{more}" if logs else ""),
            ],
            style,
        )
    ]
    return lines


_STORY = {
    "claimed": "taken up, to be submitted",
    "reclaimed": "submitted again: the backend did not know it",
    "accepted": "accepted by the backend",
    "unsent": "not sent",
    "rejected": "refused by the backend",
    "started": "running",
    "succeeded": "succeeded",
    "retried": "ended badly, to be tried again",
    "failed": "failed for good",
    "stop_asked": "asked to end",
    "gone": "ended as asked",
    "reopened": "taken up again",
}


def event_text(event: Document, attempt: Document) -> str:
    """Return one event of a trial's story."""
    kind = str(event["kind"])
    words = _STORY.get(kind, kind)
    if kind == "started" and attempt["host"]:
        words += f" on {attempt['host']}"
    why = event["detail"] or event["reason"]
    return one_line(f"{words}: {why}" if why else words)
