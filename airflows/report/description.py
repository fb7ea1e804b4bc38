"""The description of a sweep's parent run in MLflow: who won, and what others came to. Pure, to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from airflows.report.facts import Facts, values_of
from airflows.report.figures.drawing import number_words, shown
from airflows.report.headline import headline

MOST_CHARS = 4900
"""Older MLflow servers take 5,000 characters."""
_ROWS = 10
_COLUMNS = 6
_CAUSES = 5
_CELL_CHARS = 40
_LONG_CHARS = 160
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")


def description(facts: Facts, *, has_report: bool) -> str:
    """Return the description.

    Args:
        facts: what is told.
        has_report: `report.html` is among the artifacts.
    """
    parts = [_opening(facts), _trust(facts), _ranked(facts), _failures(facts)]
    ways = _ways(facts, has_report=has_report)
    made = ""
    for part in filter(None, parts):
        # The ways to more are always told; what does not fit is in the report.
        if len(made) + len(part) + len(ways) + 4 <= MOST_CHARS:
            made += f"{part}\n\n"
    return made + ways


def _opening(facts: Facts) -> str:
    message = f" {_text(facts.message, _LONG_CHARS)}" if facts.message else ""
    lines = [f"**{_text(headline(facts), _LONG_CHARS * 2)}**{message}"]
    best = facts.best
    if best is not None:
        told = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in best.overrides.items())
        lines.append(f"Winner's overrides: {told}" if len(facts.goals) == 1 else f"Its overrides: {told}")
    return "\n\n".join(lines)


def _trust(facts: Facts) -> str:
    # A command among the sentences is indented by two.
    sentences = [f"- {_text(one, 400)}" for one in facts.words if not one.startswith("  ")]
    return "\n".join(sentences)


def _ranked(facts: Facts) -> str:
    if not facts.groups:
        return ""
    parameters = facts.leading_parameters(_COLUMNS) or list(facts.parameters[:_COLUMNS])
    head = ["rank", *(goal.metric for goal in facts.goals), *(each.name for each in parameters), "trials"]
    lines = [_row(head), _row(["---"] * len(head), is_markup=True)]
    for group in facts.groups[:_ROWS]:
        own = [each.value(group.overrides) for each in parameters]
        words = ["" if value is None else value for value in own]
        lines.append(
            _row([group.rank, *map(number_words, values_of(group)), *words, " ".join(map(str, group.trials))])
        )
    more = len(facts.groups) - _ROWS
    return "\n".join(lines) + (f"\n\nand {more:,} more points" if more > 0 else "")


def _failures(facts: Facts) -> str:
    lines = [
        f"- {len(cause.numbers):,} x {_text(cause.reason.replace('_', ' '))}"
        f"{' at ' + _text(cause.condition) if cause.condition else ''}:"
        f" {_text(cause.said or cause.signature, _LONG_CHARS)}"
        for cause in facts.causes[:_CAUSES]
    ]
    return "\n".join(["Failed attempts, by trials:", "", *lines]) if lines else ""


def _ways(facts: Facts, *, has_report: bool) -> str:
    report = "The artifact `report.html` has every point and all plots. " if has_report else ""
    return (
        f"{report}The artifact `results.csv` has every trial, `winner.yaml` a train.yaml for the winner."
        f" To compare trials, search the runs for `tags.\"airflows.sweep\" = '{facts.sweep}'`."
        f" In a terminal: `airflows results {facts.sweep}`."
    )


def _row(cells: Sequence[Any], *, is_markup: bool = False) -> str:
    texts: Iterable[str] = cells if is_markup else (_text(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


def _text(value: Any, most: int = _CELL_CHARS) -> str:
    """Return any value so that Markdown shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(shown(value, most).split()))
