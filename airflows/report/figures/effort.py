"""Where and when attempts ran, what they cost, and what they failed of. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflows.report.accounting import spent_by_trial
from airflows.report.facts import Facts, spread
from airflows.report.figures.drawing import (
    GREEN,
    RED,
    STATE_COLOURS,
    Figure,
    Trace,
    as_markup,
    axis,
    label,
    layout,
    rounded,
)
from airflows.report.packed import most_at_once
from airflows.times import human_duration

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow

MOST_BARS = 1200
_MOST_NAMES = 12
_MOST_CAUSES = 12
_OTHER = "running"

Bar = tuple["AttemptRow", int]


def timeline(facts: Facts) -> Figure:
    """Return a bar for each attempt that ran: when, and where, one row for each place in use at a time."""
    title = "Timeline"
    ran = [attempt for attempt in facts.attempts if attempt.started_at is not None]
    if not ran:
        return Figure("timeline", title, why_not="Nothing has run yet.")
    drawn = spread(sorted(ran, key=_begin), MOST_BARS)
    until = facts.ended_at or facts.made_at
    bars, names = lanes(drawn, until)
    rows = len(names)
    data = [_bars(state, own, until) for state, own in _by_state(bars)]
    ticks = {
        rows_at: name for rows_at, name in enumerate(names) if rows_at == 0 or names[rows_at - 1] != name
    }
    shown = dict(spread(list(ticks.items()), _MOST_NAMES))
    made = layout(
        min(640, 110 + 18 * rows),
        barmode="overlay",
        bargap=0.15,
        xaxis=axis("time (UTC)", type="date"),
        yaxis=axis(
            "",
            autorange="reversed",
            showgrid=False,
            tickvals=list(shown),
            ticktext=[label(name, 32) for name in shown.values()],
        ),
    )
    hosts = len({_place(attempt) for attempt in ran})
    places = "1 place" if hosts == 1 else f"{hosts} places"
    lasted = human_duration(max(_end(a, until) for a in ran) - min(map(_begin, ran)))
    summary = (
        f"{len(ran):,} attempts ran in {places} within {lasted}, {most_at_once(ran):,} at a time at most."
    )
    note = (
        "" if len(drawn) == len(ran) else f"{len(drawn):,} of {len(ran):,} attempts are drawn, from all over."
    )
    return Figure("timeline", title, data, made, summary, note)


def lanes(attempts: Iterable[AttemptRow], now: float) -> tuple[list[Bar], list[str]]:
    """Return each attempt with its row, and of each row the place it belongs to.

    Attempts that overlap in a place are in different rows; a row is used again as soon as it is free.

    Args:
        attempts: such as have started.
        now: until when those last that have not ended.
    """
    by_place: dict[str, list[AttemptRow]] = {}
    for attempt in attempts:
        by_place.setdefault(_place(attempt), []).append(attempt)
    bars: list[Bar] = []
    names: list[str] = []
    for place in sorted(by_place):
        first = len(names)
        free: list[int] = []
        busy: list[tuple[float, int]] = []
        for attempt in sorted(by_place[place], key=_begin):
            while busy and busy[0][0] <= _begin(attempt):
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                heapq.heappush(free, len(names))
                names.append(place)
            row = heapq.heappop(free)
            heapq.heappush(busy, (_end(attempt, now), row))
            bars.append((attempt, row))
        names[first:] = [place] * (len(names) - first)
    return bars, names


def cost(facts: Facts) -> Figure:
    """Return accelerator-hours: those whose result was kept, and those that were lost, by why."""
    title, hours = "Accelerator-hours", hours_by_use(facts)
    if not any(hours.values()):
        return Figure("cost", title, why_not="No accelerator time was used.")
    order = list(reversed(hours.items()))
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [label(name) for name, _ in order],
        "x": [rounded(value) for _, value in order],
        "marker": {"color": [GREEN if name == "useful" else RED for name, _ in order]},
        "text": [f"{value:.3g} h" for _, value in order],
        "textposition": "auto",
        "hoverinfo": "y+text",
    }
    made = layout(
        80 + 34 * len(hours), xaxis=axis("hours", rangemode="tozero"), yaxis=axis("", type="category")
    )
    lost = sum(value for name, value in hours.items() if name != "useful")
    summary = f"{hours['useful']:.3g} accelerator-hours were useful and {lost:.3g} lost."
    note = "Lost is what ended without a result that was kept, or was repeated."
    return Figure("cost", title, [bars], made, summary, note)


def hours_by_use(facts: Facts) -> dict[str, float]:
    """Return `useful` -> accelerator-hours, then `lost: REASON` for each reason, the largest first."""
    spent = spent_by_trial(facts.attempts, facts.ended_at or facts.made_at)
    useful, lost, seen = 0.0, dict[str, float](), dict[int, int]()
    for attempt in facts.attempts:
        at = seen.get(attempt.number, 0)
        seen[attempt.number] = at + 1
        own = spent[attempt.number][at]
        useful += own.useful_s / 3600
        if own.lost_s:
            why = f"lost: {(attempt.reason or attempt.state).replace('_', ' ')}"
            lost[why] = lost.get(why, 0.0) + own.lost_s / 3600
    return {"useful": useful, **dict(sorted(lost.items(), key=lambda each: -each[1]))}


def failures(facts: Facts) -> Figure:
    """Return how many trials failed of each cause."""
    title = "Failures by cause"
    if not facts.causes:
        return Figure("failures", title, why_not="Nothing failed.")
    causes = facts.causes[:_MOST_CAUSES]
    words = [f"{at}. {_kind(cause.reason)}" for at, cause in enumerate(causes, 1)]
    counts = [len(cause.numbers) for cause in causes]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": words[::-1],
        "x": counts[::-1],
        "marker": {"color": RED},
        "text": [label(cause.said or cause.signature, 90) for cause in reversed(causes)],
        "textposition": "none",
        "hoverinfo": "text+x",
    }
    made = layout(
        80 + 30 * len(causes), xaxis=axis("trials", rangemode="tozero"), yaxis=axis("", type="category")
    )
    told = "; ".join(
        f"{count} of {word.partition('. ')[2]}" for count, word in zip(counts, words, strict=True)
    )
    more = len(facts.causes) - len(causes)
    note = f"{more} further causes are not drawn." if more > 0 else ""
    return Figure("failures", title, [bars], made, f"Trials with a failed attempt: {told}.", note)


def _kind(reason: str) -> str:
    return as_markup((reason or "unknown").replace("_", " "))


def _by_state(bars: Sequence[Bar]) -> list[tuple[str, list[Bar]]]:
    found: dict[str, list[Bar]] = {state: [] for state in STATE_COLOURS}
    for bar in bars:
        found[bar[0].state if bar[0].state in found else _OTHER].append(bar)
    return [(state, own) for state, own in found.items() if own]


def _bars(state: str, bars: Sequence[Bar], now: float) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": state,
        "base": [round(_begin(attempt) * 1000) for attempt, _ in bars],
        "x": [max(1, round((_end(attempt, now) - _begin(attempt)) * 1000)) for attempt, _ in bars],
        "y": [row for _, row in bars],
        "text": [_words(attempt, now) for attempt, _ in bars],
        "textposition": "none",
        "hoverinfo": "text",
        "marker": {"color": STATE_COLOURS[state]},
    }


def _words(attempt: AttemptRow, now: float) -> str:
    lasted = human_duration(_end(attempt, now) - _begin(attempt))
    why = f", {attempt.reason.replace('_', ' ')}" if attempt.reason else ""
    which = f"trial {attempt.number}.{attempt.attempt}: {attempt.state}{why}"
    return f"{which}<br>{lasted} on {label(_place(attempt))}"


def _place(attempt: AttemptRow) -> str:
    return f"{attempt.backend} {attempt.host}".strip() or "unknown"


def _begin(attempt: AttemptRow) -> float:
    return attempt.started_at or 0.0


def _end(attempt: AttemptRow, now: float) -> float:
    return max(_begin(attempt), now if attempt.ended_at is None else attempt.ended_at)
