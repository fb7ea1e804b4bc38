"""Results and progress as HTML for a notebook, in the notebook's own colours. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from airflows.hiding import public_overrides, public_text
from airflows.ids import canonical_json
from airflows.ranking import Group
from airflows.report.live import Scene, sparkline
from airflows.times import human_duration
from airflows.trial import State

_TOP = 20
_RUNNING = 10
_CAUSES = 5
_CURVE = 40


def ranked_html(ranked: Sequence[Group], metric: str) -> str:
    """Return the best groups as a table."""
    shown = [replace(group, overrides=public_overrides(group.overrides)) for group in ranked[:_TOP]]
    keys = list(dict.fromkeys(key for group in shown for key in group.overrides))
    metrics = [each.metric for each in shown[0].objectives] if shown[0].objectives else [metric]
    spread = ["sd"] if any(group.n > 1 for group in shown) else []
    notes = ["note"] if any(group.note for group in shown) else []
    measured = [name for each in metrics for name in (each, *spread)]
    header = ["rank", *keys, *measured, *(["n"] if spread else []), "trials", *notes]
    rows = []
    for group in shown:
        overrides = [_value(group.overrides[key]) if key in group.overrides else "" for key in keys]
        figures = [
            _number(number)
            for each in group.objectives or [group]
            for number in ((each.value, each.sd) if spread else (each.value,))
        ]
        count = [str(group.n)] if spread else []
        trials = " ".join(map(str, group.trials))
        rows.append([str(group.rank), *overrides, *figures, *count, trials, *([group.note] if notes else [])])
    hidden = len(ranked) - len(shown)
    return table_html(header, rows) + (f"<p>… and {hidden:,} more</p>" if hidden else "")


def table_html(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; every cell is text."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    cells = ("".join(f"<td>{escape(public_text(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def lines_html(lines: Iterable[str]) -> str:
    """Return a paragraph of lines."""
    return f"<p>{'<br>'.join(map(escape, lines))}</p>"


def scene_html(scene: Scene) -> str:
    """Return a sweep as it comes along."""
    live = scene.live
    of = "" if live.total is None else f" of {live.total:,}"
    bar = f' <progress value="{live.ended}" max="{live.total}"></progress>' if live.total else ""
    head = f"<p><b>{escape(live.sweep)}</b> {escape(live.state)}{bar} {live.ended:,}{of} ended</p>"
    parts = [head, lines_html(scene_lines(scene))]
    if live.running:
        parts.append(_running(scene))
    return "".join(parts)


def scene_lines(scene: Scene) -> list[str]:
    """Return what is known of a sweep as lines of text, without the head."""
    live = scene.live
    counts = ", ".join(f"{live.counts[state]:,} {state.value}" for state in State if live.counts.get(state))
    lines = [counts or "no trial yet"]
    if live.goal is not None and live.best is not None:
        value, number = live.best
        curve = sparkline(live.curve, _CURVE)
        lines.append(f"best {live.goal.metric} {_number(value)} (trial {number}) {curve}".rstrip())
    took = human_duration(max(0.0, (live.ended_at or scene.now) - live.began_at))
    left = "" if live.forecast is None else f", about {human_duration(live.forecast.left_s)} left"
    if live.forecast is not None and live.forecast.limit:
        left = f", {live.forecast.trials:,} of {live.forecast.total:,} within {live.forecast.limit}"
    limit = live.accelerator_limit_s
    of_limit = "" if limit is None else f" of {limit / 3600:.3g}"
    lines.append(f"{took}{left}; {live.accelerator_s / 3600:.3g}{of_limit} accelerator-hours")
    lines += [
        f"{cause.attempts:,} x {cause.reason or 'unknown'} (first {cause.example}): {cause.message}"
        for cause in live.causes[:_CAUSES]
    ]
    return [public_text(line) for line in (*lines, live.message, scene.note) if line]


def _running(scene: Scene) -> str:
    rows = []
    for trial in scene.live.running[:_RUNNING]:
        found = scene.last(trial)
        last = ["", ""] if found is None else [str(found[1].step), f"{found[0]} {_number(found[1].value)}"]
        since = "" if trial.since is None else human_duration(max(0.0, scene.now - trial.since))
        shown = public_overrides(trial.overrides)
        overrides = " ".join(f"{key}={_value(value)}" for key, value in shown.items())
        rows.append([str(trial.number), trial.state, since, *last, overrides])
    hidden = sum(scene.live.counts.get(s, 0) for s in (State.RUNNING, State.STOPPING)) - len(rows)
    more = f"<p>… and {hidden:,} more</p>" if hidden > 0 else ""
    return table_html(["trial", "state", "for", "step", "last metric", "overrides"], rows) + more


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else canonical_json(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
