"""The live view of a sweep: what is known of it in, lines of a width out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from airflows.cli.table import NOTHING, number_text, one_line, overrides_text, shortened, table
from airflows.cli.terminal import Style
from airflows.hiding import public_overrides, public_text
from airflows.report.live import Cause, Goal, LiveSweep, RunningTrial, Scene, sparkline
from airflows.times import human_duration
from airflows.trial import State

_LABEL = 8
_CURVE_WIDTH = 40
_BAR_WIDTH = 40
_MOST_CAUSES = 4
_LEAST_TABLE = 3
_ORDER = (
    (State.RUNNING, "cyan"),
    (State.STOPPING, "yellow"),
    (State.QUEUED, ""),
    (State.SUBMITTING, ""),
    (State.PENDING, ""),
    (State.SUCCEEDED, "green"),
    (State.FAILED, "red"),
    (State.STOPPED, "yellow"),
    (State.CANCELLED, "yellow"),
)
_LOOKS = {"succeeded": "green", "failed": "red", "cancelled": "yellow", "stopped": "yellow"}


def screen(scene: Scene, width: int, height: int) -> list[Text]:
    """Return the live view: at most so many lines, each at most so wide.

    Where there is little room, the table of running trials gives way first, then the causes of failures.
    """
    head = [*_head(scene, width), *_facts(scene, width)]
    left = max(0, height - len(head))
    causes = scene.live.causes[: min(_MOST_CAUSES, left // 2 if scene.live.running else left)]
    told = [_cause(cause, first=at == 0) for at, cause in enumerate(causes)]
    hidden = len(scene.live.causes) - len(causes)
    if told and hidden:
        told[-1].append(f" (and {hidden} more)", "dim")
    rows = list(_running(scene, width, left - len(told)))
    return [_cut(line, width) for line in [*head, *told, *rows][:height]]


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


def _head(scene: Scene, width: int) -> Iterator[Text]:
    live = scene.live
    yield Text.assemble((live.sweep, "bold"), "  ", (live.state, _LOOKS.get(live.state, "cyan")))
    said = f"{live.ended} of {live.total} ended" if live.total is not None else f"{live.ended} ended"
    if not live.total:
        yield Text(said)
        return
    ended = min(live.ended, live.total)
    # It is done when it is: 9,999 of 10,000 are no 100 %.
    said = f" {100 * ended // live.total:3d} %  {said}"
    length = max(0, min(_BAR_WIDTH, width - len(said)))
    filled = length * ended // live.total
    yield Text.assemble(("━" * filled, "green"), ("─" * (length - filled), "dim"), said)


def _facts(scene: Scene, width: int) -> Iterator[Text]:
    live = scene.live
    yield from _counts(live, width)
    if live.goal is not None:
        yield _labelled("best", _best(live, live.goal, width))
    yield _labelled("time", Text(_times(live, scene.now)))
    yield _labelled("cost", Text(_cost(live)))
    if live.ended_at is None and not scene.drives:
        yield _labelled("driver", Text(live.driver or "none"))
    why = live.message or scene.note
    if why:
        yield _labelled("note", Text(one_line(public_text(why)), "yellow"))


def _labelled(name: str, value: Text) -> Text:
    return Text.assemble((name.ljust(_LABEL), "dim"), value)


def _counts(live: LiveSweep, width: int) -> Iterator[Text]:
    """Yield how many trials are in each state, on as many lines as it takes: each number matters."""
    counts = dict(live.counts)
    if live.total is not None:
        # What is planned and not yet created waits, too.
        counts[State.PENDING] = counts.get(State.PENDING, 0) + max(0, live.total - sum(counts.values()))
    line = _labelled("trials", Text())
    for state, look in _ORDER:
        text = f"{counts.get(state, 0):,} {state.value}"
        if not counts.get(state):
            continue
        is_first = len(line) == _LABEL
        if not is_first and len(line) + len(text) + 2 > width:
            yield line
            line, is_first = _labelled("", Text()), True
        line.append("" if is_first else ", ").append(text, look)
    yield line


def _best(live: LiveSweep, goal: Goal, width: int) -> Text:
    if live.best is None:
        return Text(f"{one_line(goal.metric)}: no trial has ended with it yet")
    value, number = live.best
    words = f"{shortened(one_line(goal.metric), 24)} {number_text(value)} (trial {number}"
    words += ", constraints aside)" if goal.is_constrained else ")"
    room = width - _LABEL - cell_len(words) - 2
    curve = sparkline(live.curve, min(_CURVE_WIDTH, room))
    return Text.assemble((words, "bold"), f"  {curve}" if curve else "")


def _times(live: LiveSweep, now: float) -> str:
    took = human_duration(max(0.0, (live.ended_at or now) - live.began_at))
    if live.ended_at is not None:
        return f"{took} in all"
    found = live.forecast
    if found is None:
        return f"{took} so far"
    if found.limit:
        return f"{took} so far, at this pace {found.trials:,} of {found.total:,} within {found.limit}"
    return f"{took} so far, about {human_duration(found.left_s)} left"


def _cost(live: LiveSweep) -> str:
    spent, limit = live.accelerator_s / 3600, live.accelerator_limit_s
    if limit is None:
        return f"{spent:.3g} accelerator-hours"
    return f"{spent:.3g} of {limit / 3600:.3g} accelerator-hours ({live.accelerator_s / limit:.0%})"


def _cause(cause: Cause, *, first: bool) -> Text:
    times = f"{cause.attempts:,} x {cause.reason or 'unknown'}"
    said = f": {one_line(public_text(cause.message))}" if cause.message else ""
    label = ("failed" if first else "").ljust(_LABEL)
    return Text.assemble((label, "dim"), (times, "red"), (f" (first {cause.example})", "dim"), said)


def _running(scene: Scene, width: int, room: int) -> Iterator[Text]:
    trials = scene.live.running
    if not trials or room < _LEAST_TABLE:
        return
    count = scene.live.counts.get(State.RUNNING, 0) + scene.live.counts.get(State.STOPPING, 0)
    # An empty line, the header, and perhaps a line about those that are not shown.
    shown = trials[: room - 2]
    if len(shown) < count:
        shown = trials[: room - 3]
    if not shown:
        yield Text(f"… {count:,} trials run", "dim")
        return
    yield Text("")
    header, rows = _table(scene, shown)
    to_right = frozenset({"TRIAL", "FOR", "STEP", header[-2]})
    first, *rest = table(header, rows, Style(width=width), right=to_right)
    yield Text(first, "bold")
    yield from map(Text, rest)
    if len(shown) < count:
        yield Text(f"… and {count - len(shown):,} more", "dim")


def _table(scene: Scene, trials: Sequence[RunningTrial]) -> tuple[list[str], list[list[str]]]:
    goal = scene.live.goal
    metric = "LAST METRIC" if goal is None else one_line(goal.metric)
    header = ["TRIAL", "STATE", "FOR", "STEP", metric, "OVERRIDES"]
    rows = [
        [
            str(trial.number),
            trial.state,
            NOTHING if trial.since is None else human_duration(max(0.0, scene.now - trial.since)),
            *_last(scene, trial),
            overrides_text(public_overrides(trial.overrides)),
        ]
        for trial in trials
    ]
    return header, rows


def _last(scene: Scene, trial: RunningTrial) -> tuple[str, str]:
    """Return (step, value); the name is said where it is not the objective's."""
    found = scene.last(trial)
    if found is None:
        return NOTHING, NOTHING
    name, point = found
    is_named = scene.live.goal is None or name != scene.live.goal.metric
    return str(point.step), f"{name} {number_text(point.value)}" if is_named else number_text(point.value)
