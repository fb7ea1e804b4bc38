"""The JSON documents as text for people. Pure: a document in, lines out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflows.cli.causes import causes_lines, code_lines
from airflows.cli.forecasting import cost_fields, forecast_text
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
_MOST_NUMBERS = 8
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
            ("waits", ", ".join(f"{one['count']} x {one['detail']}" for one in sweep.get("waiting", ()))),
            ("best", "" if sweep["best"] is None else number_text(sweep["best"])),
            ("objective", objective_text(sweep["objective"])),
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
    return lines + causes_lines(sweep["causes"], style)


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


# results


def results_lines(
    results: Document, style: Style, *, top: int | None = None, causes: bool = True
) -> list[str]:
    """Return the ranked table, who is not ranked and why, the winner, and why trials failed.

    Args:
        results: the document.
        style: how it looks.
        top: most rows of the table.
        causes: whether to tell why trials failed.
    """
    told = causes_lines(results["causes"], style) if causes else []
    objective = results["objective"]
    if objective is None:
        return [f"{results['sweep']} has no objective, so nothing is ranked.", *told]
    head = f"{style.paint(results['sweep'], 'bold')}  {objective_text(objective)}"
    lines = [head if results["complete"] else f"{head}, not finished yet", ""]
    ranked = results["ranked"] if top is None else results["ranked"][:top]
    if ranked:
        lines += _ranked_lines(ranked, objective["metric"], style)
        hidden = len(results["ranked"]) - len(ranked)
        lines += [style.paint(f"… and {hidden} more", "dim")] if hidden > 0 else []
    lines += _unranked_lines(results["unranked"], style, grouped=bool(results["causes"]))
    return [*lines, "", *winner_lines(results, style), *code_lines(results["code"], style), *told]


def _ranked_lines(ranked: Sequence[Document], metric: str, style: Style) -> list[str]:
    keys = short_keys(key for group in ranked for key in group["overrides"])
    replicated = any(group["n"] > 1 for group in ranked)
    notes = any(group["note"] or group["stopped_early"] for group in ranked)
    header = [
        "RANK",
        *keys.values(),
        metric,
        *(("SD", "N", "VS WINNER") if replicated else ()),
        "STEP",
        "TRIALS",
    ]
    header += ["NOTE"] if notes else []
    rows = []
    for group in ranked:
        overrides = group["overrides"]
        row = [str(group["rank"]), *(value_text(overrides[key]) if key in overrides else "" for key in keys)]
        row.append(number_text(group["value"]))
        if replicated:
            row += [number_text(group["sd"], 2), str(group["n"]), versus_text(group)]
        row += [_steps_text(group["steps"]), _numbers_text(group["trials"])]
        row += [group["note"] or ("stopped early" if group["stopped_early"] else "")] if notes else []
        rows.append(row)
    return table(header, rows, style, right=frozenset({"RANK", metric, "SD", "N", "STEP"}))


def versus_text(group: Document) -> str:
    """Return how a group stands against the winner."""
    if group["p"] is None:
        return ""
    word = "worse" if group["separable_from_winner"] else "within noise"
    return f"{word}, p={group['p']:.2g}"


def _steps_text(steps: Sequence[int | None]) -> str:
    known = list(dict.fromkeys(step for step in steps if step is not None))
    return _numbers_text(known) if known else NOTHING


def _numbers_text(numbers: Sequence[int]) -> str:
    shown = " ".join(str(number) for number in numbers[:_MOST_NUMBERS])
    hidden = len(numbers) - _MOST_NUMBERS
    return f"{shown} +{hidden}" if hidden > 0 else shown


def _unranked_lines(unranked: Sequence[Document], style: Style, *, grouped: bool) -> list[str]:
    by_reason: dict[str, list[int]] = {}
    for trial in unranked:
        # Where the causes are told by themselves, not every error is told here again.
        is_failure = grouped and trial["reason"].startswith("failed: ")
        by_reason.setdefault("failed" if is_failure else trial["reason"], []).append(trial["number"])
    if not by_reason:
        return []
    lines = ["", style.paint("not ranked", "bold")]
    return lines + [
        f"{len(numbers):>5} x {one_line(reason)} (trials {_numbers_text(numbers)})"
        for reason, numbers in by_reason.items()
    ]


def winner_lines(results: Document, style: Style) -> list[str]:
    """Return the winner, and whether the runner-up is within noise."""
    winner = results["winner"]
    if winner is None:
        return [style.paint("There is no winner.", "yellow")]
    metric = results["objective"]["metric"]
    spread = (
        ""
        if winner["sd"] is None
        else f" (mean {number_text(winner['mean'])} of {winner['n']}, sd {number_text(winner['sd'], 2)})"
    )
    lines = [
        f"{style.paint('winner', 'green', 'bold')}  {winner['trial']}  {overrides_text(winner['overrides'])}",
        f"        {metric} {number_text(winner['value'])}{spread}",
    ]
    second = next((group for group in results["ranked"] if group["rank"] == winner["rank"] + 1), None)
    if second is not None and second["p"] is not None:
        beyond = "is worse beyond noise" if second["separable_from_winner"] else "is within noise"
        lines.append(
            f"        the runner-up ({number_text(second['value'])}) {beyond}: p = {second['p']:.2g}"
        )
    return lines


def best_lines(winner: Document, metric: str, style: Style) -> list[str]:
    """Return `best`."""
    fields = [
        ("trial", style.paint(winner["trial"], "bold")),
        (metric, number_text(winner["value"])),
        ("sd", "" if winner["sd"] is None else f"{number_text(winner['sd'], 2)} (n = {winner['n']})"),
        ("MLflow run", winner["mlflow_run_id"] or ""),
        *((key, value_text(value)) for key, value in winner["overrides"].items()),
        ("note", winner["note"]),
    ]
    width = max(len(name) for name, _ in fields)
    return [f"{style.paint(name.ljust(width), 'dim')}  {value}" for name, value in fields if value]
